// The program that scores blocks of keys.
#pragma once

#include <jit/score_blocks.h>

#include "generator/program/program.h"

namespace jit {

/// The attention that a kernel's scores are those of: without what concerns values and o.
AttentionSpec scores_of(const ScoreBlocksSpec& spec);

/// Requires: validate(spec) passes.
Program score_blocks_program(const ScoreBlocksSpec& spec);

}  // namespace jit
