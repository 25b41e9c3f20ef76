// Functions of the libtvm_ffi.so that a process with apache-tvm-ffi has loaded.
#pragma once

#include <string>

#include "tvm/abi.h"

namespace jit::tvm {

struct Library {
  int (*function_create)(void* self, Function call, void (*deleter)(void*), void** function);
  int (*function_set_global)(const Bytes* name, void* function, int may_replace);
  int (*object_release)(void* object);
  void (*set_error)(const char* kind, const char* message);
  void* (*stream)(std::int32_t device_type, std::int32_t device);
};

/// The library at a path; with an empty path, the loaded one. Throws Error invalid_argument, field "library",
/// when it is missing or lacks these functions.
Library load_library(const std::string& path);

}  // namespace jit::tvm
