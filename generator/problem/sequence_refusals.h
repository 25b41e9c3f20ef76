// Refusals of how sequences lie, and of tables that say where their rows stand.
#pragma once

#include <optional>

#include <jit/spec_table.h>

namespace jit {

// Rows of spec_table.cpp call these: why a value cannot be served, or nothing.
std::optional<Refusal> refuse_paged_queries(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_page_size(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_positions(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_query_positions(const SpecField& field, const AttentionSpec& spec);
std::optional<Refusal> refuse_key_arrivals(const SpecField& field, const AttentionSpec& spec);

}  // namespace jit
