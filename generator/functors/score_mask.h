// Masks derived from scores: a query does not see keys whose score becomes −inf.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jit/functor_text.h>
#include <jit/spec.h>

#include "generator/functors/text_meaning.h"

namespace jit {

struct ScoreNode;

/// The mask of a score: keeps scores unless a finite one certainly becomes −inf.
struct ScoreMask {
  TextMeaning kept;  ///< a condition; its loads index `tensors`
  std::vector<FunctorTensorSpec> tensors = {};
};

/// The mask of a score or chain, as far as texts can be analyzed. Null if nothing is certainly dropped.
std::shared_ptr<const ScoreMask> score_mask(const ScoreNode& score);

/// The mask of an existing score, derived when the score was constructed.
const ScoreMask* score_mask(const Score& score);
const ScoreMask* score_mask(Score&&) = delete;

/// Whether queries may not see all keys, because of the mask or of scores of −inf.
bool drops_keys(const AttentionSpec& spec);

}  // namespace jit
