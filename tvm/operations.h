// The operations that calls name by their specs.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <jit/c.h>

namespace jit::tvm {

/// Operations of all devices, each made once. They live as long as the process, as global functions do. Thread safe.
class Operations {
 public:
  /// The operation of a spec on a device. Throws what reading a spec throws.
  const jit_operation* of(int device, jit_kind kind, const std::string& spec);

 private:
  std::mutex mutex_;
  std::map<int, jit_context*> contexts_;
  std::map<std::tuple<int, jit_kind, std::string>, jit_operation*> operations_;
};

/// Throws the error of a call of the C interface, and frees it; nothing is thrown where there is none.
void throw_if(jit_error* error);

}  // namespace jit::tvm
