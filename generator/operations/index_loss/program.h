// The program of an indexer's loss.
#pragma once

#include <jit/index_loss.h>

#include "generator/program/program.h"

namespace jit {

/// Requires: validate(spec) passes.
Program index_loss_program(const IndexLossSpec& spec);

}  // namespace jit
