// Texts of masks that are not followed.
#pragma once

#include <string>
#include <vector>

#include <jit/mask.h>

namespace jit {

/// A sentence for each text in the mask that skips no tiles, because it is not followed and has no `classify`: which
/// one, its line and the reason.
std::vector<std::string> unfollowed_texts(const Mask& mask);

}  // namespace jit
