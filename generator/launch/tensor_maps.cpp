#include "generator/launch/tensor_maps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "runtime/driver_api.h"
#include "templates/tiles/panel_tile.cuh"

namespace jit {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

using Operand = TmaOperand;

CUtensorMapSwizzle swizzle_of(int row_bytes) {
  switch (row_bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_32B;
  }
}

// The driver's description of a tensor.
constexpr std::size_t most_dimensions = 5;
struct Dimensions {
  cuuint32_t count;
  std::array<cuuint64_t, most_dimensions> sizes;
  std::array<cuuint64_t, most_dimensions> stride_bytes;  // of all but the first
  std::array<cuuint32_t, most_dimensions> box;
};

cuuint64_t size_of(std::int64_t count) { return static_cast<cuuint64_t>(count); }

// A dimension of one element does not use its stride, but the driver checks it.
cuuint64_t stride_bytes(std::int64_t count, std::int64_t stride, DType dtype) {
  return static_cast<cuuint64_t>(count <= 1 ? tma_alignment : stride * facts(dtype).bytes);
}

TensorMap encode(const void* data, const Dimensions& dimensions, DType dtype, CUtensorMapSwizzle swizzle,
                 CUtensorMapL2promotion promotion) {
  constexpr std::array<cuuint32_t, most_dimensions> steps = {1, 1, 1, 1, 1};
  CUtensorMap map;
  check(driver().cuTensorMapEncodeTiled(&map, static_cast<CUtensorMapDataType>(facts(dtype).tma_type),
                                        dimensions.count, const_cast<void*>(data), dimensions.sizes.data(),
                                        dimensions.stride_bytes.data(), dimensions.box.data(), steps.data(),
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return std::bit_cast<TensorMap>(map);
}

// Encodes the map of rows of `row` elements, `rows` per head.
TensorMap encode_rows(const Operand& operand, DType dtype, std::int64_t row, std::int64_t rows, int columns,
                      int box_rows, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
  const TensorStrides& strides = operand.strides;
  return encode(operand.data,
                {.count = 4,
                 .sizes = {size_of(row), size_of(rows), size_of(operand.heads), size_of(operand.batch)},
                 .stride_bytes = {stride_bytes(rows, strides.seq, dtype),
                                  stride_bytes(operand.heads, strides.head, dtype),
                                  stride_bytes(operand.batch, strides.batch, dtype)},
                 .box = {static_cast<cuuint32_t>(columns), static_cast<cuuint32_t>(box_rows), 1, 1}},
                dtype, swizzle, promotion);
}

TensorMap encode(const Operand& operand, DType dtype, int head_dim, int box_rows,
                 CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  const int columns = panel_columns(head_dim, facts(dtype).bytes);
  return encode_rows(operand, dtype, head_dim, operand.seqlen, columns, box_rows,
                     swizzle_of(columns * facts(dtype).bytes), promotion);
}

// Encodes the box of templates/tiles/bounded_box.cuh.
TensorMap encode_bounded(const Operand& operand, DType dtype, int head_dim, int box_rows) {
  const int columns = panel_columns(head_dim, facts(dtype).bytes);
  const TensorStrides& strides = operand.strides;
  const cuuint64_t row = stride_bytes(operand.seqlen, strides.seq, dtype);
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(operand.data) - row * size_of(box_rows);
  return encode(reinterpret_cast<const void*>(address),
                {.count = 5,
                 .sizes = {size_of(head_dim), size_of(box_rows), size_of(operand.heads),
                           size_of(operand.seqlen + 1), size_of(operand.batch)},
                 .stride_bytes = {row, stride_bytes(operand.heads, strides.head, dtype), row,
                                  stride_bytes(operand.batch, strides.batch, dtype)},
                 .box = {static_cast<cuuint32_t>(columns), static_cast<cuuint32_t>(box_rows), 1, 1, 1}},
                dtype, swizzle_of(columns * facts(dtype).bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

Operand operand_of(const MappedRows& rows) {
  return {rows.name, rows.data, rows.strides, rows.batch, rows.seqlen, rows.heads};
}

}  // namespace

bool can_map(const MappedRows& rows) { return rows.seqlen > 0 && is_mappable(operand_of(rows)); }

TensorMap map_rows(const MappedRows& rows) {
  return encode_rows(operand_of(rows), rows.dtype, rows.columns, rows.seqlen, rows.columns, rows.box_rows,
                     CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

TensorMap map_panels(const MappedRows& rows) {
  return encode(operand_of(rows), rows.dtype, rows.columns, rows.box_rows);
}

namespace {

void check_mappable(const Operand& operand) {
  if (is_mappable(operand)) return;
  throw Error(
      ErrorCode::invalid_argument, "launch", operand.name,
      fmt::format(
          "{}: its kernel copies it by TMA, which needs rows aligned to {} bytes and "
          "positive strides below 2^40 bytes; it starts at {} and has strides {}, {}, {} along batch, "
          "seqlen, heads. Give no config, and a kernel is chosen that reads it",
          operand.name, tma_alignment, operand.data, operand.strides.batch, operand.strides.seq,
          operand.strides.head));
}

void check_pages_without_pad(const AttentionParams& params) {
  if (params.sequences.page_table == nullptr || params.sequences.cache_leftpad == nullptr) return;
  throw Error(ErrorCode::invalid_argument, "launch", "cache_leftpad",
              "cache_leftpad: a kernel that reads pages by TMA begins with the first row of a page. Give "
              "no config, or one with copies=cp_async");
}

}  // namespace

MappedTensors map_tensors(const AttentionSpec& spec, const MapBoxes& boxes, const AttentionParams& params) {
  const std::array<Operand, 4> all = tma_operands(params);
  for (const Operand& operand : all) check_mappable(operand);
  if (!has_few_tiles(params)) {
    throw Error(ErrorCode::invalid_argument, "launch", "q",
                fmt::format("q: {} heads of {} queries are more than the {} tiles that its kernel "
                            "counts. Give no config, and another is chosen",
                            params.heads_q, params.seqlen_q, max_work_tiles));
  }
  const bool has_keys = params.seqlen_kv > 0;
  const Operand& q = all[0];
  const int head_dim_v = spec.value_head_dim();
  const TensorMap map_q = encode(q, input_dtype(spec), spec.head_dim, boxes.rows_q);
  return {.q = map_q,
          .k = has_keys ? encode(all[1], spec.key_dtype(), stored_columns(spec, spec.head_dim), boxes.rows_kv)
                        : map_q,
          .v = has_keys ? encode(all[2], spec.key_dtype(), stored_columns(spec, head_dim_v), boxes.rows_kv)
                        : map_q,
          .o = has_quantized_output(spec) && head_dim_v % tma_alignment != 0
                   ? map_q  // o is stored without TMA
                   : encode(all[3], output_dtype(spec), head_dim_v, boxes.rows_q)};
}

BoundedTensors map_bounded_tensors(const AttentionSpec& spec, const MapBoxes& boxes,
                                   const AttentionParams& params) {
  check_pages_without_pad(params);
  const std::array<Operand, 4> all = tma_operands(params);
  for (const Operand& operand : all) check_mappable(operand);
  const Operand &q = all[0], &k = all[1], &v = all[2], &o = all[3];
  const bool has_keys = k.seqlen > 0 && k.batch > 0;
  const auto maps_by = [&](const auto& encode_one) {
    const int head_dim_v = spec.value_head_dim();
    const TensorMap map_q = encode_one(q, input_dtype(spec), spec.head_dim, boxes.rows_q);
    return MappedTensors{
        .q = map_q,
        .k = has_keys ? encode_one(k, spec.key_dtype(), stored_columns(spec, spec.head_dim), boxes.rows_kv)
                      : map_q,
        .v = has_keys ? encode_one(v, spec.key_dtype(), stored_columns(spec, head_dim_v), boxes.rows_kv)
                      : map_q,
        .o = has_quantized_output(spec) && head_dim_v % tma_alignment != 0
                 ? map_q
                 : encode_one(o, output_dtype(spec), head_dim_v, boxes.rows_q)};
  };
  return {.whole = maps_by([](const Operand& operand, DType dtype, int head_dim, int rows) {
            return encode(operand, dtype, head_dim, rows);
          }),
          .part = maps_by(encode_bounded)};
}

MappedGradients map_gradients(const AttentionSpec& spec, const MapBoxes& boxes, const AttentionParams& params,
                              const GradientParams& gradients) {
  const auto& [d_o, dk, dv] = tma_operands(params, gradients);
  const DType dtype = input_dtype(spec);
  const bool is_wide = output_dtype(spec) != dtype;  // then dK and dV are stored without TMA
  check_mappable(d_o);
  for (const Operand* operand : {&dk, &dv})
    if (!is_wide) check_mappable(*operand);
  const int head_dim_v = spec.value_head_dim();
  const bool has_keys = dk.seqlen > 0 && dk.batch > 0 && !is_wide;
  const auto with_outputs = [&, &dk = dk, &dv = dv](const TensorMap& map_q, const TensorMap& map_k,
                                                    const TensorMap& map_v, const TensorMap& map_do) {
    return MappedGradients{.q = map_q,
                           .k = map_k,
                           .v = map_v,
                           .d_o = map_do,
                           .dk = has_keys ? encode(dk, dtype, spec.head_dim, boxes.rows_dkv) : map_k,
                           .dv = has_keys ? encode(dv, dtype, head_dim_v, boxes.rows_dkv) : map_v};
  };
  if (params.seqlen_q == 0) {
    const MappedKeys keys = map_keys(spec, boxes.rows_kv, params);
    return with_outputs(keys.k, keys.k, keys.v, keys.k);
  }
  const MappedTensors maps = map_tensors(spec, boxes, params);
  return with_outputs(maps.q, maps.k, maps.v, encode(d_o, dtype, head_dim_v, boxes.rows_q));
}

MappedGradients map_bounded_gradients(const AttentionSpec& spec, const MapBoxes& boxes,
                                      const AttentionParams& params, const GradientParams& gradients) {
  const auto& [q, k, v, o] = tma_operands(params);
  const DType dtype = input_dtype(spec);
  const auto encode_one = [&](const Operand& operand, int head_dim, int rows) {
    check_mappable(operand);
    return encode_bounded(operand, dtype, head_dim, rows);
  };
  const auto& [d_o, dk, dv] = tma_operands(params, gradients);
  const bool has_queries = params.seqlen_q > 0, has_keys = k.seqlen > 0 && k.batch > 0;
  const bool is_wide = output_dtype(spec) != dtype;  // then dK and dV are stored without TMA
  const TensorMap unused =
      has_keys ? encode_one(k, spec.head_dim, boxes.rows_kv) : encode_one(q, spec.head_dim, boxes.rows_q);
  const auto encode_if = [&](bool is_there, const Operand& operand, int head_dim, int rows) {
    return is_there ? encode_one(operand, head_dim, rows) : unused;
  };
  const int head_dim_v = spec.value_head_dim();
  return {.q = encode_if(has_queries, q, spec.head_dim, boxes.rows_q),
          .k = encode_if(has_keys, k, spec.head_dim, boxes.rows_kv),
          .v = encode_if(has_keys, v, head_dim_v, boxes.rows_kv),
          .d_o = encode_if(has_queries, d_o, head_dim_v, boxes.rows_q),
          .dk = encode_if(has_keys && !is_wide, dk, spec.head_dim, boxes.rows_dkv),
          .dv = encode_if(has_keys && !is_wide, dv, head_dim_v, boxes.rows_dkv)};
}

MappedKeys map_keys(const AttentionSpec& spec, int box_rows, const AttentionParams& params) {
  check_pages_without_pad(params);
  std::array<Operand, 4> all = tma_operands(params);
  Operand &q = all[0], &k = all[1], &v = all[2];
  // With lists, seqlen counts a list's keys, not those of a page.
  if (has_lists(spec) && spec.sequences_kv == SequenceKind::paged) k.seqlen = v.seqlen = spec.page_size;
  check_mappable(k);
  check_mappable(v);
  const DType dtype = spec.key_dtype();
  if (k.seqlen == 0 || k.batch == 0) {
    const TensorMap unused = encode(q, input_dtype(spec), spec.head_dim, 8);
    return {.k = unused, .v = unused};
  }
  // Narrow L2 promotion is faster for keys that are read once (docs/records/notebook.md): beyond the row of a
  // head is another head's row, which other blocks read later.
  const auto encode_narrow = [&](const Operand& operand, int columns) {
    constexpr int half_line = 64;
    return encode(operand, dtype, columns, box_rows,
                  columns * facts(dtype).bytes <= half_line ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                                                            : CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  };
  return {.k = encode_narrow(k, stored_columns(spec, spec.head_dim)),
          .v = encode_narrow(v, stored_columns(spec, spec.value_head_dim()))};
}

}  // namespace jit
