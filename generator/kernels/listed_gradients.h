// The one-pass kernel of gradients whose tiles of queries transposed lists put together (templates/backward_wgmma_lists), with
// the kernel for what lies before and behind as what runs ahead.
#pragma once

#include <jit/spec.h>

#include "generator/program/program.h"
#include "templates/backward_wgmma_lists/params.cuh"

namespace jit::listed_gradients {

/// Whether it serves the lists of a spec, on sm_90a: entries of 64 or 128 keys, a number of query heads for each KV head that
/// divides 64, head dims above 32 up to 128, rows aligned to 16 bytes.
bool serves(const AttentionSpec& spec);

/// Its program. Requires: serves(spec).
Program program(const AttentionSpec& spec);

/// Floats of the parts of dQ of a tile, and of the sums of dK and dV of a block of keys. Requires: serves(spec).
struct Sizes {
  int tile_floats;
  int sum_floats;
};
Sizes sizes(const AttentionSpec& spec);

}  // namespace jit::listed_gradients
