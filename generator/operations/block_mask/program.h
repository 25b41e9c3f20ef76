// The program that computes block masks.
#pragma once

#include <jit/block_mask.h>

#include "generator/program/program.h"

namespace jit {

/// The spec of attention over the sequences of the blocks.
AttentionSpec attention_of(const BlockMaskSpec& spec);

/// Requires: validate(spec) passes.
Program block_mask_program(const BlockMaskSpec& spec);

}  // namespace jit
