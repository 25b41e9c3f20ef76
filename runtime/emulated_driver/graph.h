// Graphs of captured work. An instantiated graph is a copy.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/emulated_driver/stream.h"

namespace jit::emulated_driver {

/// Calls its owner's `destroy` when the last reference is released.
struct UserObject {
  UserObject(void* data, CUhostFn destroy) : data(data), destroy(destroy) {}
  ~UserObject() { destroy(data); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

  void* const data;
  const CUhostFn destroy;
};

struct Graph {
  struct Node {
    Work work;
    const Stream* stream;  ///< identifies the captured stream
    /// Instead of work: the stream waits for the first `works` works of another one.
    struct Behind {
      const Stream* stream;
      std::size_t works;
    };
    std::optional<Behind> waits_for = {};
  };
  std::vector<Node> nodes;  ///< in an order that respects all dependencies
  std::vector<std::shared_ptr<UserObject>> retained = {};
};

}  // namespace jit::emulated_driver
