// The whole state of the emulated driver: its devices, and all objects with handles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/emulated_driver/capture.h"
#include "runtime/emulated_driver/context.h"
#include "runtime/emulated_driver/device.h"
#include "runtime/emulated_driver/emulated_driver.h"
#include "runtime/emulated_driver/event.h"
#include "runtime/emulated_driver/graph.h"
#include "runtime/emulated_driver/handle_table.h"
#include "runtime/emulated_driver/library.h"
#include "runtime/emulated_driver/peers.h"
#include "runtime/emulated_driver/stream.h"

namespace jit::emulated_driver {

/// Thread safe: tables lock themselves, the rest does not change.
struct Machine {
  explicit Machine(const Options& options);

  std::uint64_t seed, step_limit;
  std::vector<std::unique_ptr<Device>> devices;            ///< by ordinal
  std::vector<std::shared_ptr<Context>> primary_contexts;  ///< by ordinal
  std::vector<CUcontext> primary_handles;                  ///< by ordinal

  HandleTable<CUcontext, Context> contexts{"context"};
  HandleTable<CUstream, Stream> streams{"stream"};
  HandleTable<CUevent, Event> events{"event"};
  HandleTable<CUlibrary, Library> libraries{"library"};
  HandleTable<CUkernel, LoadedEntry> kernels{"kernel"};
  HandleTable<CUgraph, Graph> graphs{"graph"};
  HandleTable<CUgraphExec, Graph> executable_graphs{"executable graph"};
  HandleTable<CUuserObject, UserObject> user_objects{"user object"};
  Captures captures;
  Peers peers;

  /// Fails with CUDA_ERROR_INVALID_DEVICE.
  Device& device(CUdevice ordinal) const;
  /// The device that has allocated `address`; null if none has.
  Device* device_of(CUdeviceptr address) const;
};

/// The machine that start() created.
Machine& machine();

}  // namespace jit::emulated_driver
