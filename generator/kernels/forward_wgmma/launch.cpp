#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/kernels/forward_wgmma/family.h"
#include "generator/kernels/forward_wgmma/work_order.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/kernel_launch.h"
#include "generator/launch/tensor_maps.h"
#include "runtime/launch.h"
#include "templates/forward_wgmma/smem_layout.cuh"
#include "templates/mainloop/tensor_maps.cuh"

namespace jit {
namespace {

using namespace forward_wgmma;

TensorMaps encode_maps(const AttentionSpec& spec, const ForwardWgmma& config, const AttentionParams& params) {
  const MappedTensors maps =
      map_tensors(spec, {.rows_q = rows_per_warpgroup, .rows_kv = config.tile_kv}, params);
  return {.q = maps.q, .k = maps.k, .v = maps.v, .o = maps.o, .schedule = {}};
}

// Batch entries that one launch takes.
int entries_of_launch(const KernelLaunch& launch, const ForwardWgmma& config, int resident) {
  const AttentionParams& params = launch.params;
  const std::int64_t tiles = std::int64_t{ceil_div(params.seqlen_q, config.tile_q)} * params.heads_q;
  const int entries = static_cast<int>(std::min<std::int64_t>(params.batch, max_work_tiles / tiles));
  if (!has_key_words(launch.spec)) return entries;
  return std::min(entries,
                  entries_with_key_words(ceil_div(params.seqlen_kv, config.tile_kv), tiles, resident));
}

// Work tiles of sequences whose lengths only the device knows, at most.
std::int64_t most_tiles(const AttentionSpec& spec, const ForwardWgmma& config,
                        const AttentionParams& params) {
  const std::int64_t total = params.sequences.total_q;
  const std::int64_t rows = spec.sequences_q == SequenceKind::varlen
                                ? total / config.tile_q + std::min<std::int64_t>(total, params.batch)
                                : std::int64_t{params.batch} * ceil_div(params.seqlen_q, config.tile_q);
  return rows * params.heads_q;
}

template <class Maps>
void launch_grid(const KernelLaunch& launch, AttentionParams& params, Maps& maps, int blocks) {
  const LoadedKernel& kernel = launch.kernel;
  const LaunchConfig grid{.grid = {static_cast<unsigned>(blocks), 1, 1},
                          .block = {kernel.threads, 1, 1},
                          .smem_bytes = kernel.smem_bytes,
                          .dependent = true};
  void* arguments[] = {&params, &maps};
  jit::launch(kernel.kernel.handle(), grid, arguments, launch.stream);
}

// Drivers before 12.1 take at most this much.
static_assert(sizeof(AttentionParams) + sizeof(SequenceMaps) <= 4096);

// The kernel's parameters. Launches the kernel ahead of it that upcasts keys or computes the dropout mask, if there is
// one.
AttentionParams params_behind_kernel_ahead(const KernelLaunch& launch, const ForwardWgmma& config) {
  if (config.upcast_ahead) return launch_upcast_keys(launch);
  if (config.dropout_mask_ahead)
    return launch_dropout_mask(launch, dropout_mask_tiles(config), launch.workspace);
  return launch.params;
}

// Blocks find the list of work tiles on the device.
void launch_lengths(const KernelLaunch& launch, const ForwardWgmma& config) {
  const LoadedKernel& kernel = launch.kernel;
  const std::int64_t tiles = most_tiles(launch.spec, config, launch.params);
  if (tiles > max_work_tiles) {
    throw Error(
        ErrorCode::invalid_argument, "launch", "q",
        fmt::format("q: {} heads of so many queries and sequences are more than the {} tiles that its "
                    "kernel counts. Give no config, and another is chosen",
                    launch.params.heads_q, max_work_tiles));
  }
  AttentionParams params = params_behind_kernel_ahead(launch, config);
  const auto map_tensors_of = [&](const AttentionSpec& spec) {
    return map_bounded_tensors(
        spec, {.rows_q = rows_per_warpgroup, .rows_kv = box_rows(spec, config.tile_kv)}, params);
  };
  const auto [whole, part] =
      config.upcast_ahead ? map_tensors_of(upcast_spec(launch.spec)) : map_tensors_of(launch.spec);
  SequenceMaps maps{{.q = whole.q,
                     .k = whole.k,
                     .v = whole.v,
                     .o = whole.o,
                     .schedule = {.counter = launch.memory.counter(),
                                  .order = {},
                                  .section_keys = section_keys(launch.spec, kernel.l2_bytes)}},
                    part.q,
                    part.k,
                    part.v,
                    part.o};
  const std::int64_t resident = std::int64_t{kernel.sm_count} * config.blocks_per_sm;
  const int blocks = static_cast<int>(std::clamp<std::int64_t>(tiles, 1, resident));
  launch_grid(launch, params, maps, blocks);
}

}  // namespace

// A grid of one dimension over the list of work tiles: as many blocks as fit the GPU share them out among themselves.
void Family<ForwardWgmma>::launch(const KernelLaunch& launch, const ForwardWgmma& config) {
  if (!is_plain(launch.spec)) return launch_lengths(launch, config);
  const LoadedKernel& kernel = launch.kernel;
  const int resident = kernel.sm_count * config.blocks_per_sm;
  const int entries = entries_of_launch(launch, config, resident);
  AttentionParams params = params_behind_kernel_ahead(launch, config);
  TensorMaps maps = encode_maps(launch.spec, config, params);
  maps.schedule.counter = launch.memory.counter();
  for (params.batch_begin = 0; params.batch_begin < params.batch; params.batch_begin += entries) {
    const int count = std::min(params.batch - params.batch_begin, entries);
    maps.schedule.order = work_order(launch.spec, {.seqlen_q = params.seqlen_q,
                                                   .seqlen_kv = params.seqlen_kv,
                                                   .slices = count * params.heads_q,
                                                   .tile_q = config.tile_q,
                                                   .blocks = resident,
                                                   .l2_bytes = kernel.l2_bytes});
    launch_grid(launch, params, maps, std::min(maps.schedule.order.tiles(), resident));
  }
}

}  // namespace jit
