#include "generator/kernels/converted_scales.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "templates/base/element.cuh"

namespace jit {
namespace {

constexpr int word_bytes = 4;

TensorStrides in_bytes(const TensorStrides& of_floats) {
  constexpr int size = sizeof(float);
  return {.batch = of_floats.batch * size, .seq = of_floats.seq * size, .head = of_floats.head * size};
}

}  // namespace

bool has_converted_scales(const AttentionSpec& spec) {
  const DTypeFacts& stored = facts(spec.key_dtype());
  return has_narrow_keys(spec) && !has_fp8_queries(spec) && stored.row_bytes == 0 &&
         (spec.descale_per == ScaleKind::token || stored.numbers > 1);
}

std::string converted_scales_rejection(const AttentionSpec& spec, std::string_view name) {
  if (!has_converted_scales(spec)) return "";
  const DTypeFacts& stored = facts(spec.key_dtype());
  if (stored.numbers == 1) return "";
  // Lanes convert chunks of 16 bytes, and copy scales of blocks by words.
  const int chunk = chunk_bytes * stored.numbers, words = word_bytes * stored.scale_columns;
  const int step = std::max(chunk, words);
  for (const int columns : {spec.head_dim, spec.value_head_dim()}) {
    if (columns % step != 0)
      return fmt::format("{} converts {} with head dims of multiples of {}; they are {} and {}", name,
                         stored.name, step, spec.head_dim, spec.value_head_dim());
  }
  return "";
}

int converted_scale_bytes(const AttentionSpec& spec, int columns) {
  if (!has_converted_scales(spec)) return 0;
  const int block = facts(spec.key_dtype()).scale_columns;
  return block == 0 ? static_cast<int>(sizeof(float)) : columns / block;
}

AttentionSpec converted_spec(AttentionSpec spec) {
  if (has_converted_scales(spec)) spec.descale_per = ScaleKind::head;
  return spec;
}

std::string converted_scales_line(const AttentionSpec& spec) {
  return has_converted_scales(spec) ? "  static constexpr bool converts_scales = true;  // numbers are "
                                      "multiplied where they are upcast\n"
                                    : "";
}

AttentionParams converter_params(const AttentionSpec& spec, AttentionParams params) {
  if (!has_converted_scales(spec) || spec.descale_per != ScaleKind::token) return params;
  DescaleParams& descale = params.descale;
  descale.k_blocks = reinterpret_cast<const unsigned char*>(descale.k);
  descale.v_blocks = reinterpret_cast<const unsigned char*>(descale.v);
  descale.k_blocks_strides = in_bytes(descale.k_strides);
  descale.v_blocks_strides = in_bytes(descale.v_strides);
  descale.k = descale.v = nullptr;
  return params;
}

}  // namespace jit
