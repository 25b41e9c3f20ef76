// Entry points that query devices.
#include <algorithm>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/limits.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

int attribute_of(const Device& device, CUdevice_attribute attribute) {
  const DeviceProperties& properties = device.properties;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return device.arch.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return device.arch.minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return properties.sm_count;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return max_block_threads;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return max_block_z;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return max_grid_x;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return max_grid_yz;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return properties.threads_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return properties.blocks_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return default_smem_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return properties.smem_per_block_optin;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return properties.smem_per_sm;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return reserved_smem_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return properties.registers_per_sm;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return properties.l2_bytes;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      return device.arch.major >= 9;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return 1;
    default:
      fail(CUDA_ERROR_INVALID_VALUE,
           "an emulated device does not know device attribute " + std::to_string(attribute));
  }
}

}  // namespace

CUresult cuInit(unsigned flags) {
  return call([&] {
    if (flags != 0) fail(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
  });
}

CUresult cuDeviceGetCount(int* count) {
  return call([&] {
    require(count, "count");
    *count = static_cast<int>(machine().devices.size());
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call([&] {
    require(device, "device");
    *device = machine().device(ordinal).ordinal;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return call([&] {
    require(name, "name");
    if (length <= 0) fail(CUDA_ERROR_INVALID_VALUE, "len must be above 0");
    const std::string text = machine().device(device).name();
    const std::size_t count = std::min(text.size(), static_cast<std::size_t>(length) - 1);
    std::copy_n(text.data(), count, name);
    name[count] = 0;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return call([&] {
    require(uuid, "uuid");
    *uuid = machine().device(device).uuid();
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call([&] {
    require(value, "pi");
    *value = attribute_of(machine().device(device), attribute);
  });
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  return call([&] {
    require(bytes, "bytes");
    *bytes = machine().device(device).memory.capacity();
  });
}

}  // namespace jit::emulated_driver
