// The program that computes block masks.
#pragma once

#include <jit/block_mask.h>

#include "generator/program/program.h"

namespace jit {

/// Threads per block.
inline constexpr unsigned block_mask_threads = 512;

/// The spec of attention over the sequences of the blocks.
AttentionSpec attention_of(const BlockMaskSpec& spec);

/// Requires: validate(spec) passes.
Program block_mask_program(const BlockMaskSpec& spec);

}  // namespace jit
