/// @file
/// Typical tensors of masks and scores, and the fraction of scores that a mask keeps: for benchmarks.
///
/// @code
/// const jit::AttentionSpec spec{.mask = jit::mask::causal(), .score = jit::score::alibi()};
/// const jit::AttentionShape shape{.heads_q = 8, .seqlen_q = 128, .seqlen_kv = 128};
/// assert(jit::typical_tensor(spec, shape, "alibi_slopes")->elements.front() == 0.5);
/// const double kept = *jit::mask_density(spec, shape, {});
/// assert(kept > 0.49 && kept < 0.52);
/// @endcode
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/host_tensor.h>
#include <jit/spec.h>
#include <jit/tuning.h>

namespace jit {

/// A dense, row-major tensor: its shape, and its elements as numbers.
struct TypicalTensor {
  std::vector<std::int64_t> shape;  ///< sizes of the dimensions
  std::vector<double> elements;     ///< row-major
};

/// A typical tensor `name` of the built-in masks and scores of `spec`, for calls of this shape; dimensions that may
/// broadcast have size 1. Nothing for a tensor that no built-in mask or score reads.
std::optional<TypicalTensor> typical_tensor(const AttentionSpec& spec, const AttentionShape& shape,
                                            std::string_view name);

/// The fraction of (query, key) pairs that the mask of `spec` keeps and its score does not make −inf, from evenly
/// spaced queries; exact if all of them can be evaluated. For texts it comes from bisected bounds of keys
/// (docs/masks.md), for a few batch entries, heads and queries; nothing if a text cannot be analyzed, has a `classify`
/// body, or its bounds take too long. `tensors` has the tensors that mask and score read. Takes at most about a second.
/// Throws Error invalid_argument when a tensor is missing.
std::optional<double> mask_density(const AttentionSpec& spec, const AttentionShape& shape,
                                   const std::map<std::string, HostTensor, std::less<>>& tensors);

}  // namespace jit
