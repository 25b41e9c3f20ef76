#include "generator/problem/fp8_refusals.h"

#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/functors/functor_node.h"

namespace jit {

namespace {

// Rejects packed rows with an unsupported number of columns.
std::optional<Refusal> refuse_packing(const SpecField& field, const AttentionSpec& spec) {
  const DTypeFacts& stored = facts(spec.key_dtype());
  const auto no = [&](std::string legal, DType instead) {
    return refuse(field, std::string(stored.name), std::move(legal), std::string(to_string(instead)));
  };
  if (stored.row_bytes != 0) {
    const int columns = spec.key_dtype() == DType::latent_656 ? 576 : 512;
    if (spec.head_dim != columns || spec.value_head_dim() != 512)
      return no(fmt::format("has rows of head_dim {} and head_dim_v 512; they are {} and {}", columns,
                            spec.head_dim, spec.value_head_dim()),
                spec.head_dim == 576 ? DType::latent_656 : DType::latent_528);
    if (spec.key_dtype() == DType::latent_584 && spec.sequences_kv != SequenceKind::paged)
      return no(
          fmt::format("has its scales at the end of pages; sequences_kv is {}", to_string(spec.sequences_kv)),
          DType::latent_528);
    return {};
  }
  if (stored.numbers == 1) return {};
  for (const auto& [name, columns] :
       {std::pair{"head_dim", spec.head_dim}, {"head_dim_v", spec.value_head_dim()}}) {
    if (columns > max_packed_head_dim)
      return no(fmt::format("has {} of up to {}; it is {}", name, max_packed_head_dim, columns), DType::int8);
    if (stored.scale_columns != 0 && columns % stored.scale_columns != 0)
      return no(fmt::format("has {} of multiples of {}, which share a scale; it is {}", name,
                            stored.scale_columns, columns),
                DType::int4);
  }
  return {};
}

}  // namespace

std::optional<Refusal> refuse_kv_dtype(const SpecField& field, const AttentionSpec& spec) {
  if (spec.key_dtype() == spec.dtype) return {};
  if (has_fp8_queries(spec)) {
    return refuse(
        field, std::string(to_string(spec.key_dtype())),
        fmt::format("must be that of q, {}: q, k and v of fp8 are of one type", to_string(spec.dtype)),
        std::string(to_string(spec.dtype)));
  }
  if (has_narrow_keys(spec)) return refuse_packing(field, spec);
  std::string legal = fmt::format("must be that of q, {}", to_string(spec.dtype));
  for (const DTypeFacts& row : dtype_table()) {
    if (row.is_stored()) legal += fmt::format(" or {}", row.name);
  }
  return refuse(field, std::string(to_string(spec.key_dtype())), std::move(legal),
                std::string(to_string(DType::fp8_e4m3)));
}

std::optional<Refusal> refuse_values_in_keys(const SpecField& field, const AttentionSpec& spec) {
  const DTypeFacts& stored = facts(spec.key_dtype());
  if (stored.row_bytes != 0 && !spec.values_in_keys)
    return refuse(field, "false",
                  fmt::format("must be true where k is of {}, whose columns are the values", stored.name),
                  "true");
  if (!spec.values_in_keys || (!(stored.is_stored() && stored.row_bytes == 0) && !spec.dropout)) return {};
  return refuse(field, "true",
                spec.dropout ? "must be false with dropout"
                             : fmt::format("must be false where k is of {}: of less than 16 bits there are "
                                           "latent_656, latent_584 and latent_528",
                                           stored.name),
                "false");
}

std::optional<Refusal> refuse_descale(const SpecField& field, const AttentionSpec& spec) {
  const DTypeFacts& stored = facts(spec.key_dtype());
  if (stored.row_bytes != 0 && spec.descale_per != ScaleKind::head)
    return refuse(field, std::string(to_string(spec.descale_per)),
                  fmt::format("must be head with kv_dtype {}, whose rows have their scales", stored.name),
                  "head");
  if (stored.numbers > 1) {
    // Zero points are part of token scales; block scales and token scales would be two of one kind.
    const ScaleKind wanted = stored.scale_columns == 0 ? ScaleKind::token : ScaleKind::head;
    if (spec.descale_per == wanted) return {};
    return refuse(field, std::string(to_string(spec.descale_per)),
                  fmt::format("must be {} with kv_dtype {}", to_string(wanted), stored.name),
                  std::string(to_string(wanted)));
  }
  if (spec.descale_per == ScaleKind::head) return {};
  if (spec.descale_per == ScaleKind::channel) {
    return refuse(
        field, std::string(to_string(spec.descale_per)),
        "must be head, token or block: a channel of q and k is summed over, and one of v has a scale by "
        "v_descale_per",
        "head");
  }
  if (spec.descale_per == ScaleKind::block) {
    if (has_fp8_queries(spec)) return {};
    return refuse(field, std::string(to_string(spec.descale_per)),
                  "is for q, k and v of fp8; beside q of 16 bits k and v have scales of heads or of tokens",
                  has_narrow_keys(spec) ? "token" : "head");
  }
  if (has_narrow_keys(spec)) return {};
  return refuse(
      field, std::string(to_string(spec.descale_per)),
      "is for k and v of 8 or 4 bits: set kv_dtype to fp8_e4m3, fp8_e5m2, int8 or int4, or leave it out",
      "head");
}

std::optional<Refusal> refuse_value_descale(const SpecField& field, const AttentionSpec& spec) {
  if (spec.v_descale_per == ScaleKind::head) return {};
  const std::string value(to_string(spec.v_descale_per));
  if (spec.v_descale_per != ScaleKind::channel) {
    return refuse(
        field, value,
        "must be head or channel: beside q of fp8 a probability cannot take the scale of its value, and "
        "beside q of 16 bits v has scales as descale_per says",
        "head");
  }
  if (has_fp8_queries(spec)) return {};
  return refuse(field, value, "is for q, k and v of fp8: set dtype to fp8_e4m3 or fp8_e5m2, or leave it out",
                "head");
}

std::optional<Refusal> refuse_without_fp8(const SpecField& field, const AttentionSpec& spec) {
  if (!(spec.*std::get<bool AttentionSpec::*>(field.member)) || has_fp8_queries(spec)) return {};
  return refuse(field, "true", "must be false where q is not of fp8, whose quantizer takes means away",
                "false");
}

std::optional<Refusal> refuse_lse_shift(const SpecField& field, const AttentionSpec& spec) {
  if (spec.lse_shift && !only_adds(spec.score)) {
    return refuse(
        field, "true",
        fmt::format("must be false with score {}: it sees scores without the mean of k, and only of scores "
                    "that add, such as alibi and bias, can what they have lost be added to LSE; leave the "
                    "mean in k",
                    spec.score.to_string()),
        "false");
  }
  return refuse_without_fp8(field, spec);
}

std::optional<Refusal> refuse_interpolated_exponentials(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.interpolated_exponentials || has_fp8_queries(spec)) return {};
  return refuse(
      field, "true",
      "is for q, k and v of fp8, whose probabilities are rounded to 8 bits; beside q of 16 bits all "
      "are computed: leave it out, or set dtype to fp8_e4m3 or fp8_e5m2",
      "false");
}

int stored_columns(const AttentionSpec& spec, int head_dim) {
  const DTypeFacts& stored = facts(spec.key_dtype());
  return stored.row_bytes != 0 ? stored.row_bytes : head_dim / stored.numbers;
}

int scale_columns(const AttentionSpec& spec) { return facts(spec.key_dtype()).scale_columns; }

}  // namespace jit
