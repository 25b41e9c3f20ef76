#include "tests/support/device_tensor.h"

#include <cstring>
#include <numeric>

#include <jit/device.h>
#include <jit/float16.h>

namespace jit::testing {
namespace {

template <class T>
T read(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void write(std::uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

DeviceTensor::DeviceTensor(DType dtype, const std::vector<std::int64_t>& shape, const TensorLayout& layout) {
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::vector<int> order = layout.order;
  if (order.empty()) {
    order.resize(shape.size());
    std::iota(order.begin(), order.end(), 0);
  }
  std::int64_t stride = 1;
  for (int i = view_.rank - 1; i >= 0; --i) {
    const int dimension = order[static_cast<std::size_t>(i)];
    view_.shape[dimension] = shape[static_cast<std::size_t>(dimension)];
    view_.strides[dimension] = stride;
    stride *= shape[static_cast<std::size_t>(dimension)];
    if (i == view_.rank - 1 && layout.row_elements != 0) stride = layout.row_elements;
  }
  const auto bytes = static_cast<std::size_t>(size_of(dtype));
  first_ = static_cast<std::size_t>(layout.first) * bytes;
  bytes_.assign(first_ + static_cast<std::size_t>(stride) * bytes + 16, 0xff);
  memory_ = DeviceBuffer(current_device(), bytes_.size());
  view_.data = static_cast<char*>(memory_.data()) + first_;
}

std::int64_t DeviceTensor::count() const {
  std::int64_t count = 1;
  for (int i = 0; i < view_.rank; ++i) count *= view_.shape[i];
  return count;
}

std::vector<std::int64_t> DeviceTensor::index(std::int64_t flat) const {
  std::vector<std::int64_t> at(static_cast<std::size_t>(view_.rank));
  for (int i = view_.rank - 1; i >= 0; --i) {
    at[static_cast<std::size_t>(i)] = flat % view_.shape[i];
    flat /= view_.shape[i];
  }
  return at;
}

std::size_t DeviceTensor::offset(Index at) const {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < at.size(); ++i) elements += at[i] * view_.strides[i];
  return first_ + static_cast<std::size_t>(elements * size_of(view_.dtype));
}

void DeviceTensor::set(Index at, double value) {
  std::uint8_t* to = &bytes_.at(offset(at));
  switch (view_.dtype) {
    case DType::fp32:
      return write(to, static_cast<float>(value));
    case DType::int32:
      return write(to, static_cast<std::int32_t>(value));
    case DType::int64:
      return write(to, static_cast<std::int64_t>(value));
    case DType::uint8:
      return write(to, static_cast<std::uint8_t>(value));
    case DType::int8:
      return write(to, static_cast<std::int8_t>(value));
    default:
      return write(to, float_to_bits(view_.dtype, static_cast<float>(value)));
  }
}

double DeviceTensor::get(Index at) const {
  const std::uint8_t* from = &bytes_.at(offset(at));
  switch (view_.dtype) {
    case DType::fp32:
      return read<float>(from);
    case DType::int32:
      return read<std::int32_t>(from);
    case DType::int64:
      return static_cast<double>(read<std::int64_t>(from));
    case DType::uint8:
      return read<std::uint8_t>(from);
    case DType::int8:
      return read<std::int8_t>(from);
    default:
      return float_from_bits(view_.dtype, read<std::uint16_t>(from));
  }
}

}  // namespace jit::testing
