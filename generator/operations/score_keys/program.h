// The program that scores keys.
#pragma once

#include <jit/score_keys.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program score_keys_program(const ScoreKeysSpec& spec);

}  // namespace jit
