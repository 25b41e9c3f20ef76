#include <jit/dtype.h>

#include <array>

#include <fmt/format.h>
#include <jit/error.h>

#include "runtime/driver_api.h"

namespace jit {
namespace {

// Packing of several numbers into bytes, or of a whole row.
struct Packing {
  int numbers = 1;
  int scale_columns = 0;
  int row_bytes = 0;
};
constexpr DTypeFacts packed(DType dtype, std::string_view name, std::string_view device_type,
                            const Packing& packing) {
  return {.dtype = dtype,
          .name = name,
          .bytes = 1,
          .kind = NumberKind::packed,
          .device_type = device_type,
          .numpy_name = name,
          .npy_descr = "",
          .tma_type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
          .numbers = packing.numbers,
          .scale_columns = packing.scale_columns,
          .row_bytes = packing.row_bytes};
}

constexpr std::array table = {
    // Tolerances: several roundings of P and O to 16 bits, far below the error of a dropped key or a wrong
    // tile.
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
    // Tolerances: each P is rounded to e4m3, by 2.6 % on average.
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
    DTypeFacts{.dtype = DType::int8,
               .name = "int8",
               .bytes = 1,
               .kind = NumberKind::signed_integer,
               .device_type = "int8_number",
               .numpy_name = "int8",
               .npy_descr = "|i1",
               .tma_type = CU_TENSOR_MAP_DATA_TYPE_UINT8},
    packed(DType::int4, "int4", "int4_pair", {.numbers = 2}),
    packed(DType::nvfp4, "nvfp4", "nvfp4_pair", {.numbers = 2, .scale_columns = 16}),
    packed(DType::mxfp4, "mxfp4", "mxfp4_pair", {.numbers = 2, .scale_columns = 32}),
    packed(DType::latent_656, "latent_656", "latent_656", {.row_bytes = 656}),
    packed(DType::latent_584, "latent_584", "latent_584", {.row_bytes = 584}),
    packed(DType::latent_528, "latent_528", "latent_528", {.row_bytes = 528}),
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
