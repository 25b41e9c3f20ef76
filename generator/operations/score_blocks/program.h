// The program that scores blocks of keys.
#pragma once

#include <jit/score_blocks.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program score_blocks_program(const ScoreBlocksSpec& spec);

}  // namespace jit
