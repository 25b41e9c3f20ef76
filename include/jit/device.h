/// @file
/// The devices of this process: GPUs or emulated ones. All functions are thread safe.
///
/// @code
/// jit::use_device("emulated:sm_90a");  // before the first use of a device
/// for (const jit::DeviceInfo& device : jit::devices())
///   std::printf("%s runs %s\n", device.name.c_str(), jit::to_string(jit::native_arch(device)).c_str());
/// assert(jit::emulates_devices() && jit::device_info(0).sm_count > 0);
/// const jit::CurrentDevice current(0);  // until the end of the scope
/// assert(current.ordinal() == 0 && jit::current_device() == 0);
/// for (const jit::DeviceInfo& peer : jit::devices())
///   if (jit::can_access_peer(0, peer.ordinal)) jit::enable_peer_access(0, peer.ordinal);
/// assert(jit::device_of_address(reinterpret_cast<std::uintptr_t>(q.data)) == 0);
/// @endcode
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/arch.h>

namespace jit {

/// The properties of one device. A plain value: write one by hand to generate code for an absent GPU.
struct DeviceInfo {
  int ordinal = 0;        ///< CUDA's ordinal
  std::string name = {};  ///< product name
  /// Compute capability: without suffix for a GPU, as requested for an emulated device.
  Arch arch;
  int sm_count = 0;              ///< multiprocessors
  int smem_per_block_optin = 0;  ///< bytes
  int smem_per_sm = 0;           ///< bytes
  int registers_per_sm = 0;      ///< 32-bit registers
  int l2_bytes = 0;              ///< of the L2 cache
  std::size_t memory_bytes = 0;  ///< of the device, in use or not
  int driver_version = 0;        ///< 1000 * major + 10 * minor, e.g. 13000
  std::string uuid = {};         ///< "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  bool emulated = false;         ///< whether kernels run on the CPU; their times then mean nothing
};

/// Chooses the devices of this process, instead of JIT_ATTENTION_DEVICE: "cuda" (the GPUs, the default),
/// "emulated:sm_90a", or several, as "emulated:sm_90a,sm_80". Throws Error invalid_argument for other text, and for a
/// selection that differs from the one in use.
void use_device(std::string_view selection);

/// All devices, by ordinal. Throws Error driver_unavailable when there is no driver or no GPU, unless
/// emulated devices were asked for.
std::vector<DeviceInfo> devices();

/// The device with this ordinal. Throws Error driver_unavailable, or invalid_argument when there is no such
/// ordinal.
DeviceInfo device_info(int ordinal);

/// Whether the devices of this process are emulated ones. The first use of a device decides that; later calls
/// cost a load. Throws Error driver_unavailable as devices() does.
bool emulates_devices();

/// Ordinal of the device that holds an address; nothing for memory of no device.
std::optional<int> device_of_address(std::uintptr_t address);

/// Whether kernels of a device can access the memory of another one; false for a device and itself. Throws Error
/// driver_unavailable, or driver_error when there is no such device.
bool can_access_peer(int device, int peer);

/// Enables kernels of `device` to access memory of `peer`, in this direction only. Does nothing if that is enabled.
/// Uses the contexts of CurrentDevice. Emulated devices with peers defer work until something waits for it, and then
/// report its errors, as a GPU does. Throws Error driver_unavailable; driver_error if access is impossible.
void enable_peer_access(int device, int peer);

/// Ordinal of the device whose CUDA context is current on this thread; 0 when none is current.
int current_device();

/// Makes a device current on this thread until the end of the scope: by the CUDA context that is current when
/// it belongs to the device, else by the device's primary context, the one that the CUDA runtime and PyTorch
/// use. The library never creates or resets a context. Use on one thread, nest like scopes.
class CurrentDevice {
 public:
  /// The device that is current already; where none is, device 0.
  CurrentDevice();
  /// Throws Error driver_unavailable, or driver_error when there is no such device.
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  /// Ordinal of the device that was made current.
  int ordinal() const { return ordinal_; }

 private:
  void push();

  int ordinal_ = 0;
  bool pushed_ = false;
};

/// The most capable architecture that `device` runs: sm_90a for 9.0, and so on; without suffix before 9.0; for an
/// emulated device the one that was asked for.
Arch native_arch(const DeviceInfo& device);

}  // namespace jit
