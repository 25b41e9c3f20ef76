#include "generator/launch/loaded_kernel.h"

#include <utility>

#include <fmt/format.h>

#include <jit/device.h>

#include "generator/build/kernel_store.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

Module module_of(const KernelImage& image) {
  if (image.target.form == CodeForm::cubin) return Module(image.code);
  return Module(std::string(reinterpret_cast<const char*>(image.code.data()), image.code.size()));
}

}  // namespace

Module load_module(KernelStore& store, std::shared_ptr<const KernelImage>& image) {
  try {
    return module_of(*image);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::load_failed || !image->cached || store.settings.offline) throw;
    store.notify(Event::Kind::warning, fmt::format("the driver refused the cached {}; compiling it anew: {}",
                                                   image->program.name, error.message()));
  }
  image = rebuild_image(store, *image);
  return module_of(*image);
}

LoadedKernel load_kernel(KernelStore& store, std::shared_ptr<const KernelImage> image, int device) {
  const CurrentDevice scope(device);
  const Module module = load_module(store, image);
  LoadedKernel loaded;
  loaded.kernel = module.kernel(image->program.name);
  loaded.kernel.set_dynamic_smem(device, image->program.smem_bytes);
  if (image->program.cluster > portable_cluster) loaded.kernel.allow_large_cluster(device);
  loaded.kernel.force_load(device);
  if (!image->program.ahead.empty()) {
    loaded.ahead = module.kernel(image->program.ahead);
    loaded.ahead.force_load(device);
  }
  const DeviceInfo info = device_info(device);
  loaded.sm_count = info.sm_count;
  loaded.l2_bytes = info.l2_bytes;
  loaded.device = device;
  loaded.threads = static_cast<unsigned>(image->program.threads);
  loaded.smem_bytes = static_cast<unsigned>(image->program.smem_bytes);
  const int threads = image->program.threads, cluster = image->program.cluster;
  const auto smem_bytes = static_cast<std::size_t>(image->program.smem_bytes);
  loaded.resident_blocks =
      cluster > 1 ? cluster * loaded.kernel.resident_clusters(device, cluster, threads, smem_bytes)
                  : info.sm_count * loaded.kernel.blocks_per_sm(device, threads, smem_bytes);
  loaded.image = std::move(image);
  return loaded;
}

}  // namespace jit
