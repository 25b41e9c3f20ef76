// The tensors of a call: each row has all checks of one tensor, and sets its parameter.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <jit/attention.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/tensors/dims.h"
#include "templates/base/params.cuh"

namespace jit {

/// Alignment in bytes of rows of all latent types.
inline constexpr int latent_alignment = 8;

/// Whether calls for a spec take a tensor.
enum class Presence {
  required,
  optional,
  none,  ///< rejected if given
};

/// A tensor of AttentionArguments.
struct ArgumentRow {
  std::string_view name;
  TensorView AttentionArguments::*view;
  Dims (*dims)(const AttentionSpec&);
  DType (*dtype)(const AttentionSpec&);
  void (*set)(AttentionParams&, void*, const TensorStrides&);
  Presence (*presence)(const AttentionSpec&) = [](const AttentionSpec&) { return Presence::required; };
  /// The spec field or value that the tensor requires, for errors.
  std::string_view needs = {};
  bool is_output = false;  ///< written: must not overlap other tensors
  /// Whether calls for a spec also read it.
  bool (*is_read)(const AttentionSpec&) = [](const AttentionSpec&) { return false; };
  /// Whether rows have spec.alignment and dense elements; otherwise only elements are aligned.
  bool has_aligned_rows = true;
  /// Without aligned rows: whether the last dimension has stride 1; one without a stride always must.
  bool has_dense_last = false;
  /// Whether rows that are a multiple of 4 bytes long must be aligned to 4.
  bool has_word_rows = false;
};

/// Sets a pointer of the parameters, and its strides.
template <auto data, auto strides>
void set(AttentionParams& params, void* address, const TensorStrides& given) {
  using Pointer = std::remove_reference_t<decltype(params.*data)>;
  params.*data = static_cast<Pointer>(address);
  params.*strides = given;
}

/// Sets a pointer of the sequences' parameters to a dense array.
template <auto data>
void set_sequences(AttentionParams& params, void* address, const TensorStrides&) {
  using Pointer = std::remove_reference_t<decltype(params.sequences.*data)>;
  params.sequences.*data = static_cast<Pointer>(address);
}

/// Sets a pointer to scales, and its strides, in the parameters for 8-bit keys.
template <auto data, auto strides>
void set_descale(AttentionParams& params, void* address, const TensorStrides& given) {
  params.descale.*data = static_cast<const float*>(address);
  params.descale.*strides = given;
}

/// Sets a pointer to block scales, and its strides.
template <auto data, auto strides>
void set_blocks(AttentionParams& params, void* address, const TensorStrides& given) {
  params.descale.*data = static_cast<const unsigned char*>(address);
  params.descale.*strides = given;
}

constexpr bool has_varlen_q(const AttentionSpec& spec) { return spec.sequences_q == SequenceKind::varlen; }
constexpr bool has_varlen_kv(const AttentionSpec& spec) { return spec.sequences_kv == SequenceKind::varlen; }
constexpr bool has_pages(const AttentionSpec& spec) { return spec.sequences_kv == SequenceKind::paged; }

constexpr Presence required_if(bool condition) { return condition ? Presence::required : Presence::none; }
constexpr Presence is_optional(const AttentionSpec&) { return Presence::optional; }

inline DType dtype_int32(const AttentionSpec&) { return DType::int32; }
inline DType dtype_int64(const AttentionSpec&) { return DType::int64; }
inline DType dtype_fp32(const AttentionSpec&) { return DType::fp32; }

inline Dims dims_batch(const AttentionSpec&) { return "batch"; }
inline Dims dims_boundaries(const AttentionSpec&) { return "batch + 1"; }

/// Dimensions of a tensor with elements for each row of k and v.
inline Dims dims_beside_keys(const AttentionSpec& spec, const Dims& paged, const Dims& varlen,
                             const Dims& dense) {
  return has_pages(spec) ? paged : has_varlen_kv(spec) ? varlen : dense;
}

/// Dimensions of tensors like q and like k, with one of the two head dims.
inline Dims dims_of_queries(const AttentionSpec& spec, bool is_value) {
  if (has_varlen_q(spec))
    return is_value ? Dims("total_q, heads_q, head_dim_v") : Dims("total_q, heads_q, head_dim");
  return is_value ? Dims("batch, seqlen_q, heads_q, head_dim_v") : Dims("batch, seqlen_q, heads_q, head_dim");
}
inline Dims dims_of_lse(const AttentionSpec& spec) {
  return has_varlen_q(spec) ? Dims("heads_q, total_q") : Dims("batch, heads_q, seqlen_q");
}
inline Dims dims_of_keys(const AttentionSpec& spec, bool is_value) {
  if (facts(spec.key_dtype()).kind == NumberKind::packed) {
    return is_value ? dims_beside_keys(spec, "pages, page_size, heads_kv, v_row", "total_k, heads_kv, v_row",
                                       "batch, seqlen_kv, heads_kv, v_row")
                    : dims_beside_keys(spec, "pages, page_size, heads_kv, k_row", "total_k, heads_kv, k_row",
                                       "batch, seqlen_kv, heads_kv, k_row");
  }
  if (has_pages(spec)) {
    return is_value ? Dims("pages, page_size, heads_kv, head_dim_v")
                    : Dims("pages, page_size, heads_kv, head_dim");
  }
  if (has_varlen_kv(spec))
    return is_value ? Dims("total_k, heads_kv, head_dim_v") : Dims("total_k, heads_kv, head_dim");
  return is_value ? Dims("batch, seqlen_kv, heads_kv, head_dim_v")
                  : Dims("batch, seqlen_kv, heads_kv, head_dim");
}

/// Alignment in bytes of rows of 8-bit o, whose length is head_dim_v.
inline int bytes_of_quantized_rows(const AttentionSpec& spec) {
  return spec.value_head_dim() % 16 == 0 ? spec.alignment : std::min(spec.alignment, 8);
}

/// Dimensions of the scales of o.
inline Dims dims_of_output_scales(const AttentionSpec& spec) {
  if (spec.o_descale) return dims_of_lse(spec);
  return has_varlen_q(spec) ? Dims("heads_q?, total_q?") : Dims("batch?, heads_q?, seqlen_q?");
}

/// Dimensions of k_descale, and of v_descale if k and v have the same kind of scales.
inline Dims dims_of_scales(const AttentionSpec& spec) {
  if (spec.descale_per == ScaleKind::head) return "[batch?], heads_kv?";
  if (spec.descale_per == ScaleKind::block) {
    if (has_pages(spec)) return "pages, blocks_kv, heads_kv";
    return has_varlen_kv(spec) ? Dims("blocks_kv, heads_kv") : Dims("batch, blocks_kv, heads_kv");
  }
  if (has_pages(spec)) return "pages, page_size, heads_kv";
  return has_varlen_kv(spec) ? Dims("total_k, heads_kv") : Dims("batch, seqlen_kv, heads_kv");
}
inline Dims dims_of_query_scales(const AttentionSpec& spec) {
  if (spec.descale_per == ScaleKind::head) return dims_of_scales(spec);
  if (spec.descale_per == ScaleKind::block)
    return has_varlen_q(spec) ? Dims("blocks_q, heads_q") : Dims("batch, blocks_q, heads_q");
  return has_varlen_q(spec) ? Dims("total_q, heads_q") : Dims("batch, seqlen_q, heads_q");
}
/// Dimensions of a tensor with one element per value column of a KV head.
inline Dims dims_of_value_columns(const AttentionSpec&) { return "[batch?], heads_kv?, head_dim_v"; }
/// With 8-bit q, P has 8 bits, too, and cannot absorb scales of values.
inline Dims dims_of_value_scales(const AttentionSpec& spec) {
  if (spec.v_descale_per == ScaleKind::channel) return dims_of_value_columns(spec);
  return has_fp8_queries(spec) ? Dims("[batch?], heads_kv?") : dims_of_scales(spec);
}
inline Presence presence_of_scales(const AttentionSpec& spec) {
  if (!has_narrow_keys(spec) || facts(spec.key_dtype()).row_bytes != 0) return Presence::none;
  return spec.descale_per != ScaleKind::head ? Presence::required : Presence::optional;
}

/// Dimensions of block scales of columns, one byte each.
inline Dims dims_of_key_blocks(const AttentionSpec& spec) {
  return dims_beside_keys(spec, "pages, page_size, heads_kv, k_blocks", "total_k, heads_kv, k_blocks",
                          "batch, seqlen_kv, heads_kv, k_blocks");
}
inline Dims dims_of_value_blocks(const AttentionSpec& spec) {
  return dims_beside_keys(spec, "pages, page_size, heads_kv, v_blocks", "total_k, heads_kv, v_blocks",
                          "batch, seqlen_kv, heads_kv, v_blocks");
}
inline Presence presence_of_blocks(const AttentionSpec& spec) {
  return required_if(scale_columns(spec) != 0);
}
inline DType dtype_uint8(const AttentionSpec&) { return DType::uint8; }

inline Presence presence_of_query_scales(const AttentionSpec& spec) {
  return has_fp8_queries(spec) ? presence_of_scales(spec) : Presence::none;
}
inline Presence presence_of_value_scales(const AttentionSpec& spec) {
  if (spec.v_descale_per == ScaleKind::channel) return Presence::required;
  return has_fp8_queries(spec) ? Presence::optional : presence_of_scales(spec);
}

/// The type of k and v.
inline DType dtype_of_keys(const AttentionSpec& spec) { return spec.key_dtype(); }

inline constexpr std::array argument_table = {
    ArgumentRow{.name = "q",
                .view = &AttentionArguments::q,
                .dims = [](const AttentionSpec& spec) { return dims_of_queries(spec, false); },
                .dtype = input_dtype,
                .set = set<&AttentionParams::q, &AttentionParams::q_strides>},
    ArgumentRow{.name = "k",
                .view = &AttentionArguments::k,
                .dims = [](const AttentionSpec& spec) { return dims_of_keys(spec, false); },
                .dtype = dtype_of_keys,
                .set = set<&AttentionParams::k, &AttentionParams::k_strides>},
    ArgumentRow{.name = "v",
                .view = &AttentionArguments::v,
                .dims = [](const AttentionSpec& spec) { return dims_of_keys(spec, true); },
                .dtype = dtype_of_keys,
                .set = set<&AttentionParams::v, &AttentionParams::v_strides>,
                .presence = [](const AttentionSpec& spec) { return required_if(!spec.values_in_keys); },
                .needs = "values beside its keys: values_in_keys is true"},
    ArgumentRow{.name = "cu_seqlens_q",
                .view = &AttentionArguments::cu_seqlens_q,
                .dims = dims_boundaries,
                .dtype = dtype_int32,
                .set = set_sequences<&SequenceParams::cu_seqlens_q>,
                .presence = [](const AttentionSpec& spec) { return required_if(has_varlen_q(spec)); },
                .needs = "sequences_q = varlen",
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "cu_seqlens_k",
                .view = &AttentionArguments::cu_seqlens_k,
                .dims = dims_boundaries,
                .dtype = dtype_int32,
                .set = set_sequences<&SequenceParams::cu_seqlens_k>,
                .presence = [](const AttentionSpec& spec) { return required_if(has_varlen_kv(spec)); },
                .needs = "sequences_kv = varlen",
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "seqused_q",
                .view = &AttentionArguments::seqused_q,
                .dims = dims_batch,
                .dtype = dtype_int32,
                .set = set_sequences<&SequenceParams::seqused_q>,
                .presence = is_optional,
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "seqused_k",
                .view = &AttentionArguments::seqused_k,
                .dims = dims_batch,
                .dtype = dtype_int32,
                .set = set_sequences<&SequenceParams::seqused_k>,
                .presence = is_optional,
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "cache_leftpad",
                .view = &AttentionArguments::cache_leftpad,
                .dims = dims_batch,
                .dtype = dtype_int32,
                .set = set_sequences<&SequenceParams::cache_leftpad>,
                .presence = is_optional,
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "page_table",
                .view = &AttentionArguments::page_table,
                .dims = [](const AttentionSpec&) { return Dims("batch, max_pages"); },
                .dtype = dtype_int32,
                .set =
                    [](AttentionParams& params, void* address, const TensorStrides& strides) {
                      params.sequences.page_table = static_cast<const int*>(address);
                      params.sequences.page_table_stride = strides.batch;
                    },
                .presence = [](const AttentionSpec& spec) { return required_if(has_pages(spec)); },
                .needs = "sequences_kv = paged",
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "sinks",
                .view = &AttentionArguments::sinks,
                .dims = [](const AttentionSpec&) { return Dims("heads_q"); },
                .dtype = dtype_fp32,
                .set = set_sequences<&SequenceParams::sinks>,
                .presence = [](const AttentionSpec& spec) { return required_if(spec.sinks); },
                .needs = "sinks = true",
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "q_descale",
                .view = &AttentionArguments::q_descale,
                .dims = dims_of_query_scales,
                .dtype = dtype_fp32,
                .set = set_descale<&DescaleParams::q, &DescaleParams::q_strides>,
                .presence = presence_of_query_scales,
                .needs = "dtype of fp8",
                .has_aligned_rows = false},
    ArgumentRow{.name = "k_descale",
                .view = &AttentionArguments::k_descale,
                .dims = dims_of_scales,
                .dtype = dtype_fp32,
                .set = set_descale<&DescaleParams::k, &DescaleParams::k_strides>,
                .presence = presence_of_scales,
                .needs = "kv_dtype of 8 or 4 bits",
                .has_aligned_rows = false},
    ArgumentRow{.name = "v_descale",
                .view = &AttentionArguments::v_descale,
                .dims = dims_of_value_scales,
                .dtype = dtype_fp32,
                .set = set_descale<&DescaleParams::v, &DescaleParams::v_strides>,
                .presence = presence_of_value_scales,
                .needs = "kv_dtype of 8 or 4 bits",
                .has_aligned_rows = false},
    ArgumentRow{.name = "k_block_scales",
                .view = &AttentionArguments::k_block_scales,
                .dims = dims_of_key_blocks,
                .dtype = dtype_uint8,
                .set = set_blocks<&DescaleParams::k_blocks, &DescaleParams::k_blocks_strides>,
                .presence = presence_of_blocks,
                .needs = "kv_dtype nvfp4 or mxfp4",
                .has_aligned_rows = false,
                .has_dense_last = true,
                .has_word_rows = true},
    ArgumentRow{.name = "v_block_scales",
                .view = &AttentionArguments::v_block_scales,
                .dims = dims_of_value_blocks,
                .dtype = dtype_uint8,
                .set = set_blocks<&DescaleParams::v_blocks, &DescaleParams::v_blocks_strides>,
                .presence = presence_of_blocks,
                .needs = "kv_dtype nvfp4 or mxfp4",
                .has_aligned_rows = false,
                .has_dense_last = true,
                .has_word_rows = true},
    ArgumentRow{.name = "v_mean",
                .view = &AttentionArguments::v_mean,
                .dims = dims_of_value_columns,
                .dtype = dtype_fp32,
                .set = set_descale<&DescaleParams::v_mean, &DescaleParams::v_mean_strides>,
                .presence = [](const AttentionSpec& spec) { return required_if(spec.v_mean); },
                .needs = "v_mean = true",
                .has_aligned_rows = false},
    ArgumentRow{.name = "lse_shift",
                .view = &AttentionArguments::lse_shift,
                .dims = dims_of_lse,
                .dtype = dtype_fp32,
                .set = set_descale<&DescaleParams::lse_shift, &DescaleParams::lse_shift_strides>,
                .presence = [](const AttentionSpec& spec) { return required_if(spec.lse_shift); },
                .needs = "lse_shift = true",
                .has_aligned_rows = false},
    ArgumentRow{.name = "rng_state",
                .view = &AttentionArguments::rng_state,
                .dims = [](const AttentionSpec&) { return Dims("2"); },
                .dtype = dtype_int64,
                .set =
                    [](AttentionParams& params, void* address, const TensorStrides&) {
                      params.dropout.rng_state = static_cast<const unsigned long long*>(address);
                    },
                .presence = [](const AttentionSpec& spec) { return required_if(spec.dropout); },
                .needs = "dropout = true",
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "o",
                .view = &AttentionArguments::o,
                .dims = [](const AttentionSpec& spec) { return dims_of_queries(spec, true); },
                .dtype = output_dtype,
                .set = set<&AttentionParams::o, &AttentionParams::o_strides>,
                .is_output = true},
    ArgumentRow{.name = "lse",
                .view = &AttentionArguments::lse,
                .dims = dims_of_lse,
                .dtype = dtype_fp32,
                .set = set<&AttentionParams::lse, &AttentionParams::lse_strides>,
                .presence = is_optional,
                .is_output = true,
                .has_aligned_rows = false},
    ArgumentRow{.name = "max_logit",
                .view = &AttentionArguments::max_logit,
                .dims = [](const AttentionSpec&) { return Dims("heads_q"); },
                .dtype = dtype_fp32,
                .set = [](AttentionParams& params, void* address,
                          const TensorStrides&) { params.outputs.max_logit = static_cast<float*>(address); },
                .presence = [](const AttentionSpec& spec) { return required_if(spec.max_logit); },
                .needs = "max_logit = true",
                .is_output = true,
                .has_aligned_rows = false,
                .has_dense_last = true},
    ArgumentRow{.name = "row_max",
                .view = &AttentionArguments::row_max,
                .dims = dims_of_lse,
                .dtype = dtype_fp32,
                .set =
                    [](AttentionParams& params, void* address, const TensorStrides& strides) {
                      params.outputs.row_max = static_cast<float*>(address);
                      params.outputs.row_max_strides = strides;
                    },
                .presence = [](const AttentionSpec& spec) { return required_if(spec.row_max); },
                .needs = "row_max = true",
                .is_output = true,
                .has_aligned_rows = false},
    ArgumentRow{
        .name = "o_raw",
        .view = &AttentionArguments::o_raw,
        .dims = [](const AttentionSpec& spec) { return dims_of_queries(spec, true); },
        .dtype = output_dtype,
        .set =
            [](AttentionParams& params, void* address, const TensorStrides& strides) {
              params.outputs.o_raw = address;
              params.outputs.o_raw_strides = strides;
            },
        .presence =
            [](const AttentionSpec& spec) {
              return spec.output.is_none() || has_narrow_keys(spec) || has_quantized_output(spec)
                         ? Presence::none
                         : Presence::optional;
            },
        .needs = "output, beside 16-bit k, v and o",
        .is_output = true},
    ArgumentRow{.name = "mean_score",
                .view = &AttentionArguments::mean_score,
                .dims = dims_of_lse,
                .dtype = dtype_fp32,
                .set =
                    [](AttentionParams& params, void* address, const TensorStrides& strides) {
                      params.outputs.mean_score = static_cast<float*>(address);
                      params.outputs.mean_score_strides = strides;
                    },
                .presence = [](const AttentionSpec& spec) { return required_if(spec.mean_score); },
                .needs = "mean_score = true",
                .is_output = true,
                .has_aligned_rows = false},
    ArgumentRow{.name = "o_descale",
                .view = &AttentionArguments::o_descale,
                .dims = dims_of_output_scales,
                .dtype = dtype_fp32,
                .set =
                    [](AttentionParams& params, void* address, const TensorStrides& strides) {
                      params.outputs.o_descale = static_cast<float*>(address);
                      params.outputs.o_descale_strides = strides;
                    },
                .presence = [](const AttentionSpec& spec) { return required_if(has_quantized_output(spec)); },
                .needs = "out_dtype of fp8_e4m3 or int8",
                .is_output = true,
                .is_read = [](const AttentionSpec& spec) { return !spec.o_descale; },
                .has_aligned_rows = false},
    ArgumentRow{.name = "running_lse",
                .view = &AttentionArguments::running_lse,
                .dims = dims_of_lse,
                .dtype = dtype_fp32,
                .set =
                    [](AttentionParams& params, void* address, const TensorStrides& strides) {
                      params.outputs.running_lse = static_cast<float*>(address);
                      params.outputs.running_lse_strides = strides;
                    },
                .presence = [](const AttentionSpec& spec) { return required_if(spec.running_lse); },
                .needs = "running_lse = true",
                .is_output = true,
                .has_aligned_rows = false}};

/// Dimensions of an output functor's input per element or row of o. Sizes may be 1 to broadcast.
inline Dims dims_of_output_tensor(const AttentionSpec& spec, TensorAccess access) {
  if (access == TensorAccess::as_o)
    return has_varlen_q(spec) ? Dims("total_q?, heads_q?, head_dim_v")
                              : Dims("batch?, seqlen_q?, heads_q?, head_dim_v");
  return has_varlen_q(spec) ? Dims("total_q?, heads_q?") : Dims("batch?, seqlen_q?, heads_q?");
}

/// A row evaluated for a spec.
struct ArgumentRule {
  const ArgumentRow* row;
  Presence presence;
  DType dtype;
  int alignment;  ///< of the first element, in bytes
  Dims dims;
};

/// The table evaluated for a spec once, so that calls need not.
class ArgumentRules {
 public:
  explicit ArgumentRules(const AttentionSpec& spec)
      : ArgumentRules(spec, std::make_index_sequence<argument_table.size()>()) {}

  const ArgumentRule* begin() const { return rules_.data(); }
  const ArgumentRule* end() const { return rules_.data() + rules_.size(); }

 private:
  template <std::size_t... rows>
  ArgumentRules(const AttentionSpec& spec, std::index_sequence<rows...>)
      : rules_{rule(argument_table[rows], spec)...} {}

  static ArgumentRule rule(const ArgumentRow& row, const AttentionSpec& spec) {
    const DType dtype = row.dtype(spec);
    // Rows of latents have the alignment of their format.
    int rows = facts(dtype).row_bytes != 0 ? latent_alignment : spec.alignment;
    if (row.view == &AttentionArguments::o && has_quantized_output(spec))
      rows = bytes_of_quantized_rows(spec);
    return {&row, row.presence(spec), dtype, row.has_aligned_rows ? rows : size_of(dtype), row.dims(spec)};
  }

  std::array<ArgumentRule, argument_table.size()> rules_;
};

}  // namespace jit
