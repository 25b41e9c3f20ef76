// Refusals of a spec wherever it runs.
#pragma once

#include <vector>

#include <jit/spec.h>

namespace jit {

/// Why no GPU can serve a spec, a refusal for each reason. Empty: one may.
std::vector<Refusal> refusals_everywhere(const AttentionSpec& spec);

}  // namespace jit
