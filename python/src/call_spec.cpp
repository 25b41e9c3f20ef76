#include "call_spec.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "argument_names.h"
#include "array.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

// The granularity of the scales of keys and values, from the scales' shapes.
ScaleKind kind_by_shape(const AttentionArguments& arguments, const AttentionSpec& spec) {
  // Values with fp8 queries have no scale per row.
  const bool has_fp8_q = has_fp8_queries(spec);
  if (has_fp8_q && arguments.q_descale.rank > 2) {
    // With one row and one block, both granularities have the same shape.
    const auto is_each = [](const TensorView& scales, const TensorView& rows) {
      return scales.rank < 3 || rows.rank < 4 || scales.shape[1] == rows.shape[1];
    };
    return is_each(arguments.q_descale, arguments.q) && is_each(arguments.k_descale, arguments.k)
               ? ScaleKind::token
               : ScaleKind::block;
  }
  if (has_fp8_q && arguments.k_descale.rank > 2)
    return arguments.k_descale.shape[1] == arguments.k.shape[1] ? ScaleKind::token : ScaleKind::block;
  for (const auto& [name, scales] :
       {std::pair{"k_descale", &arguments.k_descale}, {"v_descale", &arguments.v_descale}}) {
    if (has_fp8_q && scales == &arguments.v_descale) continue;
    if (!scales->is_present()) continue;
    if (scales->rank > 2) return ScaleKind::token;
    if (scales->rank < 2 || spec.sequences_kv != SequenceKind::varlen) return ScaleKind::head;
    const std::int64_t rows = scales->shape[0], keys = arguments.k.shape[0];
    const std::int64_t batch =
        spec.sequences_q == SequenceKind::varlen ? arguments.cu_seqlens_q.shape[0] - 1 : arguments.q.shape[0];
    const std::int64_t blocks = (keys + scale_block_rows - 1) / scale_block_rows;
    // Only a coincidental number of requests has this many: quantize_qkv states its scales' granularity.
    if (has_fp8_q && rows == blocks && rows != keys && rows != batch) return ScaleKind::block;
    if (rows != keys || rows == 1) return ScaleKind::head;  // equivalent for a single key
    if (rows != batch) return ScaleKind::token;
    refuse(name, fmt::format("has {} rows, and there are as many requests as keys in all; say with "
                             "descale_per=\"head\" or \"token\" whose they are",
                             rows));
  }
  return ScaleKind::head;
}

// The granularity of FP8 values' scales with FP8 q, from their shape.
ScaleKind value_kind_by_shape(const AttentionArguments& arguments, const AttentionSpec& spec) {
  const TensorView& scales = arguments.v_descale;
  if (!has_fp8_queries(spec) || !scales.is_present() || scales.rank < 2) return ScaleKind::head;
  if (scales.rank > 2) return ScaleKind::channel;
  const std::int64_t heads = arguments.k.shape[arguments.k.rank - 2], columns = spec.head_dim_v;
  if (scales.shape[0] != heads || scales.shape[1] != columns) return ScaleKind::head;
  if (heads != columns) return ScaleKind::channel;
  const std::int64_t batch =
      spec.sequences_q == SequenceKind::varlen ? arguments.cu_seqlens_q.shape[0] - 1 : arguments.q.shape[0];
  if (heads != batch) return ScaleKind::channel;
  refuse("v_descale",
         fmt::format("has shape ({}, {}), and there are as many requests as heads and columns; give "
                     "(1, {}, {}) where it is of columns",
                     heads, columns, heads, columns));
}

// Checks values that are k's first columns, naming the call's arguments instead of the spec's fields.
void check_latents(const AttentionSpec& spec, bool has_kv_dtype) {
  if (!spec.values_in_keys) return;
  if (has_narrow_keys(spec) && facts(spec.key_dtype()).row_bytes == 0)
    refuse(has_kv_dtype ? "kv_dtype" : "k",
           fmt::format("is {}; with head_dim_v, by which values are k's first columns, k must be bf16, fp16, "
                       "latent_656, latent_584 or latent_528",
                       to_string(spec.kv_dtype.value_or(spec.dtype))));
  if (spec.dropout)
    refuse("dropout_p",
           "was given beside head_dim_v, by which values are k's first columns, and there is no dropout "
           "of such values: leave one of the two out");
}

}  // namespace

AttentionSpec spec_of_arrays(const Call& call, nb::handle mask, nb::handle score, nb::handle output,
                             nb::handle softmax_scale, int split_keys, nb::handle descale_per,
                             std::optional<DType> out_dtype, std::optional<int> head_dim_v,
                             bool interpolated_exponentials) {
  const TensorView &q = call.q(), &k = call.k(), &v = call.v();
  const auto head_dim = [](const TensorView& view, const char* name) {
    const std::int64_t size = view.shape[view.rank - 1];
    if (size < 0 || size > 65536) refuse(name, fmt::format("has head_dim {}", size));
    return static_cast<int>(size);
  };
  AttentionSpec spec;
  spec.dtype = q.dtype;
  spec.head_dim = head_dim(q, "q");
  spec.values_in_keys = head_dim_v.has_value();
  spec.head_dim_v = head_dim_v ? *head_dim_v : head_dim(v, "v") * facts(v.dtype).numbers;
  if (!head_dim_v && spec.head_dim_v == 0) refuse("v", "has head_dim 0");
  spec.gqa_ratio = gqa_ratio(q, k);
  spec.alignment = call.alignment();
  const AttentionArguments& arguments = call.arguments();
  if (arguments.cu_seqlens_q.is_present()) spec.sequences_q = SequenceKind::varlen;
  if (arguments.cu_seqlens_k.is_present()) spec.sequences_kv = SequenceKind::varlen;
  if (arguments.page_table.is_present()) set_pages(spec, k, arguments.cu_seqlens_k.is_present());
  if (has_fp8_queries(spec) && k.dtype != q.dtype && !call.has_kv_dtype())
    refuse("k", fmt::format("is {}; it must be {}, as q is: q, k and v of fp8 are of one type",
                            to_string(k.dtype), to_string(q.dtype)));
  if (k.dtype != q.dtype) spec.kv_dtype = k.dtype;
  spec.out_dtype = out_dtype;
  if (!out_dtype && has_fp8_queries(spec) && call.arguments().o.is_present())
    spec.out_dtype = call.arguments().o.dtype;
  const std::optional<ScaleKind> given_kind = scale_kind_of(descale_per);
  spec.descale_per = given_kind ? *given_kind : kind_by_shape(arguments, spec);
  spec.v_descale_per = value_kind_by_shape(arguments, spec);
  spec.v_mean = arguments.v_mean.is_present();
  spec.lse_shift = arguments.lse_shift.is_present();
  spec.sinks = arguments.sinks.is_present();
  spec.dropout = arguments.dropout_p != 0;
  check_has_effect(arguments.dropout_p, arguments.rng_state);
  if (given_kind && !has_narrow_keys(spec) && !has_fp8_queries(spec))
    refuse("descale_per",
           fmt::format("was given, and q, k and v are {}, which no scales belong to: leave it out",
                       to_string(spec.dtype)));
  spec.q_positions = call.has_tensor("q_positions");
  spec.k_positions = call.has_tensor("k_positions");
  spec.key_arrivals = call.has_tensor("key_arrivals");
  spec.split_keys = split_keys;
  spec.interpolated_exponentials = interpolated_exponentials;
  call.ask_for_outputs(spec);
  check_dropout(spec);
  check_latents(spec, call.has_kv_dtype());
  spec.mask = mask_of(mask);
  spec.score = score_of(score);
  spec.output = output_of(output);
  spec.softmax_scale = scale_of(softmax_scale);
  return spec;
}

Error by_arguments(const Error& error, const CallInputs& inputs, bool has_descale_per, bool has_head_dim_v) {
  const bool has_pages = inputs.sequences.has(&AttentionArguments::page_table);
  return renamed_field(error, {{"dtype", "q"},
                               {"head_dim", "q"},
                               {"head_dim_v", has_head_dim_v ? "head_dim_v" : "v"},
                               {"gqa_ratio", "k"},
                               {"alignment", "q"},
                               {"sequences_q", "cu_seqlens_q"},
                               {"sequences_kv", has_pages ? "page_table" : "cu_seqlens_k"},
                               {"page_size", "k"},
                               {"kv_dtype", inputs.kv_dtype ? "kv_dtype" : "k"},
                               {"values_in_keys", "head_dim_v"},
                               {"descale_per", has_descale_per ? "descale_per" : "k_descale"},
                               {"v_descale_per", "v_descale"},
                               {"dropout", "dropout_p"}});
}

void set_pages(AttentionSpec& spec, const TensorView& k, bool is_varlen) {
  if (is_varlen) refuse("page_table", "was given beside cu_seqlens_k; keys are paged or varlen, not both");
  if (k.shape[1] == 0) refuse("k", fmt::format("has pages of no row: {}", k.to_string()));
  spec.sequences_kv = SequenceKind::paged;
  spec.page_size = static_cast<int>(std::clamp<std::int64_t>(k.shape[1], 0, max_page_size + 1));
}

int gqa_ratio(const TensorView& q, const TensorView& k) {
  const std::int64_t heads_q = q.shape[q.rank - 2], heads_kv = k.shape[k.rank - 2];
  if (heads_q < 0 || heads_kv < 0 || (heads_kv == 0) != (heads_q == 0) ||
      (heads_kv != 0 && heads_q % heads_kv != 0))
    refuse("k",
           fmt::format("has {} heads and q has {}; the number of q's must be a multiple of k's: give k {}",
                       heads_kv, heads_q, heads_q > 0 ? "1 head, or a divisor of q's" : "none"));
  return heads_kv == 0 ? 1 : static_cast<int>(std::min<std::int64_t>(heads_q / heads_kv, 1 << 30));
}

void check_has_effect(double dropout_p, const TensorView& rng_state) {
  if (dropout_p == 0 && rng_state.is_present())
    refuse("rng_state",
           "was given, and dropout_p is 0, by which nothing is dropped: leave it out, or give a rate");
}

void check_dropout(const AttentionSpec& spec) {
  if (!spec.dropout) return;
  const std::pair<bool, const char*> arguments[] = {
      {spec.sequences_kv == SequenceKind::paged, "page_table"},
      {spec.split_keys != 0, "split_keys"},
  };
  for (const auto& [given, name] : arguments) {
    if (given)
      refuse(
          name,
          "was given beside dropout_p, and there is no dropout of paged keys or with split_keys: leave one "
          "of the two out");
  }
}

}  // namespace jit::python
