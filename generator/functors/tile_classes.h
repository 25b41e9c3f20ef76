// Classes of tiles of scores under masks, and under scores that are −inf, on the host.
#pragma once

#include <cstdint>
#include <functional>

#include <jit/mask.h>
#include <jit/options.h>
#include <jit/spec.h>

#include "generator/functors/host_functor.h"

namespace jit {

/// Half-open ranges of queries and keys.
struct TileBounds {
  std::int64_t q_begin, q_end, k_begin, k_end;
};

/// The class of a tile, as kernels give it: of built-in masks that which their scores have, of texts what bounds of q and
/// k tell, of combinations what follows from their parts. `classify` bodies cannot be run: tiles of such texts are partial.
using ClassOfTile = std::function<TileClass(const TileBounds&)>;

/// Classes of the tiles of one batch entry and head. What a score is known to make −inf is dropped, too.
/// Throws Error invalid_argument when a tensor is missing.
ClassOfTile class_of_tiles(const AttentionSpec& spec, const HostProblem& problem, std::int64_t batch,
                           std::int64_t head);

}  // namespace jit
