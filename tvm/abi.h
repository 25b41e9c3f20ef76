// The part of apache-tvm-ffi's binary interface that functions need: structs of tvm/ffi/c_api.h (Apache
// License 2.0, https://github.com/apache/tvm-ffi), with the same members in the same order. Thus the library
// builds without it. A test compares them with the header of the package.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jit::tvm {

struct Bytes {
  const char* data;
  std::size_t size;
};

/// The header of all objects.
struct Object {
  std::uint64_t references;
  std::int32_t type;
  std::uint32_t padding;
  void (*deleter)(void* self, int flags);
};

enum ValueType : std::int32_t {
  none = 0,
  whole = 1,
  truth = 2,
  real = 3,
  tensor_pointer = 7,  ///< a DLTensor
  c_text = 8,
  bytes_pointer = 9,
  small_text = 11,     ///< characters are stored in the value
  text_object = 65,    ///< an Object followed by Bytes
  tensor_object = 70,  ///< an Object followed by a DLTensor
};

/// An argument or a result.
struct Value {
  std::int32_t type;
  std::uint32_t small_length;
  union {
    std::int64_t whole;
    double real;
    void* pointer;
    char small[8];
  };
};

/// A function. It returns 0, or -1 after setting the thread's error.
using Function = int (*)(void* self, const Value* arguments, std::int32_t count, Value* result);

}  // namespace jit::tvm
