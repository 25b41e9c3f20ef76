#include "generator/launch/loaded_kernel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <jit/device.h>

#include "generator/context_state.h"
#include "generator/kernels/config_space_sm90.h"
#include "generator/launch/tensor_maps.h"
#include "generator/launch/work_order.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"

namespace jit {
namespace {

// Blocks along y and z of a grid (CUDA programming guide, "Technical Specifications per Compute Capability").
constexpr int max_grid_yz = 65535;

int tiles_of_queries(const LoadedKernel& kernel, const AttentionParams& params) {
  const int tile_q = kernel.image->config.tile_q;
  return (params.seqlen_q + tile_q - 1) / tile_q;
}

// A block for each tile of queries: (heads, tiles, batch).
void launch_grid(const LoadedKernel& kernel, AttentionParams& params, Stream stream) {
  const int tiles_q = tiles_of_queries(kernel, params);
  LaunchConfig config{.grid = {static_cast<unsigned>(params.heads_q), 1, 1},
                      .block = {static_cast<unsigned>(kernel.image->program.threads), 1, 1},
                      .smem_bytes = kernel.smem_bytes};
  void* arguments[] = {&params};
  for (params.batch_begin = 0; params.batch_begin < params.batch; params.batch_begin += max_grid_yz) {
    config.grid[2] = static_cast<unsigned>(std::min(params.batch - params.batch_begin, max_grid_yz));
    for (params.q_tile_begin = 0; params.q_tile_begin < tiles_q; params.q_tile_begin += max_grid_yz) {
      config.grid[1] = static_cast<unsigned>(std::min(tiles_q - params.q_tile_begin, max_grid_yz));
      launch(kernel.kernel.handle(), config, arguments, stream);
    }
  }
}

// A grid of one dimension over the list of work tiles: a block for each, or as many as fit the GPU, which
// share them out among themselves.
void launch_work_list(const LoadedKernel& kernel, AttentionParams& params, Stream stream) {
  const KernelConfig& tile = kernel.image->config;
  const std::int64_t tiles_per_entry = std::int64_t{tiles_of_queries(kernel, params)} * params.heads_q;
  const int resident = kernel.sm_count * tile.blocks_per_sm;
  int entries = static_cast<int>(std::min<std::int64_t>(params.batch, max_work_tiles / tiles_per_entry));
  if (tile.persistent && sm90::has_key_words(kernel.image->spec)) {
    const int tiles_kv = (params.seqlen_kv + tile.tile_kv - 1) / tile.tile_kv;
    entries = std::min(entries, entries_with_key_words(tiles_kv, tiles_per_entry, resident));
  }
  forward_wgmma::TensorMaps maps = encode_tensor_maps(kernel.image->spec, tile, params);
  if (tile.persistent) maps.counter = kernel.counters->counter(kernel.device, stream);
  LaunchConfig config{.block = {static_cast<unsigned>(kernel.image->program.threads), 1, 1},
                      .smem_bytes = kernel.smem_bytes,
                      .dependent = tile.dependent_launch};
  void* arguments[] = {&params, &maps};
  for (params.batch_begin = 0; params.batch_begin < params.batch; params.batch_begin += entries) {
    const int count = std::min(params.batch - params.batch_begin, entries);
    maps.order = work_order(kernel.image->spec, {.seqlen_q = params.seqlen_q,
                                                 .seqlen_kv = params.seqlen_kv,
                                                 .slices = count * params.heads_q,
                                                 .tile_q = tile.tile_q,
                                                 .l2_bytes = kernel.l2_bytes,
                                                 .in_turns = tile.persistent && maps.counter == nullptr});
    config.grid[0] =
        static_cast<unsigned>(tile.persistent ? std::min(maps.order.tiles(), resident) : maps.order.tiles());
    try {
      launch(kernel.kernel.handle(), config, arguments, stream);
    } catch (const Error&) {
      if (maps.counter != nullptr) kernel.counters->reset(kernel.device, stream);
      throw;
    }
  }
}

}  // namespace

Module load_module(ContextState& context, std::shared_ptr<const KernelImage>& image) {
  if (driver().emulated) return Module(*build_emulated_code(context, *image));
  try {
    return Module(image->cubin);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::load_failed || !image->cached || context.settings.offline) throw;
    context.notify(Event::Kind::warning,
                   fmt::format("the driver refused the cached {}; compiling it anew: {}",
                               image->program.kernel_name, error.message()));
  }
  image = rebuild_image(context, *image);
  return Module(image->cubin);
}

LoadedKernel load_kernel(ContextState& context, std::shared_ptr<const KernelImage> image, int device,
                         std::string why) {
  const CurrentDevice scope(device);
  const Module module = load_module(context, image);
  LoadedKernel loaded;
  loaded.kernel = module.kernel(image->program.kernel_name);
  loaded.kernel.set_dynamic_smem(device, image->program.smem_bytes);
  loaded.kernel.force_load(device);
  const DeviceInfo info = device_info(device);
  loaded.sm_count = info.sm_count;
  loaded.l2_bytes = info.l2_bytes;
  loaded.device = device;
  loaded.counters = &context.counters;
  loaded.smem_bytes = static_cast<unsigned>(image->program.smem_bytes);
  loaded.why = std::move(why);
  loaded.image = std::move(image);
  return loaded;
}

void launch_forward(const LoadedKernel& kernel, AttentionParams& params, Stream stream) {
  if (kernel.image->config.mainloop == Mainloop::wgmma) {
    launch_work_list(kernel, params, stream);
  } else {
    launch_grid(kernel, params, stream);
  }
}

}  // namespace jit
