// Entry points of libraries and of attributes of kernels.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/limits.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

int attribute_of(const LoadedEntry& entry, const Device& device, CUfunction_attribute attribute) {
  const emulator::Function kernel = entry.code(device);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return kernel.register_estimate();
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(kernel.local_bytes());
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(kernel.static_smem_bytes());
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return std::min(kernel.max_threads(), max_block_threads);
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return entry.dynamic_smem_limit(device);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return 10 * device.arch.major + device.arch.minor;
    default:
      fail(CUDA_ERROR_INVALID_VALUE,
           "an emulated device does not know function attribute " + std::to_string(attribute));
  }
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* handle, const void* code, CUjit_option*, void**, unsigned option_count,
                           CUlibraryOption*, void**, unsigned library_option_count) {
  return call([&] {
    require(handle, "library");
    require(code, "code");
    if (option_count != 0 || library_option_count != 0) {
      fail(CUDA_ERROR_NOT_SUPPORTED, "an emulated device loads code without options only");
    }
    machine().captures.refuse_unsafe_call("cuLibraryLoadData");
    const char* const text = static_cast<const char*>(code);
    if (std::strncmp(text, ELFMAG, SELFMAG) == 0) {
      fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "an emulated device runs PTX, and this is machine code");
    }
    *handle = machine().libraries.add(std::make_shared<Library>(text, machine()));
  });
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return call([&] {
    machine().captures.refuse_unsafe_call("cuLibraryUnload");
    const std::shared_ptr<Library> library = machine().libraries.remove(handle);
    const std::lock_guard lock(library->mutex);
    for (const auto& [name, kernel] : library->entries) machine().kernels.remove(kernel);
    library->entries.clear();
  });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  return call([&] {
    require(kernel, "pKernel");
    require(name, "name");
    const std::shared_ptr<Library> library = machine().libraries.find(handle);
    if (!library->has(name)) {
      fail(CUDA_ERROR_NOT_FOUND, "the library has no kernel named " + std::string(name));
    }
    const std::lock_guard lock(library->mutex);
    CUkernel& entry = library->entries[name];
    if (!entry) {
      entry = machine().kernels.add(std::make_shared<LoadedEntry>(library, name, machine().devices.size()));
    }
    *kernel = entry;
  });
}

// A CUfunction is the kernel's handle; the current context determines the device.
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return call([&] {
    require(function, "pFunc");
    machine().kernels.find(kernel)->code(current_context().device);
    *function = reinterpret_cast<CUfunction>(kernel);
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return call([&] {
    const std::shared_ptr<LoadedEntry> entry = find_entry(function);
    machine().captures.refuse_unsafe_call("cuFuncLoad");
    entry->library->make_variables(current_context().device);
  });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  return call([&] {
    require(value, "pi");
    *value = attribute_of(*machine().kernels.find(kernel), machine().device(device), attribute);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice ordinal) {
  return call([&] {
    const std::shared_ptr<LoadedEntry> entry = machine().kernels.find(kernel);
    const Device& device = machine().device(ordinal);
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return entry->set_dynamic_smem_limit(device, value);
      case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        return;  // a preference, or a permission that only hardware needs
      default:
        fail(CUDA_ERROR_INVALID_VALUE,
             "an emulated device cannot set function attribute " + std::to_string(attribute));
    }
  });
}

}  // namespace jit::emulated_driver
