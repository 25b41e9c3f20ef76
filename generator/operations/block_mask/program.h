// The program that makes block masks.
#pragma once

#include <jit/block_mask.h>

#include "generator/program/program.h"

namespace jit {

/// Threads of a block.
inline constexpr unsigned block_mask_threads = 512;

/// The spec of an attention whose sequences are as those of the blocks.
AttentionSpec attention_of(const BlockMaskSpec& spec);

/// Requires: validate(spec) passes.
Program block_mask_program(const BlockMaskSpec& spec);

}  // namespace jit
