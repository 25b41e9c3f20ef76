// From the tensors of a call to the parameters of the kernel that scores blocks of keys.
#pragma once

#include <cstdint>

#include <jit/score_blocks.h>

#include "templates/score_blocks/params.cuh"

namespace jit {

/// Blocks of so many dense keys.
std::int64_t blocks_of(const ScoreBlocksSpec& spec, std::int64_t seqlen_kv);

/// Checks `arguments` against `spec` and fills `params`, except maps and values that depend on the device.
/// Returns whether there is something to write. Throws Error invalid_argument, whose field is the argument's
/// name.
bool fill_params(const ScoreBlocksSpec& spec, const ScoreBlocksArguments& arguments,
                 ScoreBlocksParams& params);

/// Fills the maps, and divides the work for `sm_count` SMs. Requires: fill_params returned true.
void fill_work(const ScoreBlocksSpec& spec, int sm_count, ScoreBlocksParams& params);

}  // namespace jit
