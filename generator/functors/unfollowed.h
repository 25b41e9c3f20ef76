// Texts that are not followed, though tiles could be skipped.
#pragma once

#include <string>
#include <vector>

#include <jit/spec.h>

namespace jit {

/// A sentence for each text that skips no tiles because it is not followed: those of the mask that have no `classify`,
/// and those of the score that name INFINITY. It says which one, its line and the reason.
std::vector<std::string> unfollowed_texts(const AttentionSpec& spec);

}  // namespace jit
