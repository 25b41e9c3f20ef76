// Texts that analysis cannot follow, although they might skip tiles.
#pragma once

#include <string>
#include <vector>

#include <jit/spec.h>

namespace jit {

/// A sentence for each text that skips no tiles because it cannot be analyzed, with its name, line and
/// reason: masks without `classify`, and scores that contain INFINITY.
std::vector<std::string> unfollowed_texts(const AttentionSpec& spec);

}  // namespace jit
