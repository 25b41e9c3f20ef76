// Rejections of a spec on every GPU.
#pragma once

#include <vector>

#include <jit/spec.h>

namespace jit {

/// Reasons why no GPU can serve a spec; empty if one may.
std::vector<Refusal> refusals_everywhere(const AttentionSpec& spec);

}  // namespace jit
