#include "generator/loaded_kernel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "generator/context_state.h"
#include "runtime/context.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"

namespace jit {
namespace {

// Blocks along y and z of a grid (CUDA programming guide, "Technical Specifications per Compute Capability").
constexpr int max_grid_yz = 65535;

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
  const CurrentContext scope(device);
  const Module module = load_module(context, image);
  LoadedKernel loaded;
  loaded.kernel = module.kernel(image->program.kernel_name);
  loaded.kernel.set_dynamic_smem(device, image->program.smem_bytes);
  loaded.kernel.force_load(device);
  loaded.tile_q = image->config.tile_q;
  loaded.threads = static_cast<unsigned>(image->program.threads);
  loaded.smem_bytes = static_cast<unsigned>(image->program.smem_bytes);
  loaded.why = std::move(why);
  loaded.image = std::move(image);
  return loaded;
}

void launch_forward(const LoadedKernel& kernel, AttentionParams& params, Stream stream) {
  const int tiles_q = (params.seqlen_q + kernel.tile_q - 1) / kernel.tile_q;
  LaunchConfig config{.grid = {static_cast<unsigned>(params.heads_q), 1, 1},
                      .block = {kernel.threads, 1, 1},
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

}  // namespace jit
