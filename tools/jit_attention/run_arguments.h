// Arguments of `run`'s calls, with its arrays at their addresses.
#pragma once

#include "run_arrays.h"

namespace jit::tool {

/// Arguments of jit::attention; LSE only with `with_lse`.
AttentionArguments forward_arguments(RunProblem& problem, bool with_lse, const Place& place);
/// Arguments of the backward. Requires problem.backward.
BackwardArguments backward_arguments(RunProblem& problem, const Place& place);

/// Arguments of jit::block_mask, which makes tensor block_mask. Requires a block map.
BlockMaskArguments block_mask_arguments(RunProblem& problem, const Place& place);

/// Arguments of jit::quantize_qkv, which makes q, k, v and their scales. Requires a quantizer.
QuantizeArguments quantize_arguments(RunProblem& problem, const Place& place);

/// Checks a call as the library does. Throws Error invalid_argument.
void check(RunProblem& problem);

}  // namespace jit::tool
