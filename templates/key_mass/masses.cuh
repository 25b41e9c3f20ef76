// Where the masses of keys go: one for each key of a sequence, and in pages one for each row that its page table has room for.
#pragma once

#include "backward/key_tile.cuh"
#include "base/prelude.cuh"
#include "key_mass/params.cuh"
#include "problem/paged_kv.cuh"

namespace jit {

/// Writes the mass of a key of a sequence of `keys` keys to what `place` finds. Rows of pages behind the sequence's keys get 0.
template <class Config, class Place>
JIT_DEVICE void write_mass(const KeyMassParams& params, int key, int keys, float mass, Place place) {
  if constexpr (PagedKv<Config>::has_pages) {
    if (key < params.attention.seqlen_kv) *place() = key < keys ? mass : 0;  // mutate: MassBehindTheLastKey
  } else {
    if (key < keys) *place() = mass;
  }
}

/// Writes masses of a tile that has no key, where its sequence has pages. By all threads of a block.
template <class Config>
JIT_DEVICE void write_no_masses(const KeyMassParams& params, const KeyTile<Config>& keys) {
  if constexpr (PagedKv<Config>::has_pages) {
    const TensorStrides& strides = params.mass_strides;
    for (int i = static_cast<int>(threadIdx.x); i < Config::tile_kv; i += static_cast<int>(blockDim.x)) {
      const long long key = keys.k_begin + i;
      // mutate: NoMassOfTilesWithoutKeys
      write_mass<Config>(params, keys.k_begin + i, 0, 0, [&] {
        return params.mass + keys.batch * strides.batch + keys.kv_head * strides.head + key * strides.seq;
      });
    }
  }
}

}  // namespace jit
