// A tensor on a device with its elements on the host as numbers: any strides, poison in between.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <jit/device_buffer.h>
#include <jit/tensor.h>

namespace jit::testing {

/// How a tensor lies in memory.
struct TensorLayout {
  std::vector<int> order = {};    ///< its dimensions, outermost first; empty: as they are
  std::int64_t row_elements = 0;  ///< from row to row along the innermost dimension; 0: no gap
  std::int64_t first = 0;         ///< elements of memory before the first one
};

/// Memory of the current device that is all poison, whose bytes are 0xff, but for the elements that `set` has written.
class DeviceTensor {
 public:
  using Index = std::span<const std::int64_t>;

  DeviceTensor(DType dtype, const std::vector<std::int64_t>& shape, const TensorLayout& layout = {});

  const TensorView& view() const { return view_; }
  std::int64_t count() const;
  /// The indices of element `flat`, counted in the order of the dimensions.
  std::vector<std::int64_t> index(std::int64_t flat) const;

  void set(Index at, double value);
  double get(Index at) const;
  void set(std::initializer_list<std::int64_t> at, double value) { set(Index(at.begin(), at.size()), value); }
  double get(std::initializer_list<std::int64_t> at) const { return get(Index(at.begin(), at.size())); }
  /// All elements, by their flat number.
  template <class F>
  void fill(const F& value) {
    for (std::int64_t flat = 0; flat < count(); ++flat) set(index(flat), value(flat));
  }

  /// All of the memory, elements and what lies between them.
  void poison() { bytes_.assign(bytes_.size(), 0xff); }

  void upload() const { memory_.upload(bytes_.data(), bytes_.size()); }
  void download() { memory_.download(bytes_.data(), bytes_.size()); }
  /// All of the memory, elements or not, as the host has it.
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::size_t offset(Index at) const;

  TensorView view_;
  std::size_t first_ = 0;  // byte of the first element
  std::vector<std::uint8_t> bytes_;
  DeviceBuffer memory_;
};

}  // namespace jit::testing
