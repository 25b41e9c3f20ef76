// Arrays in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <jit/tensor.h>

namespace jit::tool {

/// A dense row-major array.
struct Array {
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::int64_t elements() const { return static_cast<std::int64_t>(bytes.size()) / size_of(dtype); }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

/// An array of zeros. Throws BadInput when its size does not fit 63 bits.
Array zeros(DType dtype, std::vector<std::int64_t> shape);

/// Sets element i, rounded to the array's type.
void store(Array& array, std::size_t i, double value);

/// Converts the values to another type: floating point to floating point (rounded to nearest even), integers
/// to integers (BadInput when one does not fit). `name` is for messages.
Array convert(Array array, DType dtype, const std::string& name);

/// "float32 (2, 16, 4, 64)", in numpy's words.
std::string describe(const Array& array);

/// A view of the array at `data`: its own bytes, or a copy in GPU memory. Requires at most four dimensions.
TensorView view(const Array& array, void* data);

}  // namespace jit::tool
