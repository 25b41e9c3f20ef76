// The device interface: a table of the CUDA driver's entry points, filled by this machine's driver, which is
// opened at run time, or by the emulated one (runtime/emulated_driver). One list names every entry point in
// use and the CUDA version of its signature, so that neither newer drivers nor newer headers change an ABI.
#pragma once

#include <string>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <jit/error.h>

namespace jit {

/// The oldest supported driver: CUDA 12.0, the first one with CUlibrary.
inline constexpr int oldest_driver_version = 12000;

// ENTRY(function, version of the signature). Entries newer than 12.0 are null in older drivers.
#define JIT_DRIVER_ENTRIES(ENTRY)                          \
  ENTRY(cuInit, 2000)                                      \
  ENTRY(cuGetErrorName, 6000)                              \
  ENTRY(cuGetErrorString, 6000)                            \
  ENTRY(cuDeviceGetCount, 2000)                            \
  ENTRY(cuDeviceGet, 2000)                                 \
  ENTRY(cuDeviceGetName, 2000)                             \
  ENTRY(cuDeviceGetUuid, 11040)                            \
  ENTRY(cuDeviceGetAttribute, 2000)                        \
  ENTRY(cuDeviceTotalMem, 3020)                            \
  ENTRY(cuDevicePrimaryCtxRetain, 7000)                    \
  ENTRY(cuCtxGetCurrent, 4000)                             \
  ENTRY(cuCtxGetDevice, 2000)                              \
  ENTRY(cuCtxPushCurrent, 4000)                            \
  ENTRY(cuCtxPopCurrent, 4000)                             \
  ENTRY(cuCtxSynchronize, 2000)                            \
  ENTRY(cuLibraryLoadData, 12000)                          \
  ENTRY(cuLibraryUnload, 12000)                            \
  ENTRY(cuLibraryGetKernel, 12000)                         \
  ENTRY(cuKernelGetFunction, 12000)                        \
  ENTRY(cuKernelGetAttribute, 12000)                       \
  ENTRY(cuKernelSetAttribute, 12000)                       \
  ENTRY(cuFuncLoad, 12040)                                 \
  ENTRY(cuLaunchKernelEx, 11060)                           \
  ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  ENTRY(cuOccupancyMaxActiveClusters, 11070)               \
  ENTRY(cuMemGetInfo, 3020)                                \
  ENTRY(cuMemAlloc, 3020)                                  \
  ENTRY(cuMemFree, 3020)                                   \
  ENTRY(cuMemcpyHtoD, 3020)                                \
  ENTRY(cuMemcpyDtoH, 3020)                                \
  ENTRY(cuMemcpyDtoD, 3020)                                \
  ENTRY(cuMemcpyHtoDAsync, 3020)                           \
  ENTRY(cuMemcpyDtoHAsync, 3020)                           \
  ENTRY(cuMemcpyDtoDAsync, 3020)                           \
  ENTRY(cuMemsetD8, 3020)                                  \
  ENTRY(cuMemsetD32, 3020)                                 \
  ENTRY(cuMemsetD8Async, 3020)                             \
  ENTRY(cuMemsetD32Async, 3020)                            \
  ENTRY(cuPointerGetAttribute, 4000)                       \
  ENTRY(cuTensorMapEncodeTiled, 12000)                     \
  ENTRY(cuStreamCreate, 2000)                              \
  ENTRY(cuStreamDestroy, 4000)                             \
  ENTRY(cuStreamSynchronize, 2000)                         \
  ENTRY(cuStreamWaitEvent, 3020)                           \
  ENTRY(cuStreamGetCtx, 9020)                              \
  ENTRY(cuStreamGetId, 12000)                              \
  ENTRY(cuStreamIsCapturing, 10000)                        \
  ENTRY(cuStreamGetCaptureInfo, 11030)                     \
  ENTRY(cuStreamBeginCapture, 10010)                       \
  ENTRY(cuStreamEndCapture, 10000)                         \
  ENTRY(cuThreadExchangeStreamCaptureMode, 10010)          \
  ENTRY(cuGraphInstantiateWithFlags, 11040)                \
  ENTRY(cuGraphLaunch, 10000)                              \
  ENTRY(cuGraphExecDestroy, 10000)                         \
  ENTRY(cuGraphDestroy, 10000)                             \
  ENTRY(cuGraphRetainUserObject, 11030)                    \
  ENTRY(cuUserObjectCreate, 11030)                         \
  ENTRY(cuUserObjectRelease, 11030)                        \
  ENTRY(cuEventCreate, 2000)                               \
  ENTRY(cuEventDestroy, 4000)                              \
  ENTRY(cuEventRecord, 2000)                               \
  ENTRY(cuEventSynchronize, 2000)                          \
  ENTRY(cuEventElapsedTime, 2000)

// Entry points for peer access, null if the driver lacks them; only users of peers need to check.
#define JIT_PEER_ENTRIES(ENTRY)       \
  ENTRY(cuDeviceCanAccessPeer, 4000)  \
  ENTRY(cuCtxEnablePeerAccess, 4000)  \
  ENTRY(cuCtxDisablePeerAccess, 4000) \
  ENTRY(cuMemcpyPeerAsync, 4000)      \
  ENTRY(cuStreamWriteValue32, 11070)  \
  ENTRY(cuStreamWaitValue32, 11070)

/// The entry points, under the driver's own names: `driver().cuMemGetInfo(...)`.
struct DriverApi {
  int version = 0;        ///< of the driver: 1000 * major + 10 * minor
  bool emulated = false;  ///< whether the devices are emulated
#define JIT_DRIVER_MEMBER(function, since) PFN_##function##_v##since function = nullptr;
  JIT_DRIVER_ENTRIES(JIT_DRIVER_MEMBER)
  JIT_PEER_ENTRIES(JIT_DRIVER_MEMBER)
#undef JIT_DRIVER_MEMBER
};

/// The driver, opened and initialized by the first call, which decides for the process: use_device(), else
/// JIT_ATTENTION_DEVICE. Thread safe; later calls cost a load. Throws Error driver_unavailable with one
/// sentence, on every call, if a GPU is selected and there is no driver or no GPU.
const DriverApi& driver();

/// Throws an Error with the name and text of `result` unless it is CUDA_SUCCESS. `call` is the name of the
/// driver function.
void check(CUresult result, const char* call, ErrorCode code = ErrorCode::driver_error);

}  // namespace jit
