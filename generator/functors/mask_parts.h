// The parts of a mask's text: conditions that are constant over many scores, which kernels evaluate once each
// and combine.
#pragma once

#include <memory>
#include <vector>

#include <jit/functor_text.h>

#include "generator/functors/row_range.h"
#include "generator/functors/text_meaning.h"

namespace jit {

/// A condition in a mask's text.
struct MaskPart {
  enum class Kind {
    range,     ///< holds for a range of keys that depends on the query
    query,     ///< constant over keys
    key,       ///< constant over queries
    distance,  ///< depends on q − k
    block,     ///< constant over aligned blocks of 8 queries by 16 keys
    score,     ///< none of these
    both,      ///< conjunction of two parts
    either,
    inverse,  ///< negation of a part
  };
  Kind kind = Kind::score;
  TextMeaning meaning =
      {};  ///< the condition, without real numbers; empty for ranges and for combinations of other parts
  TextRowRange range = {};
  int a = -1, b = -1;  ///< indices of operands
  int asked =
      -1;  ///< the part that is the condition of this part's reads of elements; −1: they are always allowed
};

struct MaskParts {
  std::vector<MaskPart> parts;  ///< operands come first; the last one is the mask
};

/// Null if the whole text is the only part, if there are too many, or if it computes with real numbers.
std::shared_ptr<const MaskParts> mask_parts(const FunctorText& text);

}  // namespace jit
