#include <jit/device.h>

#include <map>
#include <mutex>

#include "runtime/driver_api.h"

namespace jit {
namespace {

// The primary context, retained once per device and never released: releasing the last reference would
// destroy the context and all its memory. The map is never destroyed, because buffers with static storage may
// outlive any static object here.
CUcontext primary_context(int device) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, CUcontext>& retained = *new std::map<int, CUcontext>;
  const std::lock_guard lock(mutex);
  CUcontext& context = retained[device];
  if (!context) {
    CUdevice handle = 0;
    check(driver().cuDeviceGet(&handle, device), "cuDeviceGet");
    check(driver().cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
  }
  return context;
}

// The current context's device, or -1.
int device_of_current_context() {
  CUcontext current = nullptr;
  check(driver().cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (!current) return -1;
  CUdevice device = 0;
  check(driver().cuCtxGetDevice(&device), "cuCtxGetDevice");
  return device;
}

}  // namespace

int current_device() {
  const int device = device_of_current_context();
  return device < 0 ? 0 : device;
}

CurrentDevice::CurrentDevice() : ordinal_(device_of_current_context()) {
  if (ordinal_ >= 0) return;
  ordinal_ = 0;
  push();
}

CurrentDevice::CurrentDevice(int ordinal) : ordinal_(ordinal) {
  if (device_of_current_context() != ordinal) push();
}

void CurrentDevice::push() {
  check(driver().cuCtxPushCurrent(primary_context(ordinal_)), "cuCtxPushCurrent");
  pushed_ = true;
}

CurrentDevice::~CurrentDevice() {
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

}  // namespace jit
