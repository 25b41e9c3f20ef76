// Spec fields about lists of keys.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <jit/spec.h>
#include <jit/spec_table.h>

namespace jit {

// Why a value is unsupported, or nothing.
std::optional<Refusal> refuse_lists(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_list_slots(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_list_queries(const SpecField& field, const AttentionSpec& spec);

/// The spec with varlen queries and keys, which lists require.
inline AttentionSpec listed(AttentionSpec spec) {
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  return spec;
}

inline constexpr std::array list_spec_fields = {
    SpecField{.name = "list_block",
              .member = &AttentionSpec::list_block,
              .doc = "keys in an entry of a query's list of keys, 1 to 128; 0: queries have no lists",
              .record_name = "list_block",
              .comment = "keys in an entry of a list",
              .text_label = " list_block=",
              .name_label = "_lists",
              .is_line_if_set = true,
              .refusal = refuse_lists,
              .samples =
                  [] {
                    return std::vector<AttentionSpec>{listed({.list_block = 64}), listed({.list_block = 1})};
                  },
              .base = [] { return listed({}); }},
    SpecField{
        .name = "list_slots",
        .member = &AttentionSpec::list_slots,
        .doc = "whether entries of lists are rows of the cache rather than positions in the sequence",
        .record_name = "list_slots",
        .comment = "entries are rows of the cache",
        .text_label = " list_slots=",
        .name_label = "_slots_",
        .is_line_if_set = true,
        .refusal = refuse_list_slots,
        .samples = [] { return std::vector<AttentionSpec>{listed({.list_block = 64, .list_slots = true})}; },
        .base = [] { return listed({.list_block = 64}); }},
    SpecField{
        .name = "list_queries",
        .member = &AttentionSpec::list_queries,
        .doc =
            "rows of q that share a list, 1 to 32; each has a bit of an entry that tells whether it sees it",
        .record_name = "list_queries",
        .comment = "queries that share a list",
        .text_label = " list_queries=",
        .name_label = "_union",
        .is_line_if_set = true,
        .refusal = refuse_list_queries,
        .samples = [] { return std::vector<AttentionSpec>{listed({.list_block = 64, .list_queries = 4})}; },
        .base = [] { return listed({.list_block = 64}); }},
};

}  // namespace jit
