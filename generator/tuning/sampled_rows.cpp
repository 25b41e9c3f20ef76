#include "generator/tuning/sampled_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include <jit/dtype.h>
#include <jit/error.h>
#include <jit/float16.h>

#include "generator/build/kernel_store.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/program/emit.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"

namespace jit {
namespace {

float number_of_e4m3(unsigned char bits) {
  constexpr int mantissa_bits = 3, bias = 7, most = 0x7f;
  const int magnitude = bits & most, exponent = magnitude >> mantissa_bits;
  const int mantissa = magnitude % (1 << mantissa_bits);
  if (magnitude == most) return std::numeric_limits<float>::quiet_NaN();
  const int digits = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float number = std::ldexp(static_cast<float>(digits), std::max(exponent, 1) - bias - mantissa_bits);
  return bits == magnitude ? number : -number;
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
  return free;
}

}  // namespace

int affordable_batch(int batch, std::int64_t entry_bytes) {
  const std::int64_t affordable =
      static_cast<std::int64_t>(free_memory() / 2) / std::max<std::int64_t>(1, entry_bytes);
  if (affordable == 0) {
    throw Error(
        ErrorCode::driver_error, "tune", "memory",
        fmt::format("tuning wants {} bytes beside the caller's tensors, more than half of the free memory",
                    entry_bytes));
  }
  return static_cast<int>(std::clamp<std::int64_t>(affordable, 1, batch));
}

void fill_randomly(KernelStore& store, const DeviceInfo& device, const DeviceBuffer& tensor, DType dtype,
                   unsigned seed, Stream stream) {
  const Program program = emit_random_fill(dtype);
  auto image = build_image(store, program, native_target(device));
  const Kernel kernel = load_module(store, image).kernel(program.name);
  void* data = tensor.data();
  long long words = static_cast<long long>(tensor.size() / 4);
  void* arguments[] = {&data, &words, &seed};
  launch(kernel.handle(),
         {.grid = {static_cast<unsigned>(device.sm_count * 8), 1, 1},
          .block = {static_cast<unsigned>(program.threads), 1, 1}},
         arguments, stream);
}

RowComparison::RowComparison(const DeviceBuffer& tensor, DType dtype, int elements)
    : tensor_(tensor),
      dtype_(dtype),
      elements_(static_cast<std::size_t>(elements)),
      row_(elements_ * static_cast<std::size_t>(size_of(dtype))) {}

float RowComparison::number(std::size_t i) const {
  if (dtype_ == DType::int8) return static_cast<float>(static_cast<signed char>(row_[i]));
  if (dtype_ == DType::fp8_e4m3) return number_of_e4m3(row_[i]);
  if (dtype_ == DType::fp32) {
    float value;
    std::memcpy(&value, &row_[i * sizeof value], sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, &row_[i * sizeof bits], sizeof bits);
  return float_from_bits(dtype_, bits);
}

void RowComparison::add(std::int64_t place, const float* expected, Stream stream, float scale) {
  tensor_.download(row_.data(), row_.size(), static_cast<std::size_t>(place * size_of(dtype_)), stream);
  for (std::size_t i = 0; i < elements_; ++i) {
    const double difference = double{number(i)} * scale - static_cast<double>(expected[i]);
    differences_ += difference * difference;
    squares_ += static_cast<double>(expected[i]) * expected[i];
  }
}

double RowComparison::error() const { return std::sqrt(differences_ / std::max(squares_, 1e-30)); }

bool RowComparison::is_within(double tolerance) const {
  // Not >: a NaN must fail.
  return std::sqrt(differences_) <= tolerance * std::sqrt(squares_) + 1e-12;
}

}  // namespace jit
