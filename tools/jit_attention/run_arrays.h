// The arrays that `run` reads and writes, and what their shapes say about the problem.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <jit/attention.h>

#include "block_map.h"
#include "fp8_inputs.h"
#include "problem.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct RunOptions {
  FunctorOptions functors;
  std::string dtype;  ///< empty: not given
  AttentionSpec fp8;  ///< types of k, v and o, and what there are scales for, alone
  std::string q, k;
  std::string v;       ///< path; empty: not given
  int head_dim_v = 0;  ///< given in place of v
  Fp8Options scales;
  std::vector<std::string> tensors;                          ///< "name=path"
  std::vector<std::int32_t> seqlens_q, seqlens_kv, leftpad;  ///< one for each sequence; empty: not given
  std::string page_table, sinks;                             ///< paths; empty: not given
  BlockMapOptions block_map;
  int num_splits = 0;
  float dropout_p = 0;
  std::vector<std::uint64_t> rng_state;  ///< seed and offset; empty: not given
  bool backward = false;
  std::string d_o;  ///< path; given with `backward`
};
void add_run_input_options(CLI::App& app, RunOptions& options);

/// The paths of all files that are read.
std::vector<std::string> input_files(const RunOptions& options);

/// In host memory; an array without dimensions is not part of the call.
struct RunArrays {
  Array q, k, v, o, lse;
  NamedArrays tensors;
  Array cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, cache_leftpad, page_table, sinks, rng_state;
  Fp8Scales scales;
  Array d_o, dq, dk, dv;
};

/// Puts in their places lengths and boundaries of sequences, which operations have under one name.
template <class Arguments>
void place_lengths(RunArrays& arrays, Arguments& arguments, const Place& place) {
  for (const auto& [array, view_of] : {std::pair{&arrays.cu_seqlens_q, &arguments.cu_seqlens_q},
                                       {&arrays.cu_seqlens_k, &arguments.cu_seqlens_k},
                                       {&arrays.seqused_q, &arguments.seqused_q},
                                       {&arrays.seqused_k, &arguments.seqused_k}}) {
    if (!array->shape.empty()) *view_of = view(*array, place(*array));
  }
}

struct RunProblem {
  AttentionSpec spec;
  DType result_dtype = DType::fp32;  ///< that of --q as it was given, and of all results but lse
  int num_splits = 0;
  float dropout_p = 0;
  bool backward = false;
  std::optional<BlockMap> block_map = {};
  std::optional<Quantizer> quantizer = {};
  RunArrays arrays;  ///< inputs in the types that the kernels take; outputs are zeros
};

/// Reads all inputs. Three dimensions are ragged sequences, four dense ones, or pages where there is a page table.
/// Throws BadInput, and Error for what the library refuses.
RunProblem read_problem(const RunOptions& options);

/// The arguments over arrays at their places.
AttentionArguments forward_arguments(RunProblem& problem, bool with_lse, const Place& place);
BackwardArguments backward_arguments(RunProblem& problem, const Place& place);

/// Those of jit::block_mask, which makes tensor block_mask. Requires a block map.
BlockMaskArguments block_mask_arguments(RunProblem& problem, const Place& place);

/// Those of jit::quantize_qkv, which makes q, k, v and their scales. Requires a quantizer.
QuantizeArguments quantize_arguments(RunProblem& problem, const Place& place);

/// As the library checks a call. Throws Error invalid_argument.
void check(RunProblem& problem);

}  // namespace jit::tool
