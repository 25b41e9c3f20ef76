#include "generator/problem/sequence_refusals.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "generator/functors/functor_node.h"
#include "generator/problem/fp8_refusals.h"

namespace jit {

std::optional<Refusal> refuse_paged_queries(const SpecField& field, const AttentionSpec& spec) {
  if (spec.sequences_q == SequenceKind::dense || spec.sequences_q == SequenceKind::varlen) return {};
  return refuse(field, std::string(to_string(spec.sequences_q)), "must be dense or varlen", "varlen");
}

std::optional<Refusal> refuse_page_size(const SpecField& field, const AttentionSpec& spec) {
  const bool is_paged = spec.sequences_kv == SequenceKind::paged;
  if (!is_paged && spec.page_size != 0) {
    return refuse(field, std::to_string(spec.page_size), "must be 0 unless sequences_kv is paged", "0");
  }
  if (is_paged && (spec.page_size < 1 || spec.page_size > max_page_size)) {
    return refuse(field, std::to_string(spec.page_size),
                  fmt::format("must be from 1 to {} when sequences_kv is paged", max_page_size), "16");
  }
  return {};
}

// Rejects masks with score bits: these belong to tiles of adjacent rows.
std::optional<Refusal> refuse_positions(const SpecField& field, const AttentionSpec& spec) {
  const bool is_set = spec.*std::get<bool AttentionSpec::*>(field.member);
  if (!is_set || !mask_bit_sides(spec.mask)) return {};
  return refuse(field, "true", "must be false with block_scores; block_mask serves positions", "false");
}

// Rejects masks with draft tables: their rows are the call's own queries.
std::optional<Refusal> refuse_query_positions(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.q_positions) return {};
  const std::vector<FunctorTensorSpec> tensors = spec.mask.tensors();
  const bool reads_drafts = std::any_of(tensors.begin(), tensors.end(), [](const FunctorTensorSpec& tensor) {
    return tensor.name == "draft_tree";
  });
  if (!reads_drafts) return refuse_positions(field, spec);
  return refuse(field, "true", "must be false with draft_tree, whose rows are a call's own queries", "false");
}

// Arriving pieces are of dense sequences.
std::optional<Refusal> refuse_key_arrivals(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.key_arrivals) return {};
  const bool is_dense = spec.sequences_q == SequenceKind::dense && spec.sequences_kv == SequenceKind::dense;
  if (is_dense && !has_narrow_keys(spec) && !has_fp8_queries(spec) && spec.split_keys == 0) return {};
  return refuse(field, "true",
                "must be false unless sequences are dense, q, k and v have 16 bits, and split_keys is 0",
                "false");
}

}  // namespace jit
