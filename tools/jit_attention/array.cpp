#include "array.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/dtype.h>
#include <jit/float16.h>

#include "command.h"

namespace jit::tool {
namespace {

bool is_floating(DType dtype) { return facts(dtype).is_floating(); }

float load_float(const Array& array, std::size_t i) {
  if (array.dtype == DType::fp32) return array.as<float>()[i];
  return float_from_bits(array.dtype, array.as<std::uint16_t>()[i]);
}

void store_float(Array& array, std::size_t i, float value) {
  if (array.dtype == DType::fp32) {
    array.as<float>()[i] = value;
  } else {
    array.as<std::uint16_t>()[i] = float_to_bits(array.dtype, value);
  }
}

std::int64_t load_integer(const Array& array, std::size_t i) {
  switch (array.dtype) {
    case DType::int32:
      return array.as<std::int32_t>()[i];
    case DType::int64:
      return array.as<std::int64_t>()[i];
    default:
      return array.as<std::uint8_t>()[i];
  }
}

// Returns false when the value does not fit.
bool store_integer(Array& array, std::size_t i, std::int64_t value) {
  switch (array.dtype) {
    case DType::int32:
      array.as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
      break;
    case DType::int64:
      array.as<std::int64_t>()[i] = value;
      break;
    default:
      array.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(value);
  }
  return load_integer(array, i) == value;
}

std::string_view numpy_name(DType dtype) { return facts(dtype).numpy_name; }

}  // namespace

Array zeros(DType dtype, std::vector<std::int64_t> shape) {
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      throw BadInput(fmt::format("an array of shape ({}) is too large", fmt::join(shape, ", ")));
    }
  }
  return {dtype, std::move(shape), std::vector<std::byte>(static_cast<std::size_t>(bytes))};
}

void store(Array& array, std::size_t i, double value) {
  if (is_floating(array.dtype)) {
    store_float(array, i, static_cast<float>(value));
  } else {
    store_integer(array, i, static_cast<std::int64_t>(value));
  }
}

Array convert(Array array, DType dtype, const std::string& name) {
  if (array.dtype == dtype) return array;
  if (is_floating(array.dtype) != is_floating(dtype)) {
    throw BadInput(fmt::format("{} is {}; it must be {}", name, numpy_name(array.dtype), numpy_name(dtype)));
  }
  Array result = zeros(dtype, array.shape);
  const std::size_t count = static_cast<std::size_t>(array.elements());
  for (std::size_t i = 0; i < count; ++i) {
    if (is_floating(dtype)) {
      store_float(result, i, load_float(array, i));
    } else if (!store_integer(result, i, load_integer(array, i))) {
      throw BadInput(
          fmt::format("{} holds {}, which does not fit {}", name, load_integer(array, i), to_string(dtype)));
    }
  }
  return result;
}

std::string describe(const Array& array) {
  return fmt::format("{} ({})", numpy_name(array.dtype), fmt::join(array.shape, ", "));
}

TensorView view(const Array& array, void* data) {
  TensorView result;
  result.data = data;
  result.dtype = array.dtype;
  result.rank = static_cast<int>(array.shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = array.shape.size(); i-- > 0;) {
    result.shape[i] = array.shape[i];
    result.strides[i] = stride;
    stride *= array.shape[i];
  }
  return result;
}

}  // namespace jit::tool
