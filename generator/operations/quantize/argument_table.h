// The tensors of a quantizer: each row has all checks of one tensor by itself.
#pragma once

#include <array>
#include <string_view>

#include <jit/quantize.h>

#include "generator/operations/operands.h"

namespace jit {

/// Names of a tensor's dimensions, with dense and with varlen tokens.
struct QuantizeDims {
  DimNames dense, varlen;
};

/// A tensor of QuantizeArguments.
struct QuantizeRow {
  std::string_view name;
  TensorView QuantizeArguments::*view;
  QuantizeDims dims;  ///< of scales: with scales = head
  DType (*dtype)(const QuantizeSpec&);
  bool
      is_output;  ///< written, and shares no byte with any other tensor; scales only where they are not given
  bool is_rows;   ///< keeps the spec's alignment
};

constexpr DType quantized_from(const QuantizeSpec& spec) { return spec.dtype; }
constexpr DType quantized_to(const QuantizeSpec& spec) { return spec.out_dtype; }
constexpr DType quantizer_weights(const QuantizeSpec& spec) { return spec.norm_dtype; }
constexpr DType quantizer_angles(const QuantizeSpec& spec) { return spec.cos_sin_dtype; }
constexpr DType quantizer_positions(const QuantizeSpec&) { return DType::int64; }
constexpr DType quantizer_lengths(const QuantizeSpec&) { return DType::int32; }
constexpr DType quantizer_numbers(const QuantizeSpec&) { return DType::fp32; }

inline constexpr QuantizeDims quantize_queries = {"batch, seqlen_q, heads_q, head_dim",
                                                  "total_q, heads_q, head_dim"},
                              quantize_keys = {"batch, seqlen_kv, heads_kv, head_dim",
                                               "total_k, heads_kv, head_dim"},
                              quantize_values = {"batch, seqlen_kv, heads_kv, head_dim_v",
                                                 "total_k, heads_kv, head_dim_v"},
                              quantize_heads = {"batch, heads_kv", "heads_kv"},
                              quantize_boundaries = {"batch + 1", "batch + 1"},
                              quantize_lengths = {"batch", "batch"};
/// Dimensions of scales other than per head.
inline constexpr QuantizeDims scales_of_queries = {"batch, seqlen_q, heads_q", "total_q, heads_q"},
                              scales_of_keys = {"batch, seqlen_kv, heads_kv", "total_k, heads_kv"},
                              scales_of_query_blocks = {"batch, blocks_q, heads_q", "blocks_q, heads_q"},
                              scales_of_key_blocks = {"batch, blocks_kv, heads_kv", "blocks_kv, heads_kv"},
                              scales_of_channels = {"batch, heads_kv, head_dim_v", "heads_kv, head_dim_v"};

inline constexpr std::array quantize_table = {
    QuantizeRow{"q", &QuantizeArguments::q, quantize_queries, quantized_from, false, true},
    QuantizeRow{"k", &QuantizeArguments::k, quantize_keys, quantized_from, false, true},
    QuantizeRow{"v", &QuantizeArguments::v, quantize_values, quantized_from, false, true},
    QuantizeRow{"q_out", &QuantizeArguments::q_out, quantize_queries, quantized_to, true, true},
    QuantizeRow{"k_out", &QuantizeArguments::k_out, quantize_keys, quantized_to, true, true},
    QuantizeRow{"v_out", &QuantizeArguments::v_out, quantize_values, quantized_to, true, true},
    QuantizeRow{"q_descale", &QuantizeArguments::q_descale, quantize_heads, quantizer_numbers, true, false},
    QuantizeRow{"k_descale", &QuantizeArguments::k_descale, quantize_heads, quantizer_numbers, true, false},
    QuantizeRow{"v_descale", &QuantizeArguments::v_descale, quantize_heads, quantizer_numbers, true, false},
    QuantizeRow{"k_mean",
                &QuantizeArguments::k_mean,
                {"batch, heads_kv, head_dim", "heads_kv, head_dim"},
                quantizer_numbers,
                true,
                false},
    QuantizeRow{"v_mean", &QuantizeArguments::v_mean, scales_of_channels, quantizer_numbers, true, false},
    QuantizeRow{"lse_shift",
                &QuantizeArguments::lse_shift,
                {"batch, heads_q, seqlen_q", "heads_q, total_q"},
                quantizer_numbers,
                true,
                false},
    QuantizeRow{"q_norm_weight",
                &QuantizeArguments::q_norm_weight,
                {"head_dim", "head_dim"},
                quantizer_weights,
                false,
                true},
    QuantizeRow{"k_norm_weight",
                &QuantizeArguments::k_norm_weight,
                {"head_dim", "head_dim"},
                quantizer_weights,
                false,
                true},
    QuantizeRow{"cos_sin",
                &QuantizeArguments::cos_sin,
                {"max_pos, rotary_dim", "max_pos, rotary_dim"},
                quantizer_angles,
                false,
                true},
    QuantizeRow{"q_positions",
                &QuantizeArguments::q_positions,
                {"batch, seqlen_q", "total_q"},
                quantizer_positions,
                false,
                false},
    QuantizeRow{"k_positions",
                &QuantizeArguments::k_positions,
                {"batch, seqlen_kv", "total_k"},
                quantizer_positions,
                false,
                false},
    QuantizeRow{"cu_seqlens_q", &QuantizeArguments::cu_seqlens_q, quantize_boundaries, quantizer_lengths,
                false, false},
    QuantizeRow{"cu_seqlens_k", &QuantizeArguments::cu_seqlens_k, quantize_boundaries, quantizer_lengths,
                false, false},
    QuantizeRow{"seqused_q", &QuantizeArguments::seqused_q, quantize_lengths, quantizer_lengths, false,
                false},
    QuantizeRow{"seqused_k", &QuantizeArguments::seqused_k, quantize_lengths, quantizer_lengths, false,
                false},
};

}  // namespace jit
