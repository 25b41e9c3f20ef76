#include <jit/dtype.h>

#include <array>

#include <fmt/format.h>
#include <jit/error.h>

#include "runtime/driver_api.h"

namespace jit {
namespace {

constexpr std::array table = {
    // Tolerances: several roundings of P and O to 16 bits, and far below what a dropped key or a wrong tile
    // makes.
    DTypeFacts{.dtype = DType::bf16,
               .name = "bf16",
               .bytes = 2,
               .kind = NumberKind::bfloat,
               .device_type = "bf16",
               .numpy_name = "bf16",
               .npy_descr = "",
               .is_operand = true,
               .ptx_type = "bf16",
               .mma_k = 16,
               .tma_type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               .tolerance = 0.02},
    DTypeFacts{.dtype = DType::fp16,
               .name = "fp16",
               .bytes = 2,
               .kind = NumberKind::floating,
               .device_type = "fp16",
               .numpy_name = "float16",
               .npy_descr = "<f2",
               .is_operand = true,
               .ptx_type = "f16",
               .mma_k = 16,
               .tma_type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
               .tolerance = 0.004},
    DTypeFacts{.dtype = DType::fp32,
               .name = "fp32",
               .bytes = 4,
               .kind = NumberKind::floating,
               .device_type = "float",
               .numpy_name = "float32",
               .npy_descr = "<f4",
               .tma_type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32},
    DTypeFacts{DType::int32, "int32", 4, NumberKind::signed_integer, "int", "int32", "<i4"},
    DTypeFacts{DType::int64, "int64", 8, NumberKind::signed_integer, "long long", "int64", "<i8"},
    DTypeFacts{DType::uint8, "uint8", 1, NumberKind::unsigned_integer, "unsigned char", "uint8", "|u1"},
    // Tolerances: P is rounded to e4m3, each of its numbers for itself, by 2.6 % of it on average.
    DTypeFacts{.dtype = DType::fp8_e4m3,
               .name = "fp8_e4m3",
               .bytes = 1,
               .kind = NumberKind::float8_e4m3,
               .device_type = "fp8_e4m3",
               .numpy_name = "float8_e4m3fn",
               .npy_descr = "",
               .ptx_type = "e4m3",
               .mma_k = 32,
               .tma_type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
               .tolerance = 0.1},
    DTypeFacts{.dtype = DType::fp8_e5m2,
               .name = "fp8_e5m2",
               .bytes = 1,
               .kind = NumberKind::float8_e5m2,
               .device_type = "fp8_e5m2",
               .numpy_name = "float8_e5m2",
               .npy_descr = "",
               .ptx_type = "e5m2",
               .mma_k = 32,
               .tma_type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
               .tolerance = 0.1},
};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].dtype) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

}  // namespace

std::span<const DTypeFacts> dtype_table() { return table; }

const DTypeFacts& facts(DType dtype) {
  if (static_cast<std::size_t>(dtype) < table.size()) return table[static_cast<std::size_t>(dtype)];
  throw Error(ErrorCode::invalid_argument, "validate", "dtype",
              fmt::format("dtype {} is not an enumerator of DType", static_cast<int>(dtype)));
}

}  // namespace jit
