// Texts of masks under which each query sees a contiguous range of keys: the range as numbers that depend on
// the query.
#pragma once

#include <memory>
#include <optional>

#include <jit/functor_text.h>

#include "generator/functors/text_meaning.h"

namespace jit {

/// The range of a query: its first visible key and the one after the last, of type whole64, not clipped to
/// the sequence; independent of keys and real numbers. Null: unbounded.
struct TextRowRange {
  std::optional<TextMeaning> begin;
  std::optional<TextMeaning> end;
};

/// The keys for which a condition holds, or the only ones for which it does not.
struct TextKeys {
  TextRowRange range;
  bool are_left_out = false;
};

/// The keys of a condition that depends on the key; nothing unless they are provably contiguous.
std::optional<TextKeys> text_keys(const TextMeaning& truth);

/// The range of a mask's text; null unless it is provably contiguous.
std::shared_ptr<const TextRowRange> text_row_range(const FunctorText& text);

}  // namespace jit
