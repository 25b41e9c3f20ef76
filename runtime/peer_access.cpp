#include <jit/device.h>

#include "runtime/driver_api.h"

namespace jit {
namespace {

// Throws if the driver lacks the entry point, which only peer access needs.
template <class Entry>
Entry needed(Entry entry, const char* name) {
  if (entry == nullptr) {
    throw Error(ErrorCode::driver_unavailable, "driver", name,
                std::string("the CUDA driver lacks ") + name + ", which devices with peers need");
  }
  return entry;
}

CUdevice handle_of(int device) {
  CUdevice handle = 0;
  check(driver().cuDeviceGet(&handle, device), "cuDeviceGet");
  return handle;
}

}  // namespace

bool can_access_peer(int device, int peer) {
  const auto can_access = needed(driver().cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  int can = 0;
  check(can_access(&can, handle_of(device), handle_of(peer)), "cuDeviceCanAccessPeer");
  return can != 0;
}

void enable_peer_access(int device, int peer) {
  const auto enable = needed(driver().cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess");
  CUcontext context = nullptr;
  {
    const CurrentDevice of_peer(peer);
    check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  }
  const CurrentDevice own(device);
  const CUresult result = enable(context, 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) check(result, "cuCtxEnablePeerAccess");
}

}  // namespace jit
