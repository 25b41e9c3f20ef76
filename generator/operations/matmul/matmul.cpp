#include <jit/matmul.h>

#include <algorithm>
#include <array>

#include <jit/device.h>

#include "generator/operations/matmul/arguments.h"
#include "generator/operations/matmul/program.h"
#include "generator/operations/operation.h"
#include "runtime/launch.h"
#include "templates/matmul/tiles.cuh"

namespace jit {
namespace {

using matmul::ThreadTiles;
using matmul::WarpTiles;

std::shared_ptr<const OperationState> state_of(const Context& context, std::uint64_t index, bool is_sum) {
  constexpr std::uint64_t matrix_product = 6;  // unique to this operation
  const std::array<std::uint64_t, 3> words = {matrix_product, index, is_sum};
  ContextState& shared = *Access::state(context);
  const OperationState* state = find_operation(shared, words);
  if (state == nullptr)
    state = new_operation(shared, words, is_sum ? sum_splits_program() : matmul_program(index));
  return {Access::state(context), state};
}

std::int64_t tiles_of(std::int64_t count, int tile) { return (count + tile - 1) / tile; }

// Launches a step: its kernel runs on any GPU and does not wait for the previous grid, so it is not
// dependent.
void launch_grid(const OperationState& state, std::array<unsigned, 3> grid, MatmulParams& params,
                 Stream stream) {
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(state, device.ordinal(), stream);
  void* parameters[] = {&params};
  launch(
      kernel.kernel.handle(),
      {.grid = {grid[0], grid[1], grid[2]}, .block = {kernel.threads, 1, 1}, .smem_bytes = kernel.smem_bytes},
      parameters, stream);
}

}  // namespace

int matmul_splits(std::int64_t m, std::int64_t n, std::int64_t k, int sm_count) {
  constexpr std::int64_t blocks_per_sm = 2, least_tiles = 4;  // tiles of k per split
  const std::int64_t tiles = std::max<std::int64_t>(1, tiles_of(m, WarpTiles::m) * tiles_of(n, WarpTiles::n));
  const std::int64_t most = std::max<std::int64_t>(1, tiles_of(k, WarpTiles::k) / least_tiles);
  return static_cast<int>(std::clamp<std::int64_t>(blocks_per_sm * sm_count / tiles, 1, most));
}

void Matmul::operator()(const MatmulArguments& arguments, Stream stream) const {
  MatmulParams params = matmul_params(arguments, sum_ != nullptr);
  if (params.m == 0 || params.n == 0) return;
  const bool has_thread_tiles = product_->programs.every_size.threads == ThreadTiles::threads;
  const int tile_m = has_thread_tiles ? ThreadTiles::m : WarpTiles::m;
  const int tile_n = has_thread_tiles ? ThreadTiles::n : WarpTiles::n;
  launch_grid(*product_,
              {static_cast<unsigned>(tiles_of(params.n, tile_n)),
               static_cast<unsigned>(tiles_of(params.m, tile_m)), static_cast<unsigned>(params.splits)},
              params, stream);
  if (sum_ == nullptr) return;
  launch_grid(
      *sum_,
      {static_cast<unsigned>(params.m), static_cast<unsigned>(tiles_of(params.n, matmul::sum_threads)), 1},
      params, stream);
}

const std::string& Matmul::source() const { return product_->programs.every_size.source; }

ResourceUsage Matmul::resources() const { return prepared_kernel(*product_).image->resources; }

Matmul matmul_kernel(std::string_view step, const Context& context) {
  const std::size_t index = matmul_step_index(step);
  return {state_of(context, index, false), splits_k(index) ? state_of(context, index, true) : nullptr};
}

}  // namespace jit
