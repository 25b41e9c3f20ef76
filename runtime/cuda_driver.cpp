#include "runtime/cuda_driver.h"

#include <dlfcn.h>

#include <type_traits>

#include <fmt/format.h>

namespace jit {
namespace {

std::string load_entries(DriverApi& api, PFN_cuGetProcAddress_v12000 get_proc_address) {
  std::string missing;
  const auto load_entry = [&](const char* name, int since, auto& entry) {
    if (since > api.version) return;
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    if (get_proc_address(name, &address, since, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS ||
        !address) {
      missing += std::string(missing.empty() ? "" : ", ") + name;
      return;
    }
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(address);
  };
#define JIT_DRIVER_LOAD(function, since) load_entry(#function, since, api.function);
  JIT_DRIVER_ENTRIES(JIT_DRIVER_LOAD)
  const std::string needed = missing;
  JIT_PEER_ENTRIES(JIT_DRIVER_LOAD)
#undef JIT_DRIVER_LOAD
  return needed;
}

std::string describe_init_failure(CUresult result) {
  switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
      return "libcuda.so.1 is the CUDA toolkit's stub, not a driver; install the NVIDIA driver or take the "
             "stub off the library path";
    case CUDA_ERROR_NO_DEVICE:
      return "the CUDA driver finds no GPU (is CUDA_VISIBLE_DEVICES set?)";
    default:
      return fmt::format("the CUDA driver does not start: cuInit returned {}", static_cast<int>(result));
  }
}

}  // namespace

// Loads the driver and never closes it: its code and contexts live as long as the process.
LoadedDriver load_cuda_driver() {
  LoadedDriver loaded;
  DriverApi& api = loaded.api;
  // "libcuda.so" is the toolkit's stub; ".so.1" is the driver.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    loaded.failure =
        fmt::format("there is no CUDA driver: {}", reason ? reason : "libcuda.so.1 cannot be opened");
    return loaded;
  }
  const auto get_version =
      reinterpret_cast<PFN_cuDriverGetVersion_v2020>(dlsym(library, "cuDriverGetVersion"));
  const auto init = reinterpret_cast<PFN_cuInit_v2000>(dlsym(library, "cuInit"));
  const auto get_proc_address =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (!get_version || !init) {
    loaded.failure = "libcuda.so.1 is not a CUDA driver: it lacks cuInit or cuDriverGetVersion";
    return loaded;
  }
  if (const CUresult result = init(0); result != CUDA_SUCCESS) {
    loaded.failure = describe_init_failure(result);
    return loaded;
  }
  if (get_version(&api.version) != CUDA_SUCCESS || api.version < oldest_driver_version || !get_proc_address) {
    loaded.failure =
        fmt::format("the CUDA driver is too old: it supports CUDA {}.{}, 12.0 is the oldest that works",
                    api.version / 1000, api.version % 1000 / 10);
    return loaded;
  }
  if (const std::string missing = load_entries(api, get_proc_address); !missing.empty()) {
    loaded.failure = fmt::format("the CUDA driver lacks entry points: {}", missing);
    return loaded;
  }
  int count = 0;
  if (api.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
    loaded.failure = "the CUDA driver finds no GPU";
  }
  return loaded;
}

}  // namespace jit
