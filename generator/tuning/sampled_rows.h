// The common part of the tuner's tensors of any direction: random contents, and a sample of rows that is
// compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/stream.h>
#include <jit/tensor.h>

#include "templates/base/params.cuh"

namespace jit {

struct KernelStore;

inline constexpr std::int64_t max_sampled_rows = 512;
/// A prime: rows of the sample fall on every position within a tile, and on many heads and batch entries.
inline constexpr std::int64_t row_step = 7919;
inline constexpr unsigned char poison = 0xff;  ///< NaN in all types

/// `batch`, or as many batch entries of so many bytes as half of the device's free memory holds. Throws Error driver_error
/// when it holds none.
int affordable_batch(int batch, std::int64_t entry_bytes);

/// Fills a tensor of this type with random numbers, on `stream`.
void fill_randomly(KernelStore& store, const DeviceInfo& device, const DeviceBuffer& tensor, DType dtype,
                   unsigned seed, Stream stream);

/// Where a row begins, in elements.
inline std::int64_t place_of(const TensorStrides& strides, std::int64_t batch, std::int64_t head,
                             std::int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.seq;
}

/// Rows of a tensor beside those of a reference.
class RowComparison {
 public:
  /// `tensor` outlives this.
  RowComparison(const DeviceBuffer& tensor, DType dtype, int elements);

  std::size_t elements() const { return elements_; }  ///< of a row

  /// Compares the row that begins at element `place`, whose elements times `scale` are numbers.
  void add(std::int64_t place, const float* expected, Stream stream, float scale = 1);

  /// The root of all squared differences, relative to that of all squares.
  double error() const;
  /// Whether that is at most `tolerance`; never with a NaN.
  bool is_within(double tolerance) const;

 private:
  float number(std::size_t i) const;

  const DeviceBuffer& tensor_;
  DType dtype_;
  std::size_t elements_;
  std::vector<unsigned char> row_;
  double differences_ = 0, squares_ = 0;
};

}  // namespace jit
