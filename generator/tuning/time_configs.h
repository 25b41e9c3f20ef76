// Configs that are timed for a report: compiled, checked and measured each for itself.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <jit/tuning.h>

#include "generator/build/image.h"

namespace jit {

struct ContextState;

/// Compiles on all cores those that have no trouble; what fails has it then.
void compile_configs(ContextState& context, const AttentionSpec& spec, Target target,
                     std::span<ConfigTiming> timings);

}  // namespace jit
