// Masks as random text, each with what it means beside it: computed as C++ computes it, by no code that reads texts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>

namespace jit::testing {

/// The inputs of a text: q, k, b, h, heads_q, seqlen_q, seqlen_kv.
using TextPlace = std::array<std::int32_t, 7>;

struct RandomMaskText {
  std::string body;
  /// Nothing where C++ does not define what the text does there.
  std::function<std::optional<bool>(const TextPlace&)> keep;
};

/// May read the 1,024 elements of int32 tensor "ids", which are random_text_id(i).
RandomMaskText random_mask_text(std::mt19937_64& random);

/// A text made for ranges of keys: comparisons of a number of the key with one that does not depend on it,
/// joined in all ways. In many of them each query sees keys without a gap.
RandomMaskText random_range_text(std::mt19937_64& random);

/// A text made of conditions on a query, on a key, on their distance, on blocks of both, and of ranges.
RandomMaskText random_part_text(std::mt19937_64& random);

inline std::int32_t random_text_id(std::int64_t i) { return static_cast<std::int32_t>(i * i % 7 - 2); }

}  // namespace jit::testing
