// Names that the examples of the public headers use without declaring them: docs/reference/cpp.md lists these names.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <jit/append.h>
#include <jit/arch.h>
#include <jit/attention.h>
#include <jit/bits.h>
#include <jit/block_mask.h>
#include <jit/cache.h>
#include <jit/choose_keys.h>
#include <jit/compiled_kernel.h>
#include <jit/context.h>
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/dlpack.h>
#include <jit/dtype.h>
#include <jit/emulation.h>
#include <jit/error.h>
#include <jit/exchange_merge.h>
#include <jit/float16.h>
#include <jit/functor_file.h>
#include <jit/host_tensor.h>
#include <jit/index_loss.h>
#include <jit/kernel_config.h>
#include <jit/key_exchange.h>
#include <jit/key_mass.h>
#include <jit/key_union.h>
#include <jit/list_gradients.h>
#include <jit/list_mass.h>
#include <jit/mask.h>
#include <jit/matmul.h>
#include <jit/merge.h>
#include <jit/output_file.h>
#include <jit/outputs.h>
#include <jit/pack.h>
#include <jit/placement.h>
#include <jit/quantize.h>
#include <jit/score.h>
#include <jit/score_blocks.h>
#include <jit/score_keys.h>
#include <jit/settings.h>
#include <jit/spec.h>
#include <jit/spec_table.h>
#include <jit/stream.h>
#include <jit/tensor.h>
#include <jit/tile_map.h>
#include <jit/time_work.h>
#include <jit/timing.h>
#include <jit/top_k.h>
#include <jit/transpose_lists.h>
#include <jit/tuning.h>
#include <jit/workload.h>
#include <jit/xla.h>

#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/shared_cache.h"

#undef assert
#define assert(...) EXPECT_TRUE((__VA_ARGS__))

class HeaderExample : public testing::Test {
 protected:
  HeaderExample() { jit::default_context() = jit::Context(jit::testing::shared_cache_settings()); }

  /// A new tensor of zeros on the device.
  jit::TensorView allocate(jit::DType dtype, std::initializer_list<std::int64_t> shape) {
    std::size_t bytes = jit::size_of(dtype);
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    memory_.emplace_back(0, bytes).fill(0, nullptr);
    return jit::TensorView::dense(memory_.back().data(), dtype, shape);
  }

  /// A new tensor on the device with these elements.
  jit::TensorView int32_tensor(std::initializer_list<std::int32_t> elements) {
    const jit::TensorView tensor = allocate(jit::DType::int32, {static_cast<std::int64_t>(elements.size())});
    memory_.back().upload(elements.begin(), elements.size() * sizeof(std::int32_t));
    return tensor;
  }

  static void run(const std::function<void()>& example) { example(); }

 private:
  std::vector<jit::DeviceBuffer> memory_;
  jit::testing::FreshFolder folder_;

 protected:
  jit::TensorView q = allocate(jit::DType::bf16, {1, 64, 4, 128});
  jit::TensorView k = allocate(jit::DType::bf16, {1, 64, 4, 128}),
                  v = allocate(jit::DType::bf16, {1, 64, 4, 128});
  jit::TensorView o = allocate(jit::DType::bf16, {1, 64, 4, 128}),
                  d_o = allocate(jit::DType::bf16, {1, 64, 4, 128});
  jit::TensorView dq = allocate(jit::DType::bf16, {1, 64, 4, 128});
  jit::TensorView dk = allocate(jit::DType::bf16, {1, 64, 4, 128}),
                  dv = allocate(jit::DType::bf16, {1, 64, 4, 128});
  jit::TensorView lse = allocate(jit::DType::fp32, {1, 4, 64});
  jit::Stream stream = nullptr;
  std::string folder = folder_.path();
};

/// Examples that begin with "On a GPU": emulated devices refuse them.
class HeaderExampleOfGpus : public HeaderExample {
 protected:
  static void run(const std::function<void()>& example) {
    if (!jit::emulates_devices()) return example();
    EXPECT_EQ(jit::testing::error_of(example).code(), jit::ErrorCode::unsupported_device);
  }
};
