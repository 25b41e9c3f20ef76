// Shared by the tuner's forward and backward tensors: random contents, and comparison of sampled rows.
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
/// A prime, so that sampled rows cover all positions in a tile, and many heads and batch entries.
inline constexpr std::int64_t row_step = 7919;
inline constexpr unsigned char poison = 0xff;  ///< NaN in all types

/// The largest batch up to `batch` whose entries of `entry_bytes` fit into half of the device's free memory.
/// Throws Error driver_error if none fits.
int affordable_batch(int batch, std::int64_t entry_bytes);

/// Fills a tensor of this type with random numbers, on `stream`.
void fill_randomly(KernelStore& store, const DeviceInfo& device, const DeviceBuffer& tensor, DType dtype,
                   unsigned seed, Stream stream);

/// Offset of a row, in elements.
inline std::int64_t place_of(const TensorStrides& strides, std::int64_t batch, std::int64_t head,
                             std::int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.seq;
}

/// Compares rows of a tensor with a reference.
class RowComparison {
 public:
  /// `tensor` outlives this.
  RowComparison(const DeviceBuffer& tensor, DType dtype, int elements);

  std::size_t elements() const { return elements_; }  ///< per row

  /// Compares the row at element `place`, whose values are its elements times `scale`.
  void add(std::int64_t place, const float* expected, Stream stream, float scale = 1);

  /// Relative error: the norm of all differences divided by that of all references.
  double error() const;
  /// Whether the error is at most `tolerance`; false if there is a NaN.
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
