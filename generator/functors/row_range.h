// Masks as text of which every query sees keys without a gap: which keys these are, as numbers that follow from the query.
#pragma once

#include <memory>
#include <optional>

#include <jit/functor_text.h>

#include "generator/functors/text_meaning.h"

namespace jit {

/// The keys of a query: the first key that it sees and the one behind the last, of type whole64, without a
/// look at where the sequence begins and ends. They read no key and no real number. Null: that side is open.
struct TextRowRange {
  std::optional<TextMeaning> begin;
  std::optional<TextMeaning> end;
};

/// Keys of which a truth holds, or of which alone it does not hold.
struct TextKeys {
  TextRowRange range;
  bool are_left_out = false;
};

/// The keys of a truth that depends on the key; nothing where it does not follow that they have no gap.
std::optional<TextKeys> text_keys(const TextMeaning& truth);

/// Null where it does not follow from how the text is made that there is no gap.
std::shared_ptr<const TextRowRange> text_row_range(const FunctorText& text);

}  // namespace jit
