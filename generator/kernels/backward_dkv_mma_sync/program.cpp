#include "generator/kernels/backward_dkv_mma_sync/family.h"
#include "generator/kernels/backward_pass.h"

namespace jit {

Program Family<BackwardDkvMmaSync>::program(const AttentionSpec& spec, const BackwardDkvMmaSync& config) {
  return backward_pass_program(
      {.folder = "backward_dkv_mma_sync", .function = "attention_backward_dkv", .gradients = "dK and dV"},
      spec, config);
}

}  // namespace jit
