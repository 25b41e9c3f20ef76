#include <jit/spec_table.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/dtype.h>
#include <jit/error.h>

#include "generator/problem/fp8_refusals.h"
#include "generator/problem/list_table.h"
#include "generator/problem/output_table.h"
#include "generator/problem/sequence_refusals.h"

namespace jit {
namespace {

using Samples = std::vector<AttentionSpec>;
constexpr std::array<std::string_view, 4> all_sequence_kinds = {"dense", "varlen", "paged", "padded"};
// Kinds that a spec may have; the last one is derived from calls.
constexpr std::span sequence_kinds = std::span(all_sequence_kinds).first<3>();
constexpr std::array<std::string_view, 4> scale_kinds = {"head", "token", "channel", "block"};

int int_value(const SpecField& field, const AttentionSpec& spec) {
  return spec.*std::get<int AttentionSpec::*>(field.member);
}

std::string names_of(bool (*is_legal)(const DTypeFacts&)) {
  std::string legal;
  for (const DTypeFacts& row : dtype_table()) {
    if (is_legal(row)) legal += (legal.empty() ? "" : " or ") + std::string(row.name);
  }
  return legal;
}

std::optional<Refusal> refuse_dtype(const SpecField& field, const AttentionSpec& spec) {
  const auto is_legal = [](const DTypeFacts& row) { return row.is_operand || row.is_fp8(); };
  if (is_legal(facts(spec.dtype))) return {};
  return refuse(field, std::string(to_string(spec.dtype)), "must be " + names_of(is_legal), "bf16");
}

std::optional<Refusal> refuse_out_dtype(const SpecField& field, const AttentionSpec& spec) {
  if (!has_fp8_queries(spec)) {
    const std::string own(to_string(spec.dtype)), given(to_string(output_dtype(spec)));
    const bool is_plain = !has_narrow_keys(spec) && !spec.values_in_keys && spec.split_keys == 0;
    const bool may_be_wide = is_plain && spec.sequences_kv != SequenceKind::paged;
    if (given == own || (may_be_wide && output_dtype(spec) == DType::fp32)) return {};
    if (has_quantized_output(spec)) return refuse_quantized_output(field, spec);
    return refuse(field, given,
                  "must be that of q, " + own + ", fp8_e4m3, int8, or fp32 without pages and split_keys",
                  own);
  }
  const auto is_legal = [](const DTypeFacts& row) { return row.is_floating(); };
  if (is_legal(facts(output_dtype(spec)))) return {};
  return refuse(field, std::string(to_string(output_dtype(spec))), "must be " + names_of(is_legal), "bf16");
}

// `most` applies to 16-bit q.
std::optional<Refusal> refuse_head_dim_up_to(const SpecField& field, const AttentionSpec& spec, int value,
                                             int most) {
  constexpr int least = 8, step = 8;
  const bool is_fp8 = has_fp8_queries(spec);
  if (is_fp8) most = max_fp8_head_dim;
  if (value >= least && value <= most && value % step == 0) return {};
  const int rounded = value > most ? most : std::max(least, (value + step - 1) / step * step);
  return refuse(field, std::to_string(value),
                fmt::format("must be a multiple of {} from {} to {}{}", step, least, most,
                            is_fp8 ? " with fp8 queries" : ""),
                std::to_string(rounded));
}

std::optional<Refusal> refuse_head_dim(const SpecField& field, const AttentionSpec& spec) {
  return refuse_head_dim_up_to(field, spec, spec.head_dim,
                               spec.values_in_keys ? max_latent_head_dim : max_head_dim);
}

std::optional<Refusal> refuse_head_dim_v(const SpecField& field, const AttentionSpec& spec) {
  const int value = spec.value_head_dim();
  if (!spec.values_in_keys && spec.head_dim_v == 0) return std::nullopt;
  if (std::optional<Refusal> refusal = refuse_head_dim_up_to(field, spec, value, max_head_dim))
    return refusal;
  if (!spec.values_in_keys) return std::nullopt;
  if (value > spec.head_dim) {
    return refuse(field, std::to_string(value),
                  fmt::format("must be at most head_dim = {} with values_in_keys", spec.head_dim),
                  std::to_string(spec.head_dim));
  }
  constexpr int step = 128;
  if (spec.head_dim <= max_head_dim || value % step == 0) return {};
  return refuse(field, std::to_string(value),
                fmt::format("must be a multiple of {} where head_dim is above {}", step, max_head_dim),
                std::to_string(std::max(step, value / step * step)));
}

std::optional<Refusal> refuse_ratio(const SpecField& field, const AttentionSpec& spec) {
  if (spec.gqa_ratio >= 1) return {};
  return refuse(field, std::to_string(spec.gqa_ratio), "must be at least 1 (query heads per KV head)", "1");
}

std::optional<Refusal> refuse_alignment(const SpecField& field, const AttentionSpec& spec) {
  constexpr std::array legal = {16, 8, 4, 2};
  if (spec.alignment != 16 && spec.head_dim > max_head_dim) {
    return refuse(field, std::to_string(spec.alignment),
                  fmt::format("must be 16 bytes where head_dim is above {}", max_head_dim), "16");
  }
  if (std::find(legal.begin(), legal.end(), spec.alignment) != legal.end()) return {};
  const auto nearest =
      std::find_if(legal.begin(), legal.end(), [&](int value) { return value <= spec.alignment; });
  return refuse(field, std::to_string(spec.alignment), "must be 16, 8, 4 or 2 bytes",
                std::to_string(nearest == legal.end() ? legal.back() : *nearest));
}

std::optional<Refusal> refuse_length(const SpecField& field, const AttentionSpec& spec) {
  const int value = int_value(field, spec);
  if (value < 0)
    return refuse(field, std::to_string(value), "must be positive, or 0 for a length given at run time", "0");
  if (value > 0 && !is_dense(spec))
    return refuse(field, std::to_string(value), "must be 0 where sequences differ in length", "0");
  return {};
}

std::optional<Refusal> refuse_kind(const SpecField& field, const AttentionSpec& spec) {
  if (static_cast<std::size_t>(spec.sequences_kv) < sequence_kinds.size()) return {};
  return refuse(field, std::string(to_string(spec.sequences_kv)), "must be dense, varlen or paged", "dense");
}

std::optional<Refusal> refuse_split_keys(const SpecField& field, const AttentionSpec& spec) {
  constexpr int most = 1 << 20;
  const int value = spec.split_keys;
  if (has_fp8_queries(spec) && value != 0)
    return refuse(field, std::to_string(value), "must be 0 where q is of fp8", "0");
  if (value >= 0 && value <= most && value % split_keys_step == 0) return {};
  const int within = std::clamp(value, value > 0 ? split_keys_step : 0, most);
  const int rounded = (within + split_keys_step / 2) / split_keys_step * split_keys_step;
  return refuse(field, std::to_string(value),
                fmt::format("must be a multiple of {} up to {}, or 0 for sums that depend on the batch",
                            split_keys_step, most),
                std::to_string(rounded));
}

std::optional<Refusal> refuse_dropout(const SpecField& field, const AttentionSpec& spec) {
  const bool has_fp8 = has_narrow_keys(spec);
  if (!spec.dropout || (!has_fp8 && spec.sequences_kv != SequenceKind::paged && spec.split_keys == 0))
    return {};
  return refuse(field, "true",
                has_fp8 ? fmt::format("must be false where k and v are of {}",
                                      facts(spec.key_dtype()).is_fp8() ? "fp8" : to_string(spec.key_dtype()))
                        : "must be false where keys are paged, or there are split_keys",
                "false");
}

std::optional<Refusal> refuse_scale(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.softmax_scale || (*spec.softmax_scale > 0 && *spec.softmax_scale <= max_softmax_scale)) return {};
  return refuse(
      field, fmt::format("{}", *spec.softmax_scale),
      fmt::format("must be positive and at most {:.0f}: with more, q and k of magnitude 1 have scores that "
                  "fp32 does not tell apart; scale q or k instead",
                  max_softmax_scale),
      fmt::format("{}", 1 / std::sqrt(static_cast<float>(std::max(1, spec.head_dim)))));
}

Samples mask_samples() {
  const FunctorText text{.name = "t", .body = "return true;"};
  FunctorText body = text, constant = text, tensor = text;
  body.body = "return q > k;";
  constant.constants = {{"c", 1.0}};
  tensor.tensors = {{"c", DType::fp32}};
  return {{.mask = mask::causal()},
          {.mask = mask::causal(Alignment::top_left)},
          {.mask = mask::causal_per_request()},
          {.mask = mask::draft_tree()},
          {.mask = mask::sliding_window(1, 2)},
          {.mask = mask::sliding_window(2, 1)},
          {.mask = mask::prefix(1)},
          {.mask = mask::prefix(2)},
          {.mask = mask::prefix_lengths()},
          {.mask = mask::document()},
          {.mask = mask::tree()},
          {.mask = mask::block_mask(64, 64)},
          {.mask = mask::block_mask(64, 128)},
          {.mask = mask::block_mask(64, 64, mask::causal())},
          {.mask = mask::block_scores(64, 64)},
          {.mask = mask::text(text)},
          {.mask = mask::text(body)},
          {.mask = mask::text(constant)},
          {.mask = mask::text(tensor)}};
}

Samples score_samples() {
  return {{.score = score::alibi()},
          {.score = score::softcap(3)},
          {.score = score::softcap(std::nextafter(3.0f, 4.0f))},
          {.score = score::bias()},
          {.score = score::bias(DType::fp16)}};
}

AttentionSpec fp8_base() { return {.dtype = DType::fp8_e4m3}; }

constexpr std::array fields = {
    SpecField{.name = "dtype",
              .member = &AttentionSpec::dtype,
              .doc = "element type of q, k, v and o: bf16, fp16, fp8_e4m3 or fp8_e5m2; kv_dtype and "
                     "out_dtype override it; sums are fp32",
              .record_name = "dtype",
              .text_label = "",
              .name_label = "",
              .is_always_shown = true,
              .refusal = refuse_dtype,
              .samples = [] { return Samples{{.dtype = DType::fp16}}; }},
    SpecField{.name = "head_dim",
              .member = &AttentionSpec::head_dim,
              .doc = "columns of q and k: a multiple of 8 from 8 to 512, to 256 with FP8 q, to 576 with "
                     "values_in_keys",
              .record_name = "head_dim",
              .comment = "columns of q and k",
              .text_label = " d",
              .name_label = "_d",
              .is_always_shown = true,
              .refusal = refuse_head_dim,
              .samples = [] { return Samples{{.head_dim = 64}}; }},
    SpecField{.name = "head_dim_v",
              .member = &AttentionSpec::head_dim_v,
              .doc = "columns of v and o, by the same rule; default: head_dim",
              .record_name = "head_dim_v",
              .comment = "columns of v and o",
              .text_label = "/",
              .name_label = "v",
              .effective = [](const AttentionSpec& spec) { return spec.value_head_dim(); },
              .refusal = refuse_head_dim_v,
              .samples = [] { return Samples{{.head_dim_v = 64}}; }},
    SpecField{.name = "gqa_ratio",
              .member = &AttentionSpec::gqa_ratio,
              .doc = "query heads per KV head",
              .record_name = "gqa_ratio",
              .comment = "query heads per KV head",
              .text_label = " gqa",
              .name_label = "_gqa",
              .refusal = refuse_ratio,
              .samples = [] { return Samples{{.gqa_ratio = 2}}; }},
    SpecField{.name = "alignment",
              .member = &AttentionSpec::alignment,
              .doc = "alignment of every row of q, k, v and o in bytes: 16, 8, 4 or 2; 16 is fastest",
              .record_name = "alignment",
              .comment = "bytes, of every row in global memory",
              .text_label = " align",
              .refusal = refuse_alignment,
              .samples = [] { return Samples{{.alignment = 8}}; }},
    SpecField{.name = "seqlen_q",
              .member = &AttentionSpec::seqlen_q,
              .doc = "number of queries to bake into the kernel; 0: given at run time",
              .is_size = true,
              .record_name = "baked_seqlen_q",
              .comment = "0: a run-time argument",
              .text_label = " seqlen_q=",
              .refusal = refuse_length,
              .samples = [] { return Samples{{.seqlen_q = 128}}; }},
    SpecField{.name = "seqlen_kv",
              .member = &AttentionSpec::seqlen_kv,
              .doc = "number of keys to bake into the kernel; 0: given at run time",
              .is_size = true,
              .record_name = "baked_seqlen_kv",
              .comment = "0: a run-time argument",
              .text_label = " seqlen_kv=",
              .refusal = refuse_length,
              .samples = [] { return Samples{{.seqlen_kv = 128}}; }},
    SpecField{.name = "sequences_q",
              .member = &AttentionSpec::sequences_q,
              .doc = "layout of q and o: dense or varlen",
              .record_name = "sequences_q",
              .comment = "layout of q and o",
              .text_label = " q=",
              .name_label = "_q_",
              .refusal = refuse_paged_queries,
              .samples = [] { return Samples{{.sequences_q = SequenceKind::varlen}}; }},
    SpecField{.name = "sequences_kv",
              .member = &AttentionSpec::sequences_kv,
              .doc = "layout of k and v: dense, varlen or paged",
              .record_name = "sequences_kv",
              .comment = "layout of k and v",
              .text_label = " kv=",
              .name_label = "_kv_",
              .refusal = refuse_kind,
              .samples = [] { return Samples{{.sequences_kv = SequenceKind::varlen}}; }},
    SpecField{.name = "page_size",
              .member = &AttentionSpec::page_size,
              .doc = "keys in a page, 1 to 65536; 0 unless sequences_kv is paged",
              .record_name = "page_size",
              .comment = "keys in a page; 0: no pages",
              .text_label = " page",
              .name_label = "_page",
              .refusal = refuse_page_size,
              .samples =
                  [] {
                    return Samples{{.sequences_kv = SequenceKind::paged, .page_size = 32},
                                   {.sequences_kv = SequenceKind::paged, .page_size = 1}};
                  },
              .base = [] { return AttentionSpec{.sequences_kv = SequenceKind::paged, .page_size = 16}; }},
    SpecField{.name = "sinks",
              .member = &AttentionSpec::sinks,
              .doc = "whether each query head has a sink: a score without a value that joins the softmax sum "
                     "of each row",
              .record_name = "sinks",
              .comment = "each head has a sink",
              .text_label = " sinks=",
              .name_label = "_sinks_",
              .samples = [] { return Samples{{.sinks = true}}; }},
    SpecField{.name = "dropout",
              .member = &AttentionSpec::dropout,
              .doc = "whether probabilities are dropped at random; calls give rate and seed",
              .record_name = "dropout",
              .comment = "probabilities are dropped at random",
              .text_label = " dropout=",
              .name_label = "_dropout_",
              .is_line_if_set = true,
              .refusal = refuse_dropout,
              .samples = [] { return Samples{{.dropout = true}}; }},
    SpecField{.name = "split_keys",
              .member = &AttentionSpec::split_keys,
              .doc = "keys in a span, a multiple of 64: spans are summed separately, so a request's bits do "
                     "not depend on its batch; 0: they may",
              .record_name = "split_keys",
              .comment = "keys in a span that is summed separately; 0: no spans",
              .text_label = " split_keys=",
              .name_label = "_split",
              .refusal = refuse_split_keys,
              .samples =
                  [] {
                    return Samples{{.split_keys = 512}, {.split_keys = 1024}};
                  }},
    SpecField{.name = "checked",
              .member = &AttentionSpec::checked,
              .doc = "whether calls check lengths and page tables on the device and the mask's functions "
                     "against each other, wait, and refuse errors: slow",
              .record_name = "checked",
              .comment = "arrays on the device are checked",
              .text_label = " checked=",
              .name_label = "_checked_",
              .samples = [] { return Samples{{.checked = true}}; }},
    SpecField{.name = "kv_dtype",
              .member = &AttentionSpec::kv_dtype,
              .doc = "element type of k and v where it differs from dtype: fp8_e4m3, fp8_e5m2, int8, int4, "
                     "nvfp4 or mxfp4",
              .record_name = "kv_dtype",
              .text_label = " kv_dtype=",
              .name_label = "_kv_",
              .is_line_if_set = true,
              .refusal = refuse_kv_dtype,
              .samples =
                  [] {
                    return Samples{{.kv_dtype = DType::fp8_e4m3},
                                   {.kv_dtype = DType::fp8_e5m2},
                                   {.kv_dtype = DType::int8},
                                   {.kv_dtype = DType::nvfp4}};
                  }},
    SpecField{.name = "out_dtype",
              .member = &AttentionSpec::out_dtype,
              .doc = "element type of o. With 16-bit q: dtype (default), fp32, or fp8_e4m3 or int8 with "
                     "scales; with FP8 q: bf16 (default), fp16 or fp32",
              .record_name = "out_dtype",
              .text_label = " out_dtype=",
              .name_label = "_o_",
              .refusal = refuse_out_dtype,
              .samples = [] { return Samples{{.out_dtype = DType::int8}}; }},
    SpecField{
        .name = "descale_per",
        .member = &AttentionSpec::descale_per,
        .doc = "granularity of the scales of 8-bit and 4-bit k and v: head (one scale, one for each KV head, "
               "or one for each batch entry and KV head), token (one for each key and KV head) or, with FP8 "
               "q, block (one for each 64 rows and head)",
        .record_name = "descale_per",
        .comment = "granularity of the scales of k and v",
        .text_label = " descale_per=",
        .name_label = "_scale_",
        .is_line_if_set = true,
        .refusal = refuse_descale,
        .samples = [] { return Samples{{.kv_dtype = DType::fp8_e4m3, .descale_per = ScaleKind::token}}; },
        .base = [] { return AttentionSpec{.kv_dtype = DType::fp8_e4m3}; }},
    SpecField{
        .name = "v_descale_per",
        .member = &AttentionSpec::v_descale_per,
        .doc = "granularity of the scales of v with FP8 q: head, as for descale_per, or channel (one for "
               "each KV head and column, for all or for each batch entry)",
        .record_name = "v_descale_per",
        .comment = "granularity of the scales of v",
        .text_label = " v_descale_per=",
        .name_label = "_v_scale_",
        .is_line_if_set = true,
        .refusal = refuse_value_descale,
        .samples = [] { return Samples{{.dtype = DType::fp8_e4m3, .v_descale_per = ScaleKind::channel}}; },
        .base = fp8_base},
    SpecField{
        .name = "v_mean",
        .member = &AttentionSpec::v_mean,
        .doc = "whether the column means of FP8 v were subtracted; calls give them, and they are added to o",
        .record_name = "v_mean",
        .comment = "column means were subtracted from v",
        .text_label = " v_mean=",
        .name_label = "_v_mean_",
        .is_line_if_set = true,
        .refusal = refuse_without_fp8,
        .samples = [] { return Samples{{.dtype = DType::fp8_e4m3, .v_mean = true}}; },
        .base = fp8_base},
    SpecField{.name = "lse_shift",
              .member = &AttentionSpec::lse_shift,
              .doc = "whether the mean of FP8 k was subtracted; calls give the loss of each query's scores, "
                     "which is added to LSE",
              .record_name = "lse_shift",
              .comment = "calls give what is added to LSE",
              .text_label = " lse_shift=",
              .name_label = "_lse_shift_",
              .is_line_if_set = true,
              .refusal = refuse_lse_shift,
              .samples = [] { return Samples{{.dtype = DType::fp8_e4m3, .lse_shift = true}}; },
              .base = fp8_base},
    SpecField{.name = "values_in_keys",
              .member = &AttentionSpec::values_in_keys,
              .doc = "whether values are the first head_dim_v columns of keys, as in the latent cache of "
                     "MLA; calls then have no v",
              .record_name = "values_in_keys",
              .comment = "values are the first columns of keys",
              .text_label = " values_in_keys=",
              .name_label = "_mla_",
              .is_line_if_set = true,
              .refusal = refuse_values_in_keys,
              .samples = [] { return Samples{{.head_dim_v = 64, .values_in_keys = true}}; },
              .base = [] { return AttentionSpec{.head_dim_v = 64}; }},
    SpecField{
        .name = "interpolated_exponentials",
        .member = &AttentionSpec::interpolated_exponentials,
        .doc = "whether some FP8 probabilities are interpolated, which is faster and less exact",
        .record_name = "interpolated_exponentials",
        .comment = "some probabilities are interpolated",
        .text_label = " interpolated_exponentials=",
        .name_label = "_interpolated_",
        .is_line_if_set = true,
        .refusal = refuse_interpolated_exponentials,
        .samples = [] { return Samples{{.dtype = DType::fp8_e4m3, .interpolated_exponentials = true}}; },
        .base = fp8_base},
    position_spec_fields[0],
    position_spec_fields[1],
    key_arrivals_field,
    list_spec_fields[0],
    list_spec_fields[1],
    list_spec_fields[2],
    output_spec_fields[0],
    output_spec_fields[1],
    output_spec_fields[2],
    output_spec_fields[3],
    output_spec_fields[4],
    SpecField{.name = "mask",
              .member = &AttentionSpec::mask,
              .doc = "the keys that a query sees",
              .record_name = "mask",
              .text_label = " mask=",
              .name_label = "_",
              .samples = mask_samples},
    SpecField{.name = "score",
              .member = &AttentionSpec::score,
              .doc = "functions applied to a score before the softmax",
              .record_name = "score",
              .text_label = " score=",
              .name_label = "_",
              .samples = score_samples},
    output_functor_field,
    SpecField{.name = "softmax_scale",
              .member = &AttentionSpec::softmax_scale,
              .doc = "factor of q·k, positive, at most 100000; default: 1/sqrt(head_dim)",
              .is_baked = false,
              .refusal = refuse_scale,
              .samples =
                  [] {
                    return Samples{{.softmax_scale = 0.7f}, {.softmax_scale = 0.25f}};
                  }},
};

// Names every member, so that a spec with a new one, or one without a row, does not compile here.
auto members_of(const AttentionSpec& spec) {
  const auto& [dtype, head_dim, head_dim_v, gqa_ratio, alignment, seqlen_q, seqlen_kv, sequences_q,
               sequences_kv, page_size, sinks, dropout, split_keys, checked, kv_dtype, out_dtype, descale_per,
               v_descale_per, v_mean, lse_shift, values_in_keys, interpolated_exponentials, q_positions,
               k_positions, key_arrivals, list_block, list_slots, list_queries, max_logit, row_max,
               mean_score, o_descale, running_lse, mask, score, output, softmax_scale] = spec;
  return std::tie(dtype, head_dim, head_dim_v, gqa_ratio, alignment, seqlen_q, seqlen_kv, sequences_q,
                  sequences_kv, page_size, sinks, dropout, split_keys, checked, kv_dtype, out_dtype,
                  descale_per, v_descale_per, v_mean, lse_shift, values_in_keys, interpolated_exponentials,
                  q_positions, k_positions, key_arrivals, list_block, list_slots, list_queries, max_logit,
                  row_max, mean_score, o_descale, running_lse, mask, score, output, softmax_scale);
}
static_assert(fields.size() == std::tuple_size_v<decltype(members_of(AttentionSpec()))>);

std::uint64_t word(DType value) { return static_cast<std::uint64_t>(value); }
std::uint64_t word(int value) { return static_cast<std::uint64_t>(value); }
std::uint64_t word(bool value) { return value ? 1 : 0; }
std::uint64_t word(SequenceKind value) { return static_cast<std::uint64_t>(value); }
std::uint64_t word(ScaleKind value) { return static_cast<std::uint64_t>(value); }
std::uint64_t word(std::optional<DType> value) { return value ? 1 + static_cast<std::uint64_t>(*value) : 0; }
std::uint64_t word(const Mask& value) { return value.hash(); }
std::uint64_t word(const Score& value) { return value.hash(); }
std::uint64_t word(const OutputFunctor& value) { return value.hash(); }
std::uint64_t word(std::optional<float> value) {
  return value ? std::uint64_t{1} << 32 | std::bit_cast<std::uint32_t>(*value) : 0;
}
std::string text(DType value) { return std::string(to_string(value)); }
std::string text(int value) { return std::to_string(value); }
std::string text(bool value) { return value ? "true" : "false"; }
std::string text(SequenceKind value) { return std::string(to_string(value)); }
std::string text(ScaleKind value) { return std::string(to_string(value)); }
std::string text(const Mask& value) { return value.to_string(); }
std::string text(const Score& value) { return value.to_string(); }
std::string text(const OutputFunctor& value) { return value.to_string(); }
std::string text(std::optional<float> value) { return value ? fmt::format("{}", *value) : "default"; }

// The value of a member of `spec`.
template <class Value>
std::string text(Value AttentionSpec::*member, const AttentionSpec& spec) {
  return text(spec.*member);
}
std::string text(std::optional<DType> AttentionSpec::*member, const AttentionSpec& spec) {
  return text(member == &AttentionSpec::out_dtype ? output_dtype(spec) : spec.key_dtype());
}

}  // namespace

std::string_view to_string(SequenceKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < all_sequence_kinds.size() ? all_sequence_kinds[index] : "unknown";
}

SequenceKind parse_sequence_kind(std::string_view text) {
  const auto found = std::find(sequence_kinds.begin(), sequence_kinds.end(), text);
  if (found != sequence_kinds.end()) return static_cast<SequenceKind>(found - sequence_kinds.begin());
  throw Error(
      ErrorCode::invalid_argument, "parse", "sequences",
      fmt::format("'{}' is no kind of sequences; it is one of {}", text, fmt::join(sequence_kinds, ", ")));
}

std::string_view to_string(ScaleKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < scale_kinds.size() ? scale_kinds[index] : "unknown";
}

ScaleKind parse_scale_kind(std::string_view text) {
  const auto found = std::find(scale_kinds.begin(), scale_kinds.end(), text);
  if (found != scale_kinds.end()) return static_cast<ScaleKind>(found - scale_kinds.begin());
  throw Error(ErrorCode::invalid_argument, "parse", "descale_per",
              fmt::format("'{}' is no kind of scales; it is one of {}", text, fmt::join(scale_kinds, ", ")));
}

bool is_dense(const AttentionSpec& spec) {
  return spec.sequences_q == SequenceKind::dense && spec.sequences_kv == SequenceKind::dense;
}

bool has_narrow_keys(const AttentionSpec& spec) { return facts(spec.key_dtype()).is_stored(); }

bool has_fp8_queries(const AttentionSpec& spec) { return facts(spec.dtype).is_fp8(); }

bool is_plain(const AttentionSpec& spec) {
  // Dense sequences with sinks may have a padding on the left.
  return is_dense(spec) && !spec.sinks && !(spec.values_in_keys && spec.split_keys != 0) &&
         spec.key_dtype() == spec.dtype;
}

std::span<const SpecField> spec_fields() { return fields; }

std::string value_text(const SpecField& field, const AttentionSpec& spec) {
  if (field.effective != nullptr) return std::to_string(field.effective(spec));
  return std::visit([&](auto member) { return text(member, spec); }, field.member);
}

std::string key_text(const SpecField& field, const AttentionSpec& spec) {
  const bool is_functor = std::holds_alternative<Mask AttentionSpec::*>(field.member) ||
                          std::holds_alternative<Score AttentionSpec::*>(field.member) ||
                          std::holds_alternative<OutputFunctor AttentionSpec::*>(field.member);
  // User texts are shown by name, so add a hash.
  return is_functor ? fmt::format("{} {:016x}", value_text(field, spec), value_word(field, spec))
                    : value_text(field, spec);
}

std::uint64_t value_word(const SpecField& field, const AttentionSpec& spec) {
  return std::visit([&](auto member) { return word(spec.*member); }, field.member);
}

bool is_default(const SpecField& field, const AttentionSpec& spec) {
  AttentionSpec plain = spec;
  std::visit([&](auto member) { plain.*member = AttentionSpec().*member; }, field.member);
  return key_text(field, plain) == key_text(field, spec);
}

DType input_dtype(const AttentionSpec& spec) { return spec.dtype; }

DType output_dtype(const AttentionSpec& spec) {
  return spec.out_dtype.value_or(has_fp8_queries(spec) ? DType::bf16 : spec.dtype);
}

}  // namespace jit
