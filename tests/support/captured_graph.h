// The work of a captured stream, to run again and again.
#pragma once

#include <jit/error.h>

#include "runtime/driver_api.h"
#include "tests/support/test_stream.h"

namespace jit::testing {

/// Puts what `work` launches into a graph. Afterwards the stream is as before.
class CapturedGraph {
 public:
  template <class Work>
  CapturedGraph(const TestStream& stream, const Work& work,
                CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    work();
    check(driver().cuStreamEndCapture(stream.get(), &graph_), "cuStreamEndCapture");
    check(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0), "cuGraphInstantiateWithFlags");
  }
  ~CapturedGraph() {
    driver().cuGraphExecDestroy(executable_);
    driver().cuGraphDestroy(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void launch(const TestStream& stream) const {
    check(driver().cuGraphLaunch(executable_, stream.get()), "cuGraphLaunch");
  }
  void run(const TestStream& stream) const {
    launch(stream);
    stream.synchronize();
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace jit::testing
