#include <jit/device.h>
#include <jit/error.h>

#include <algorithm>

#include <fmt/format.h>

#include "runtime/driver_api.h"
#include "runtime/emulated_driver/emulated_driver.h"

namespace jit {
namespace {

int device_count() {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

std::string format_uuid(const CUuuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

DeviceInfo query(int ordinal) {
  const DriverApi& api = driver();
  CUdevice device = 0;
  check(api.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check(api.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  DeviceInfo info;
  info.ordinal = ordinal;
  char name[256] = {};
  check(api.cuDeviceGetName(name, sizeof(name) - 1, device), "cuDeviceGetName");
  info.name = name;
  info.arch = {attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
               attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)};
  info.emulated = api.emulated;
  if (info.emulated) info.arch = emulated_driver::arch_of_device(ordinal);
  info.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.smem_per_block_optin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.smem_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  info.registers_per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  info.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  check(api.cuDeviceTotalMem(&info.memory_bytes, device), "cuDeviceTotalMem");
  info.driver_version = api.version;
  CUuuid uuid{};
  check(api.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
  info.uuid = format_uuid(uuid);
  return info;
}

}  // namespace

std::vector<DeviceInfo> devices() {
  const int count = device_count();
  std::vector<DeviceInfo> infos;
  for (int ordinal = 0; ordinal < count; ++ordinal) infos.push_back(query(ordinal));
  return infos;
}

DeviceInfo device_info(int ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    throw Error(ErrorCode::invalid_argument, "driver", "device",
                fmt::format("there is no device {}; ordinals go from 0 to {}", ordinal, count - 1));
  }
  return query(ordinal);
}

bool emulates_devices() { return driver().emulated; }

std::optional<int> device_of_address(std::uintptr_t address) {
  int ordinal = 0;
  if (driver().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS)
    return {};
  return ordinal;
}

Arch native_arch(const DeviceInfo& device) {
  if (device.emulated) return device.arch;
  const Arch plain{device.arch.major, device.arch.minor};
  const Arch own{plain.major, plain.minor, 'a'};
  const std::vector<Arch>& archs = known_archs();
  if (std::find(archs.begin(), archs.end(), own) != archs.end()) return own;
  // A later member of a known family runs code of an earlier one.
  const auto latest =
      std::find_if(archs.rbegin(), archs.rend(), [&](Arch arch) { return runs_on(arch, plain); });
  return latest != archs.rend() ? *latest : plain;
}

}  // namespace jit
