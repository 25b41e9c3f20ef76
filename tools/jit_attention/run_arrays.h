// Arrays that `run` reads and writes, and the problem that their shapes define.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <jit/attention.h>

#include "block_map.h"
#include "fp8_inputs.h"
#include "problem.h"
#include "run_gradients.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct RunOptions {
  FunctorOptions functors;
  std::string dtype;  ///< empty: not given
  AttentionSpec fp8;  ///< only the types of k, v and o, and the scales
  std::string q, k;
  std::string v;       ///< path; empty: not given
  int head_dim_v = 0;  ///< an alternative to v
  Fp8Options scales;
  std::vector<std::string> tensors;                          ///< "name=path"
  std::vector<std::int32_t> seqlens_q, seqlens_kv, leftpad;  ///< one for each sequence; empty: not given
  std::string page_table, sinks;                             ///< paths; empty: not given
  BlockMapOptions block_map;
  int num_splits = 0;
  int split_keys = 0;
  bool checked = false;
  float dropout_p = 0;
  std::vector<std::uint64_t> rng_state;  ///< seed and offset; empty: not given
  GradientOptions gradients;
};
void add_run_input_options(CLI::App& app, RunOptions& options);

/// The paths of all files that are read.
std::vector<std::string> input_files(const RunOptions& options);

/// Arrays in host memory; one without dimensions is not part of the call.
struct RunArrays {
  Array q, k, v, o, lse;
  NamedArrays tensors;
  Array cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, cache_leftpad, page_table, sinks, rng_state;
  Fp8Scales scales;
  Gradients gradients;
};

struct RunProblem {
  AttentionSpec spec;
  DType result_dtype = DType::fp32;  ///< of --q as given, and of o and the like
  int num_splits = 0;
  float dropout_p = 0;
  bool backward = false;
  bool deterministic = false;  ///< of gradients
  bool has_forward = false;    ///< o and lse come from an earlier forward pass
  std::optional<BlockMap> block_map = {};
  std::optional<Quantizer> quantizer = {};
  RunArrays arrays;  ///< inputs in the kernels' types; outputs are zeros
};

/// Reads all inputs. Three dimensions mean varlen sequences, four dense ones, or pages with a page table.
/// Throws BadInput, and Error for what the library refuses.
RunProblem read_problem(const RunOptions& options);

}  // namespace jit::tool
