// Scores that are masks: what a score makes −inf, no query sees.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jit/functor_text.h>
#include <jit/spec.h>

#include "generator/functors/text_meaning.h"

namespace jit {

struct ScoreNode;

/// The mask of a score: it keeps what the score does not certainly make −inf of a finite number.
struct ScoreMask {
  TextMeaning kept;  ///< a truth; its loads are of these tensors
  std::vector<FunctorTensorSpec> tensors = {};
};

/// The mask of a score or a chain of them, as far as texts can be followed. Null where it is not known to
/// drop anything.
std::shared_ptr<const ScoreMask> score_mask(const ScoreNode& score);

/// The mask of a score that is there, where it was worked out when the score was made.
const ScoreMask* score_mask(const Score& score);
const ScoreMask* score_mask(Score&&) = delete;

/// Whether queries may see only some of the keys: because of the mask, or of scores that are −inf.
bool drops_keys(const AttentionSpec& spec);

}  // namespace jit
