// The driver of this machine's GPU, opened by hand: what calls of the library are measured against.
#pragma once

#include <cuda.h>

namespace jit::bench {

/// Its functions, under their own names.
struct Driver {
  decltype(&::cuStreamCreate) cuStreamCreate = nullptr;
  decltype(&::cuStreamDestroy) cuStreamDestroy = nullptr;
  decltype(&::cuStreamBeginCapture) cuStreamBeginCapture = nullptr;
  decltype(&::cuStreamEndCapture) cuStreamEndCapture = nullptr;
  decltype(&::cuGraphGetNodes) cuGraphGetNodes = nullptr;
  decltype(&::cuGraphKernelNodeGetParams) cuGraphKernelNodeGetParams = nullptr;
  decltype(&::cuGraphInstantiateWithFlags) cuGraphInstantiateWithFlags = nullptr;
  decltype(&::cuGraphLaunch) cuGraphLaunch = nullptr;
  decltype(&::cuGraphExecDestroy) cuGraphExecDestroy = nullptr;
  decltype(&::cuGraphDestroy) cuGraphDestroy = nullptr;
  decltype(&::cuLaunchKernelEx) cuLaunchKernelEx = nullptr;
};

/// Opened by the first call. Throws std::runtime_error where there is no driver of CUDA 12 or later.
const Driver& cuda();

/// Throws std::runtime_error that names the call unless `result` is CUDA_SUCCESS.
void require(CUresult result, const char* call);

}  // namespace jit::bench
