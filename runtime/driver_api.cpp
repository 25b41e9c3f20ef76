#include "runtime/driver_api.h"

#include <jit/device.h>

#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/cuda_driver.h"
#include "runtime/device_selection.h"
#include "runtime/emulated_driver/emulated_driver.h"
#include "runtime/environment.h"

namespace jit {
namespace {

// The driver of a machine without a GPU.

/// The process-wide choice of devices, with its lock.
class Decision {
 public:
  void ask_for(DeviceSelection selection) {
    const std::lock_guard lock(mutex_);
    if (is_made_ && selection != *wanted_) {
      throw Error(
          ErrorCode::invalid_argument, "driver", "device",
          fmt::format("this process computes on {} already, and cannot change to {}: choose before the "
                      "first use of a device",
                      to_string(*wanted_), to_string(selection)));
    }
    wanted_ = std::move(selection);
  }
  DeviceSelection make() {
    const std::lock_guard lock(mutex_);
    if (!wanted_) wanted_ = parse_device_selection(device_settings_from_environment().device);
    is_made_ = true;
    return *wanted_;
  }

 private:
  std::mutex mutex_;
  std::optional<DeviceSelection> wanted_;
  bool is_made_ = false;
};

Decision& decision() {
  static Decision decision;
  return decision;
}

LoadedDriver emulate(std::vector<Arch> archs) {
  LoadedDriver loaded;
  try {
    const DeviceSettings settings = device_settings_from_environment();
    emulated_driver::start({.devices = std::move(archs),
                            .seed = settings.emulator_seed,
                            .step_limit = settings.emulator_step_limit},
                           loaded.api);
  } catch (const std::bad_alloc&) {
    loaded.failure = "there is too little address space for the memory of an emulated device";
  }
  return loaded;
}

LoadedDriver load() {
  const DeviceSelection selection = decision().make();
  if (selection.kind == DeviceSelection::Kind::emulated) return emulate(selection.emulated);
  LoadedDriver cuda = load_cuda_driver();
  // No silent fallback: a service that unknowingly computed on the CPU would be far slower.
  if (!cuda.failure.empty())
    cuda.failure += "; JIT_ATTENTION_DEVICE=emulated:sm_90a computes on an emulated GPU, slowly";
  return cuda;
}

std::string_view stage_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::load_failed:
      return "load";
    case ErrorCode::launch_failed:
      return "launch";
    default:
      return "driver";
  }
}

}  // namespace

void use_device(std::string_view selection) { decision().ask_for(parse_device_selection(selection)); }

const DriverApi& driver() {
  // Never destroyed: buffers with static storage may outlive any static object here.
  static const LoadedDriver& loaded = *new LoadedDriver(load());
  if (!loaded.failure.empty()) [[unlikely]] {
    throw Error(ErrorCode::driver_unavailable, "driver", "driver", loaded.failure);
  }
  return loaded.api;
}

void check(CUresult result, const char* call, ErrorCode code) {
  if (result == CUDA_SUCCESS) return;
  const DriverApi& api = driver();
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown CUresult";
  if (api.cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "no description";
  throw Error(ErrorDetails{.code = code,
                           .stage = std::string(stage_of(code)),
                           .message = fmt::format("{} failed: {}, {}", call, name, text),
                           .field = call,
                           .native_code = static_cast<int>(result),
                           .log = {},
                           .source = {}});
}

}  // namespace jit
