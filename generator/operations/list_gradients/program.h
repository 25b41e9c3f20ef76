// The programs of gradients from lists of keys.
#pragma once

#include <jit/list_gradients.h>

#include "generator/operations/operation.h"
#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes. The kernel of every GPU, and a faster one of sm_90a, or where blocks have more shared
/// memory.
OperationPrograms list_gradients_programs(const ListGradientsSpec& spec);

}  // namespace jit
