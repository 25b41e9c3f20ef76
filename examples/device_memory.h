// GPU memory through the CUDA driver, so that the example needs no CUDA toolkit. Programs of yours have their
// memory from cudaMalloc or from a framework.
#pragma once

#include <dlfcn.h>
#include <cstddef>
#include <stdexcept>
#include <vector>

class Driver {
 public:
  /// Makes the first GPU current. Throws std::runtime_error where there is no driver or no GPU.
  Driver() {
    void* context = nullptr;
    int device = 0;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
  }

  /// The values in GPU memory, which stays allocated until the program ends.
  template <class T>
  void* upload(const std::vector<T>& values) const {
    unsigned long long address = 0;
    const std::size_t bytes = values.size() * sizeof(T);
    call("cuMemAlloc_v2", &address, bytes);
    call("cuMemcpyHtoD_v2", address, values.data(), bytes);
    return reinterpret_cast<void*>(address);
  }

  /// Waits for what was launched before, then reads `values.size()` values.
  template <class T>
  void download(const void* address, std::vector<T>& values) const {
    call("cuMemcpyDtoH_v2", values.data(), reinterpret_cast<unsigned long long>(address),
         values.size() * sizeof(T));
  }

 private:
  template <class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    void* function = library_ ? dlsym(library_, name) : nullptr;
    if (!function) throw std::runtime_error("no CUDA driver");
    if (reinterpret_cast<int (*)(Arguments...)>(function)(arguments...) != 0) throw std::runtime_error(name);
  }

  void* library_ = dlopen("libcuda.so.1", RTLD_NOW);
};
