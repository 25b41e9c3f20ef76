#include "bench/driver.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace jit::bench {
namespace {

// Functions by the names of the versions that the headers mean.
Driver open_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("libcuda.so.1 cannot be opened");
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
  };
  Driver driver;
  find("cuStreamCreate", driver.cuStreamCreate);
  find("cuStreamDestroy_v2", driver.cuStreamDestroy);
  find("cuStreamBeginCapture_v2", driver.cuStreamBeginCapture);
  find("cuStreamEndCapture", driver.cuStreamEndCapture);
  find("cuGraphGetNodes", driver.cuGraphGetNodes);
  find("cuGraphKernelNodeGetParams_v2", driver.cuGraphKernelNodeGetParams);
  find("cuGraphInstantiateWithFlags", driver.cuGraphInstantiateWithFlags);
  find("cuGraphLaunch", driver.cuGraphLaunch);
  find("cuGraphExecDestroy", driver.cuGraphExecDestroy);
  find("cuGraphDestroy", driver.cuGraphDestroy);
  find("cuLaunchKernelEx", driver.cuLaunchKernelEx);
  return driver;
}

}  // namespace

const Driver& cuda() {
  static const Driver driver = open_driver();
  return driver;
}

void require(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed with " + std::to_string(result));
}

}  // namespace jit::bench
