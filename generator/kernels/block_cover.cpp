#include "generator/kernels/block_cover.h"

#include <algorithm>
#include <numeric>

#include "generator/functors/functor_node.h"

namespace jit {
namespace {

// Mean extent of the tiles that meet a block, relative to the block; it begins at a multiple of the gcd.
double cover_of_side(int block, int tile) {
  return static_cast<double>(block + tile - std::gcd(block, tile)) / block;
}

}  // namespace

double block_cover(const AttentionSpec& spec, int tile_q, int tile_kv) {
  const std::optional<BlockSides> sides = block_sides(spec.mask);
  return sides ? cover_of_side(sides->q, std::max(1, tile_q)) * cover_of_side(sides->kv, tile_kv) : 1;
}

}  // namespace jit
