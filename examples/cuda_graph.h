// A stream, and what it was given while it was captured, by the driver's own functions: programs with the CUDA toolkit
// include cuda.h instead. On emulated devices, which have no driver, work runs as it is given.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>
#include <utility>

#include <jit/stream.h>

class CudaGraph {
  template <class... Arguments>
  using Function = int (*)(Arguments...);
  template <class... Arguments>
  Function<Arguments...> function(const char* name) const {
    return reinterpret_cast<Function<Arguments...>>(dlsym(library_, name));
  }

 public:
  /// Requires: a device is current until the graph's end.
  explicit CudaGraph(bool is_emulated) {
    if (is_emulated) return;
    library_ = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library_) throw std::runtime_error(dlerror());
    const unsigned non_blocking = 1;
    call("cuStreamCreate", &stream_, non_blocking);
  }
  ~CudaGraph() {
    for (const auto& [name, handle] : {std::pair{"cuGraphExecDestroy", executable_},
                                       {"cuGraphDestroy", graph_},
                                       {"cuStreamDestroy_v2", static_cast<void*>(stream_)}}) {
      if (handle) function<void*>(name)(handle);
    }
    if (library_) dlclose(library_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  jit::Stream stream() const { return stream_; }

  /// Runs `work`, which gives its work to stream(): captured at the first call, and replayed at all later ones.
  template <class Work>
  void run(const Work& work) {
    if (!library_) return work();
    if (!executable_) {
      const int thread_local_mode = 1;
      call("cuStreamBeginCapture_v2", stream_, thread_local_mode);
      work();
      call("cuStreamEndCapture", stream_, &graph_);
      const unsigned long long no_flags = 0;
      call("cuGraphInstantiateWithFlags", &executable_, graph_, no_flags);
    }
    call("cuGraphLaunch", executable_, static_cast<void*>(stream_));
  }

 private:
  template <class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const auto callee = function<Arguments...>(name);
    const int status = callee ? callee(arguments...) : -1;
    if (status != 0) throw std::runtime_error(std::string(name) + ": " + std::to_string(status));
  }

  void* library_ = nullptr;
  jit::Stream stream_ = nullptr;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};
