// Entry points of graphs.
#include <map>

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
    const std::shared_ptr<Stream> on = find_stream(stream);
    const std::shared_ptr<Graph> graph = machine().executable_graphs.find(executable);
    if (machine().peers.has(on->context)) return machine().peers.put(*on, *graph);
    enqueue(*on, alone(
                     [graph] {
                       std::map<const Stream*, emulator::GridsInFront> grids;
                       for (const Graph::Node& node : graph->nodes) {
                         if (!node.waits_for) node.work.now(grids[node.stream]);
                       }
                     },
                     nullptr));
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call([&] { machine().executable_graphs.remove(executable); });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call([&] { machine().graphs.remove(graph); });
}

CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references,
                            unsigned flags) {
  return call([&] {
    require(object, "object_out");
    require(reinterpret_cast<const void*>(destroy), "destroy");
    if (references != 1 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      fail(CUDA_ERROR_NOT_SUPPORTED,
           "an emulated device makes user objects with one reference and CU_USER_OBJECT_NO_DESTRUCTOR_SYNC "
           "only");
    }
    *object = machine().user_objects.add(std::make_shared<UserObject>(data, destroy));
  });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned references) {
  return call([&] {
    if (references != 1)
      fail(CUDA_ERROR_NOT_SUPPORTED, "user objects of an emulated device have one reference");
    machine().user_objects.remove(object);
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references, unsigned flags) {
  return call([&] {
    if (references != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE) {
      fail(CUDA_ERROR_NOT_SUPPORTED,
           "graphs of an emulated device take one reference of the caller's, CU_GRAPH_USER_OBJECT_MOVE");
    }
    const std::shared_ptr<Graph> owner = machine().graphs.find(graph);
    owner->retained.push_back(machine().user_objects.remove(object));
  });
}

}  // namespace jit::emulated_driver
