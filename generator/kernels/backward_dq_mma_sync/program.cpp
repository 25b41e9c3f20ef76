#include "generator/kernels/backward_dq_mma_sync/family.h"
#include "generator/kernels/backward_pass.h"

namespace jit {

Program Family<BackwardDqMmaSync>::program(const AttentionSpec& spec, const BackwardDqMmaSync& config) {
  return backward_pass_program(
      {.folder = "backward_dq_mma_sync", .function = "attention_backward_dq", .gradients = "dQ"}, spec,
      config);
}

}  // namespace jit
