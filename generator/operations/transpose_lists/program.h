// The program that transposes lists.
#pragma once

#include "generator/program/program.h"

namespace jit {

Program transpose_lists_program();

}  // namespace jit
