// Host memory full of poison in which tensors lie, and its copy on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <jit/device_buffer.h>
#include <jit/tensor.h>

namespace jit::testing {

inline constexpr unsigned char poison = 0xff;  ///< NaN in bf16, fp16 and fp32; −1 in integers

/// A tensor within an arena.
struct Place {
  static constexpr std::int64_t no_row = std::numeric_limits<std::int64_t>::min();

  std::size_t offset = 0;  ///< bytes, of the element with all indices 0
  DType dtype = DType::bf16;
  int rank = 0;
  std::int64_t shape[max_rank] = {};
  std::int64_t strides[max_rank] = {};
  std::int64_t rows = 1;  ///< of elements that a scale is that of
  /// Where the first two indices are a batch entry and its row: elements from `offset` to each row, `no_row` for one that
  /// the entry does not have. Empty: as strides say.
  std::vector<std::int64_t> row_at = {};
  std::shared_ptr<const Place> stored = {};  ///< the tensor as calls are given it; null: this

  bool has_row(std::int64_t entry, std::int64_t row) const {
    return row_at.empty() || row_at[static_cast<std::size_t>(entry * shape[1] + row)] != no_row;
  }
  /// Byte offset of an element.
  std::size_t at(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0, std::int64_t l = 0) const;
};

struct Arena {
  std::vector<unsigned char> host;
  DeviceBuffer device;

  /// Room for `bytes` between two guard bands; the offset is a multiple of 16.
  std::size_t reserve(std::size_t bytes);
  void upload(int device_ordinal);
  TensorView view(const Place& place) const;
};

}  // namespace jit::testing
