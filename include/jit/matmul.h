/// @file
/// A matrix product in steps: the ladder that docs/tutorial/ climbs from tiles in shared memory to split-K, and on to
/// attention. Each step adds one technique to the one before. For learning and for measuring: cuBLAS is faster.
///
/// @code
/// const jit::Matmul product = jit::matmul_kernel("cp_async");
/// const jit::TensorView a = allocate(jit::DType::bf16, {256, 64});  // m, k
/// const jit::TensorView b = allocate(jit::DType::bf16, {128, 64});  // n, k
/// const jit::TensorView c = allocate(jit::DType::bf16, {256, 128});
/// product({.a = a, .b = b, .c = c}, stream);
/// assert(product.source().find("#include") != std::string::npos && product.resources().spill_bytes() == 0);
/// for (const jit::MatmulStep& step : jit::matmul_ladder()) std::puts(step.technique.c_str());
/// assert(jit::matmul_splits(256, 128, 65536, 132) > 1);  // few tiles of C: the blocks share k
/// @endcode
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/resource_usage.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// One step of the ladder.
struct MatmulStep {
  std::string name;       ///< "cp_async"
  std::string technique;  ///< "cp.async in three stages"
};
/// All steps, the first one first.
const std::vector<MatmulStep>& matmul_ladder();

/// The tensors of C = A Bᵀ, summed in fp32. Any sizes up to 2^20; rows begin at multiples of 16 bytes.
struct MatmulArguments {
  TensorView a;  ///< bf16 (m, k)
  TensorView b;  ///< bf16 (n, k)
  TensorView c;  ///< bf16 (m, n), written
  /// fp32 (splits, m, n), dense, written: the sums of each split. Required by step "split_k", and only there.
  TensorView partial_sums = {};
};

/// Shares of k by which the blocks of "split_k" fill a device of `sm_count` multiprocessors: 1 where C alone has enough
/// tiles.
int matmul_splits(std::int64_t m, std::int64_t n, std::int64_t k, int sm_count);

struct OperationState;

/// A step's kernels on every GPU. Cheap to copy; thread safe.
class Matmul {
 public:
  /// Multiplies on `stream`, on the device of the current context. The first call on a device loads the kernels there;
  /// later calls only launch. Equal inputs give bitwise identical results. Throws Error invalid_argument, naming the
  /// argument, before anything is launched; launch_failed.
  void operator()(const MatmulArguments& arguments, Stream stream = nullptr) const;

  /// The generated program; it includes the step's template.
  const std::string& source() const;
  /// The assembler's report of the kernel on the current device: registers, spills. Throws what compiling throws.
  ResourceUsage resources() const;

 private:
  friend Matmul matmul_kernel(std::string_view step, const Context& context);
  Matmul(std::shared_ptr<const OperationState> product, std::shared_ptr<const OperationState> sum)
      : product_(std::move(product)), sum_(std::move(sum)) {}

  std::shared_ptr<const OperationState> product_;
  std::shared_ptr<const OperationState> sum_;  // of the shares; null but for split-K
};

/// The kernels of the step of this name, compiled or taken from the cache, and loaded on the current device. Throws Error
/// invalid_argument for a name that no step has; unsupported_device, compile_failed, nvrtc_unavailable,
/// driver_unavailable, load_failed, offline.
Matmul matmul_kernel(std::string_view step, const Context& context = default_context());

}  // namespace jit
