#include "runtime/module.h"

#include <elf.h>

#include <cstring>
#include <mutex>

#include <jit/device.h>

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {

struct LoadedLibrary {
  CUlibrary handle = nullptr;
  mutable std::mutex attributes;  // the driver does not serialize concurrent setters of an attribute

  LoadedLibrary() = default;
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;
  // At process exit the driver may already be shut down (CUDA_ERROR_DEINITIALIZED), its code unloaded.
  ~LoadedLibrary() {
    if (handle) driver().cuLibraryUnload(handle);
  }
};

namespace {

// Whether the image is complete: the driver gets no size, so it would read past the end of a truncated one.
bool is_whole_elf(std::span<const std::byte> image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof(header)) return false;
  std::memcpy(&header, image.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  const auto fits = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset <= image.size() && bytes <= image.size() - offset;
  };
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  if (!fits(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) return false;
  if (!fits(header.e_phoff, std::uint64_t{header.e_phnum} * header.e_phentsize)) return false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type != SHT_NOBITS && !fits(section.sh_offset, section.sh_size)) return false;
  }
  return true;
}

// Loads `image`, a complete ELF image or zero-terminated text.
std::shared_ptr<const LoadedLibrary> load(const void* image) {
  const RelaxedCapture relaxed;
  auto library = std::make_shared<LoadedLibrary>();
  check(driver().cuLibraryLoadData(&library->handle, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData", ErrorCode::load_failed);
  return library;
}

}  // namespace

Module::Module(std::span<const std::byte> cubin) {
  driver();
  if (!is_whole_elf(cubin)) {
    throw Error(ErrorCode::load_failed, "load", "cubin", "the cubin is not a whole ELF image");
  }
  loaded_ = load(cubin.data());
}

Module::Module(const std::string& ptx) : loaded_(load(ptx.c_str())) {}

Kernel Module::kernel(const std::string& name) const {
  Kernel kernel;
  kernel.loaded_ = loaded_;
  kernel.name_ = name;
  check(driver().cuLibraryGetKernel(&kernel.handle_, loaded_->handle, name.c_str()), "cuLibraryGetKernel",
        ErrorCode::load_failed);
  return kernel;
}

void Kernel::set_dynamic_smem(int device, int bytes) const {
  const std::lock_guard lock(loaded_->attributes);
  check(
      driver().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, handle_, device),
      "cuKernelSetAttribute", ErrorCode::load_failed);
}

void Kernel::allow_large_cluster(int device) const {
  const std::lock_guard lock(loaded_->attributes);
  check(
      driver().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, handle_, device),
      "cuKernelSetAttribute", ErrorCode::load_failed);
}

void Kernel::force_load(int device) const {
  const DriverApi& api = driver();
  const RelaxedCapture relaxed;
  const CurrentDevice context(device);
  CUfunction function = nullptr;
  check(api.cuKernelGetFunction(&function, handle_), "cuKernelGetFunction", ErrorCode::load_failed);
  // Absent before CUDA 12.4, where cuKernelGetFunction loads the code.
  if (api.cuFuncLoad) check(api.cuFuncLoad(function), "cuFuncLoad", ErrorCode::load_failed);
}

KernelFacts Kernel::facts(int device) const {
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    check(driver().cuKernelGetAttribute(&value, which, handle_, device), "cuKernelGetAttribute");
    return value;
  };
  return {.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS),
          .local_bytes = attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
          .static_smem_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
          .max_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)};
}

int Kernel::blocks_per_sm(int device, int block_threads, std::size_t dynamic_smem_bytes) const {
  const CurrentDevice context(device);
  int blocks = 0;
  check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<CUfunction>(handle_),
                                                             block_threads, dynamic_smem_bytes),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks;
}

int Kernel::resident_clusters(int device, int cluster, int block_threads,
                              std::size_t dynamic_smem_bytes) const {
  const CurrentDevice context(device);
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(cluster);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(block_threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(dynamic_smem_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(driver().cuOccupancyMaxActiveClusters(&clusters, reinterpret_cast<CUfunction>(handle_), &config),
        "cuOccupancyMaxActiveClusters");
  return clusters;
}

}  // namespace jit
