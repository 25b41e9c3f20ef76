// The parts of a mask's text: conditions that are the same for many scores, so that kernels ask each of them once for
// what it looks at, and join the answers.
#pragma once

#include <memory>
#include <vector>

#include <jit/functor_text.h>

#include "generator/functors/row_range.h"
#include "generator/functors/text_meaning.h"

namespace jit {

/// A truth of each score.
struct MaskPart {
  enum class Kind {
    range,     ///< holds for keys that follow from the query
    query,     ///< is the same for all keys
    key,       ///< is the same for all queries
    distance,  ///< follows from q − k
    block,     ///< is the same for 8 queries and 16 keys, from multiples of these on
    score,     ///< none of these
    both,      ///< of two other parts
    either,
    inverse,  ///< of one other part
  };
  Kind kind = Kind::score;
  TextMeaning meaning =
      {};  ///< whether it holds, without real numbers; not of a range and of what is made of others
  TextRowRange range = {};
  int a = -1, b = -1;  ///< other parts, by their places
  int asked =
      -1;  ///< the part that holds where the text reads what this one reads; −1: it may be read anyway
};

struct MaskParts {
  std::vector<MaskPart> parts;  ///< each is made of those before it; the last is the mask
};

/// Null where there is no part but the whole text, or too many of them, or where the text computes with real numbers.
std::shared_ptr<const MaskParts> mask_parts(const FunctorText& text);

}  // namespace jit
