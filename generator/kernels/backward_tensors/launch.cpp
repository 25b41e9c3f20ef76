#include <algorithm>
#include <bit>

#include "generator/kernels/backward_tensors/steps.h"
#include "generator/launch/sequence_grid.h"
#include "generator/problem/problem_shape.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"
#include "templates/backward_tensors/smem_layout.cuh"
#include "templates/backward_tensors/sums.cuh"

namespace jit::backward_tensors {
namespace {

constexpr std::size_t convert_blocks = 1024;

// Words before the sums: one per possible tensor, which keeps the sums aligned.
constexpr std::size_t bounds_bytes = max_functor_tensors * sizeof(unsigned);

// Number of elements of a tensor with a requested gradient, else 0.
std::size_t elements(const GradientParams& gradients, int slot, unsigned slots) {
  const TensorGradient& tensor = gradients.tensors[slot];
  if ((slots >> slot & 1) == 0 || tensor.data == nullptr) return 0;
  std::size_t count = 1;
  for (const long long size : tensor.sizes) count *= static_cast<std::size_t>(size);
  return count;
}

SequenceGrid block_grid(const KernelLaunch& launch) {
  return query_grid(launch.spec, launch.params, tile_q(launch.spec.head_dim, launch.spec.value_head_dim()));
}

TensorSums sums_in(const KernelLaunch& launch, unsigned slots) {
  const SequenceGrid blocks = block_grid(launch);
  const int warps = row_warps(launch.spec.head_dim, launch.spec.value_head_dim());
  const std::uint64_t threads =
      static_cast<std::uint64_t>(blocks.entries) * static_cast<std::uint64_t>(launch.params.heads_q) *
      static_cast<std::uint64_t>(blocks.tiles) * 32 * static_cast<std::uint64_t>(warps);
  TensorSums sums{.bounds = static_cast<unsigned*>(launch.workspace),
                  .sums = {},
                  .log2_threads = static_cast<int>(std::bit_width(threads)),
                  .measures = 0};
  auto* next = reinterpret_cast<long long*>(static_cast<std::byte*>(launch.workspace) + bounds_bytes);
  for (int slot = 0; slot < max_functor_tensors; ++slot) {
    const std::size_t count = elements(*launch.gradients, slot, slots);
    if (count == 0) continue;
    sums.sums[slot] = next;
    next += count;
  }
  return sums;
}

}  // namespace

std::size_t workspace_bytes(const GradientParams& gradients, unsigned slots) {
  std::size_t bytes = bounds_bytes;
  for (int slot = 0; slot < max_functor_tensors; ++slot)
    bytes += elements(gradients, slot, slots) * sizeof(long long);
  return bytes;
}

void launch_sum(const KernelLaunch& launch, unsigned slots) {
  AttentionParams& params = launch.params;
  TensorSums sums = sums_in(launch, slots);
  check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(launch.workspace), 0,
                                 workspace_bytes(*launch.gradients, slots), launch.stream),
        "cuMemsetD8Async");
  const SequenceGrid blocks = block_grid(launch);
  LaunchConfig grid{.grid = {static_cast<unsigned>(params.heads_q), 1, 1},
                    .block = {launch.kernel.threads, 1, 1},
                    .smem_bytes = launch.kernel.smem_bytes};
  void* arguments[] = {&params, launch.gradients, &sums};
  for (sums.measures = 1; sums.measures >= 0; --sums.measures) {
    for (params.batch_begin = 0; params.batch_begin < blocks.entries; params.batch_begin += max_grid_yz) {
      grid.grid[2] = static_cast<unsigned>(std::min(blocks.entries - params.batch_begin, max_grid_yz));
      for (params.q_tile_begin = 0; params.q_tile_begin < blocks.tiles; params.q_tile_begin += max_grid_yz) {
        grid.grid[1] = static_cast<unsigned>(std::min(blocks.tiles - params.q_tile_begin, max_grid_yz));
        jit::launch(launch.kernel.kernel.handle(), grid, arguments, launch.stream);
      }
    }
  }
}

void launch_convert(const KernelLaunch& launch, unsigned slots) {
  TensorSums sums = sums_in(launch, slots);
  std::size_t most = 0;
  for (int slot = 0; slot < max_functor_tensors; ++slot)
    most = std::max(most, elements(*launch.gradients, slot, slots));
  if (most == 0) return;
  const std::size_t blocks = (most + launch.kernel.threads - 1) / launch.kernel.threads;
  void* arguments[] = {launch.gradients, &sums};
  jit::launch(launch.kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(std::min(blocks, convert_blocks)), 1, 1},
               .block = {launch.kernel.threads, 1, 1}},
              arguments, launch.stream);
}

}  // namespace jit::backward_tensors
