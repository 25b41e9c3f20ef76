// Operations that calls identify by specs.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <jit/c.h>

namespace jit::tvm {

/// Operations of all devices, each created once. They live as long as the process, like global functions.
/// Thread safe.
class Operations {
 public:
  /// A spec's operation on a device. Throws errors of reading the spec.
  const jit_operation* of(int device, jit_kind kind, const std::string& spec);

 private:
  std::mutex mutex_;
  std::map<int, jit_context*> contexts_;
  std::map<std::tuple<int, jit_kind, std::string>, jit_operation*> operations_;
};

/// Throws and frees a C call's error; does nothing for null.
void throw_if(jit_error* error);

}  // namespace jit::tvm
