#include "tests/support/arena.h"

#include <algorithm>

#include <jit/dtype.h>

namespace jit::testing {

std::size_t Place::at(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
  const std::int64_t row =
      row_at.empty() ? i * strides[0] + j * strides[1] : row_at[static_cast<std::size_t>(i * shape[1] + j)];
  const std::int64_t steps = row + k * strides[2] + l * strides[3];
  return static_cast<std::size_t>(static_cast<std::int64_t>(offset) + steps * size_of(dtype));
}

std::size_t Arena::reserve(std::size_t bytes) {
  constexpr std::size_t guard = 256;
  const std::size_t offset = (host.size() + guard + 15) / 16 * 16;
  host.resize(offset + bytes + guard, poison);
  return offset;
}

void Arena::upload(int device_ordinal) {
  device = DeviceBuffer(device_ordinal, host.size());
  device.upload(host.data(), host.size());
}

TensorView Arena::view(const Place& place) const {
  if (place.stored) return view(*place.stored);
  TensorView view;
  view.data = static_cast<unsigned char*>(device.data()) + place.offset;
  view.dtype = place.dtype;
  view.rank = place.rank;
  std::copy_n(place.shape, max_rank, view.shape);
  std::copy_n(place.strides, max_rank, view.strides);
  return view;
}

}  // namespace jit::testing
