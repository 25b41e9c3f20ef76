// Entry points of graphs.
#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  return call([&] {
    require(executable, "phGraphExec");
    if (flags != 0)
      fail(CUDA_ERROR_NOT_SUPPORTED, "an emulated device instantiates graphs without flags only");
    *executable = machine().executable_graphs.add(std::make_shared<Graph>(*machine().graphs.find(graph)));
  });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call([&] {
    enqueue(*find_stream(stream), [graph = machine().executable_graphs.find(executable)] {
      for (const Work& node : graph->nodes) node();
    });
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call([&] { machine().executable_graphs.remove(executable); });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call([&] { machine().graphs.remove(graph); });
}

}  // namespace jit::emulated_driver
