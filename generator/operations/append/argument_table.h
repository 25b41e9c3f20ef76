// The tensors of an append: each row has all checks of one tensor by itself.
#pragma once

#include <array>
#include <string_view>

#include <jit/append.h>

#include "generator/operations/operands.h"

namespace jit {

/// A tensor of AppendArguments.
struct AppendRow {
  std::string_view name;
  TensorView AppendArguments::*view;
  DimNames dims;        ///< for varlen tokens
  DimNames dense_dims;  ///< for (batch, seqlen) tokens
  DType (*dtype)(const AppendSpec&);
  bool has_aligned_rows = true;  ///< rows have the spec's alignment and dense elements
  bool is_output = false;        ///< written: must not overlap other tensors
};

constexpr DType new_rows(const AppendSpec& spec) { return spec.dtype; }
constexpr DType fp32_elements(const AppendSpec&) { return DType::fp32; }
constexpr DType bytes(const AppendSpec&) { return DType::uint8; }
constexpr DType int32_elements(const AppendSpec&) { return DType::int32; }
constexpr DType int64_elements(const AppendSpec&) { return DType::int64; }

/// Dimensions differ from this table for positions with sections, which have a row per axis, and for scales,
/// of which there may be one for all heads or one per row of the caches.
inline constexpr std::array append_table = {
    AppendRow{"k", &AppendArguments::k, "tokens, heads_kv, head_dim", "batch, seqlen, heads_kv, head_dim",
              new_rows},
    AppendRow{"v", &AppendArguments::v, "tokens, heads_kv, head_dim_v", "batch, seqlen, heads_kv, head_dim_v",
              new_rows},
    AppendRow{"k_cache", &AppendArguments::k_cache, "pages, page_size, heads_kv, head_dim",
              "pages, page_size, heads_kv, head_dim",
              [](const AppendSpec& spec) { return spec.stored_dtype(); }, true, true},
    AppendRow{"v_cache", &AppendArguments::v_cache, "pages, page_size, heads_kv, head_dim_v",
              "pages, page_size, heads_kv, head_dim_v",
              [](const AppendSpec& spec) { return spec.stored_dtype(); }, true, true},
    AppendRow{"slot_mapping", &AppendArguments::slot_mapping, "tokens", "batch, seqlen", int64_elements,
              false},
    AppendRow{"seqused_k", &AppendArguments::seqused_k, "batch", "batch", int32_elements, false},
    AppendRow{"cu_seqlens_q", &AppendArguments::cu_seqlens_q, "batch + 1", "batch + 1", int32_elements,
              false},
    AppendRow{"page_table", &AppendArguments::page_table, "batch, max_pages", "batch, max_pages",
              int32_elements, false},
    AppendRow{"q", &AppendArguments::q, "tokens, heads_q, head_dim", "batch, seqlen, heads_q, head_dim",
              new_rows},
    AppendRow{"q_out", &AppendArguments::q_out, "tokens, heads_q, head_dim",
              "batch, seqlen, heads_q, head_dim", new_rows, true, true},
    AppendRow{"cos_sin", &AppendArguments::cos_sin, "max_pos, rotary_dim", "max_pos, rotary_dim",
              [](const AppendSpec& spec) { return spec.cos_sin_dtype; }},
    AppendRow{"cos", &AppendArguments::cos, "max_pos, rotary_dim / 2", "max_pos, rotary_dim / 2",
              [](const AppendSpec& spec) { return spec.cos_sin_dtype; }},
    AppendRow{"sin", &AppendArguments::sin, "max_pos, rotary_dim / 2", "max_pos, rotary_dim / 2",
              [](const AppendSpec& spec) { return spec.cos_sin_dtype; }},
    AppendRow{"positions", &AppendArguments::positions, "tokens", "batch, seqlen", int64_elements, false},
    AppendRow{"q_norm_weight", &AppendArguments::q_norm_weight, "head_dim", "head_dim",
              [](const AppendSpec& spec) { return spec.norm_dtype; }},
    AppendRow{"k_norm_weight", &AppendArguments::k_norm_weight, "head_dim", "head_dim",
              [](const AppendSpec& spec) { return spec.norm_dtype; }},
    AppendRow{"k_scale", &AppendArguments::k_scale, "heads_kv", "heads_kv", fp32_elements, false},
    AppendRow{"v_scale", &AppendArguments::v_scale, "heads_kv", "heads_kv", fp32_elements, false},
    AppendRow{"k_block_scales", &AppendArguments::k_block_scales, "pages, page_size, heads_kv, k_blocks",
              "pages, page_size, heads_kv, k_blocks", bytes, false, true},
    AppendRow{"v_block_scales", &AppendArguments::v_block_scales, "pages, page_size, heads_kv, v_blocks",
              "pages, page_size, heads_kv, v_blocks", bytes, false, true},
};
inline constexpr DimNames positions_by_axis = "3, tokens", dense_positions_by_axis = "3, batch, seqlen",
                          scale_of_all_heads = "1", scale_of_each_row = "pages, page_size, heads_kv",
                          packed_keys = "pages, page_size, heads_kv, k_row",
                          packed_values = "pages, page_size, heads_kv, v_row",
                          latent_rows = "pages, page_size, 1, k_row";

}  // namespace jit
