#include <cstddef>

#include <gtest/gtest.h>

#include "generator/kernels/backward_tensors/steps.h"

namespace jit {
namespace {

TEST(BackwardTensors, OnlyTensorsThatAreSummedTakeWorkspace) {
  float written = 0;
  GradientParams gradients = {};
  for (TensorGradient& tensor : gradients.tensors) {
    tensor.data = nullptr;
    for (auto& size : tensor.sizes) size = 1;
  }
  gradients.tensors[0].data = gradients.tensors[2].data = &written;
  gradients.tensors[0].sizes[0] = 1 << 20;  // of a gate: backward_output writes its gradient
  gradients.tensors[2].sizes[0] = 48;
  const std::size_t none = backward_tensors::workspace_bytes(gradients, 0);
  EXPECT_EQ(backward_tensors::workspace_bytes(gradients, 1u << 2), none + 48 * sizeof(long long));
  EXPECT_EQ(backward_tensors::workspace_bytes(gradients, 1u << 1), none);  // nobody asked for this one
  EXPECT_EQ(backward_tensors::workspace_bytes(gradients, 0b101), none + (48 + (1 << 20)) * sizeof(long long));
}

}  // namespace
}  // namespace jit
