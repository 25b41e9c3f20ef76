// Rejections of kinds of sequences, and of position tables.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <jit/spec.h>
#include <jit/spec_table.h>

namespace jit {

// For rows of spec_table.cpp: why a value is unsupported, or nothing.
std::optional<Refusal> refuse_paged_queries(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_page_size(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_positions(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_query_positions(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_key_arrivals(const SpecField& field, const AttentionSpec& spec);

/// The row of key_arrivals.
inline constexpr SpecField key_arrivals_field = {
    .name = "key_arrivals",
    .member = &AttentionSpec::key_arrivals,
    .doc = "whether keys arrive from other devices while the kernel computes",
    .record_name = "key_arrivals",
    .comment = "keys arrive while the kernel computes",
    .text_label = " key_arrivals=",
    .name_label = "_arriving_",
    .is_line_if_set = true,
    .refusal = refuse_key_arrivals,
    .samples = [] { return std::vector<AttentionSpec>{{.key_arrivals = true}}; }};

/// Spec fields of position tables.
inline constexpr std::array position_spec_fields = {
    SpecField{.name = "q_positions",
              .member = &AttentionSpec::q_positions,
              .doc = "whether calls give the positions of queries in a sequence of which they hold a part",
              .record_name = "q_positions",
              .comment = "tables give the positions of queries",
              .text_label = " q_positions=",
              .name_label = "_q_placed_",
              .is_line_if_set = true,
              .refusal = refuse_query_positions,
              .samples = [] { return std::vector<AttentionSpec>{{.q_positions = true}}; }},
    SpecField{.name = "k_positions",
              .member = &AttentionSpec::k_positions,
              .doc = "whether calls give the positions of keys in a sequence of which they hold a part",
              .record_name = "k_positions",
              .comment = "tables give the positions of keys",
              .text_label = " k_positions=",
              .name_label = "_k_placed_",
              .is_line_if_set = true,
              .refusal = refuse_positions,
              .samples = [] { return std::vector<AttentionSpec>{{.k_positions = true}}; }},
};

}  // namespace jit
