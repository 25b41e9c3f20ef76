#include "generator/problem/list_table.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "generator/functors/functor_tensors.h"
#include "generator/problem/fp8_refusals.h"

namespace jit {

std::optional<Refusal> refuse_lists(const SpecField& field, const AttentionSpec& spec) {
  const int block = spec.list_block;
  if (block == 0) return {};
  const auto refuse_with = [&](std::string rule) {
    return refuse(field, std::to_string(block), std::move(rule), "0");
  };
  if (block < 0 || block > max_list_block)
    return refuse(field, std::to_string(block), fmt::format("must be from 0 to {}", max_list_block), "1");
  if (spec.sequences_q != SequenceKind::varlen)
    return refuse_with("must be 0 unless sequences_q is varlen: a row of lists is that of a row of q");
  if (spec.sequences_kv == SequenceKind::dense)
    return refuse_with("must be 0 unless sequences_kv is varlen or paged");
  if (has_narrow_keys(spec) && !spec.values_in_keys &&
      (!facts(spec.key_dtype()).is_fp8() || has_fp8_queries(spec) || spec.descale_per != ScaleKind::head))
    return refuse_with(
        "must be 0 unless q has 16 bits, and keys 16, or 8 of FP8 with a scale per head, or are latents");
  if (spec.dropout) return refuse_with("must be 0 with dropout");
  if (spec.split_keys != 0) return refuse_with("must be 0 with split_keys");
  if (spec.checked) return refuse_with("must be 0 with checked: entries may be any numbers");
  if (has_positions(spec)) return refuse_with("must be 0 with q_positions and k_positions");
  return {};
}

std::optional<Refusal> refuse_list_queries(const SpecField& field, const AttentionSpec& spec) {
  const int queries = spec.list_queries;
  if (queries < 1 || queries > max_list_queries)
    return refuse(field, std::to_string(queries), fmt::format("must be from 1 to {}", max_list_queries), "1");
  if (queries > 1 && spec.list_block == 0)
    return refuse(field, std::to_string(queries), "must be 1 without list_block", "1");
  return {};
}

// Rejects masks and scores with slots: the position of a key given by its slot is unknown.
std::optional<Refusal> refuse_list_slots(const SpecField& field, const AttentionSpec& spec) {
  if (!spec.list_slots) return {};
  if (spec.list_block == 0) return refuse(field, "true", "must be false without list_block", "false");
  if (spec.mask != mask::none() || spec.score != score::none()) {
    return refuse(field, "true",
                  "must be false with a mask or score: these ask where keys stand in their sequence",
                  "false");
  }
  if (spec.sequences_kv == SequenceKind::paged && spec.page_size % spec.list_block != 0) {
    return refuse(field, "true",
                  fmt::format("must be false unless page_size = {} is a multiple of list_block = {}",
                              spec.page_size, spec.list_block),
                  "false");
  }
  return {};
}

}  // namespace jit
