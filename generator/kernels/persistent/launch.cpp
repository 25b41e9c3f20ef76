#include "generator/kernels/persistent/launch.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/persistent/work_order.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/tensor_maps.h"
#include "runtime/launch.h"
#include "templates/mainloop/tensor_maps.cuh"
#include "templates/split_keys/span_memory.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {
namespace {

// Batch entries per launch.
int entries_of_launch(const AttentionSpec& spec, const AttentionParams& params, const PersistentTiles& tiles,
                      int resident) {
  const std::int64_t of_entry = std::int64_t{ceil_div(params.seqlen_q, tiles.tile_q)} * params.heads_q;
  const int entries = static_cast<int>(std::min<std::int64_t>(params.batch, max_work_tiles / of_entry));
  if (key_words(spec.mask) != 1) return entries;
  return std::min(entries,
                  entries_with_key_words(ceil_div(params.seqlen_kv, tiles.tile_kv), of_entry, resident));
}

// Upper bound of work tiles if lengths are on the device.
std::int64_t most_tiles(const AttentionSpec& spec, const AttentionParams& params, int tile_q) {
  const std::int64_t total = params.sequences.total_q;
  const std::int64_t rows = spec.sequences_q == SequenceKind::varlen
                                ? total / tile_q + std::min<std::int64_t>(total, params.batch)
                                : std::int64_t{params.batch} * ceil_div(params.seqlen_q, tile_q);
  return rows * params.heads_q;
}

template <class Maps>
void launch_grid(const KernelLaunch& launch, AttentionParams& params, Maps& maps, void* more, int blocks) {
  const LoadedKernel& kernel = launch.kernel;
  const LaunchConfig grid{.grid = {static_cast<unsigned>(blocks), 1, 1},
                          .block = {kernel.threads, 1, 1},
                          .smem_bytes = kernel.smem_bytes,
                          .dependent = true};
  void* arguments[] = {&params, &maps, more};
  jit::launch(kernel.kernel.handle(), grid, arguments, launch.stream);
}

// The limit of drivers before 12.1.
static_assert(sizeof(AttentionParams) + sizeof(SequenceMaps) + sizeof(SpanMemory) <= 4096);

// Launches a kernel whose blocks compute the list of work tiles on the device.
void launch_lengths(const KernelLaunch& launch, const AttentionSpec& spec, const PersistentTiles& tiles,
                    AttentionParams params, void* more) {
  const LoadedKernel& kernel = launch.kernel;
  const std::int64_t most = most_tiles(launch.spec, launch.params, tiles.tile_q);
  if (most > max_work_tiles) {
    throw Error(
        ErrorCode::invalid_argument, "launch", "q",
        fmt::format("q: {} heads of so many queries and sequences are more than the {} tiles that its "
                    "kernel counts. Give no config, and another is chosen",
                    launch.params.heads_q, max_work_tiles));
  }
  const auto [whole, part] = map_bounded_tensors(
      spec, {.rows_q = rows_per_warpgroup, .rows_kv = box_rows(spec, tiles.tile_kv)}, params);
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
  const std::int64_t resident = std::int64_t{kernel.sm_count} * tiles.blocks_per_sm / tiles.blocks_per_tile;
  launch_grid(launch, params, maps, more,
              tiles.blocks_per_tile * static_cast<int>(std::clamp<std::int64_t>(most, 1, resident)));
}

}  // namespace

void launch_persistent(const KernelLaunch& launch, const AttentionSpec& spec, const PersistentTiles& tiles,
                       AttentionParams params, void* more) {
  if (!is_plain(launch.spec)) return launch_lengths(launch, spec, tiles, params, more);
  const LoadedKernel& kernel = launch.kernel;
  const int resident = kernel.sm_count * tiles.blocks_per_sm / tiles.blocks_per_tile;
  const int entries = entries_of_launch(launch.spec, params, tiles, resident);
  const MappedTensors mapped =
      map_tensors(spec, {.rows_q = rows_per_warpgroup, .rows_kv = tiles.tile_kv}, params);
  TensorMaps maps{.q = mapped.q, .k = mapped.k, .v = mapped.v, .o = mapped.o, .schedule = {}};
  maps.schedule.counter = launch.memory.counter();
  for (params.batch_begin = 0; params.batch_begin < params.batch; params.batch_begin += entries) {
    const int count = std::min(params.batch - params.batch_begin, entries);
    maps.schedule.order = work_order(launch.spec, {.seqlen_q = params.seqlen_q,
                                                   .seqlen_kv = params.seqlen_kv,
                                                   .slices = count * params.heads_q,
                                                   .tile_q = tiles.tile_q,
                                                   .blocks = resident,
                                                   .l2_bytes = kernel.l2_bytes});
    launch_grid(launch, params, maps, more,
                tiles.blocks_per_tile * std::min(maps.schedule.order.tiles(), resident));
  }
}

}  // namespace jit
