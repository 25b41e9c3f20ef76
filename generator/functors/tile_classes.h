// Classes of tiles under masks, and under scores of −inf, on the host.
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

/// The class of a tile as kernels determine it: for built-in masks from their scores, for texts from bounds
/// of q and k, for combinations from their parts. `classify` bodies cannot run on the host: their tiles are
/// partial.
using ClassOfTile = std::function<TileClass(const TileBounds&)>;

/// Classes of tiles of one batch entry and head. Scores that certainly become −inf count as dropped. Throws
/// Error invalid_argument if a tensor is missing.
ClassOfTile class_of_tiles(const AttentionSpec& spec, const HostProblem& problem, std::int64_t batch,
                           std::int64_t head);

}  // namespace jit
