#include <jit/compiled_kernel.h>

namespace jit {

// Steps with tile sizes that were fastest for each on an H200 at head_dim 128 (docs/records/performance.md).
const std::vector<LadderStep>& ladder() {
  static const std::vector<LadderStep> steps = [] {
    ForwardMmaSync config{.tile_q = 128,
                          .tile_kv = 64,
                          .warps = 4,
                          .stages_k = 1,
                          .stages_v = 1,
                          .q_in_registers = false,
                          .rescale = Rescale::always,
                          .blocks_per_sm = 2};
    std::vector<LadderStep> result;
    result.push_back(
        {"v1_basic", "swizzled tiles in shared memory, ldmatrix, mma.sync, online softmax", config});
    config.stages_k = config.stages_v = 2;
    result.push_back({"v2_pipeline", "two stages of K and V", config});
    config.stages_v = 1;
    result.push_back({"v3_double_k", "two stages of K, one of V", config});
    // Parsed: no family includes another.
    result.push_back({"v4_tma", "TMA, by warps of its own: sm_120a",
                      parse_config("family=forward_mma_tma tile_q=128 tile_kv=64 stages=2")});
    return result;
  }();
  return steps;
}

}  // namespace jit
