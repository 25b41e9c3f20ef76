// The mass of each listed key: its probability, summed over all heads of a token. With cp.async, ldmatrix and
// mma.sync: runs on every GPU from sm_80 on.
//
// A block owns a token. It reads the token's rows of q in groups of a tile, and for each group the keys of the list
// in tiles:
//
//     places of keys ─ barrier ─ load K ─ barrier ─ S = Q Kᵀ, P, sums over 16 rows ─ barrier ─ mass += sums
//
// A thread alone adds to the mass of a key, group after group: sums have a fixed order.
#pragma once

#include "base/prelude.cuh"
#include "list_mass/params.cuh"
#include "pipeline/dependent_launch.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "steps/unit_products.cuh"
#include "tiles/listed_rows.cuh"

namespace jit {

template <class Config>
class ListMassPass {
  using Element = typename Config::Element;
  static constexpr int rows = Config::tile_q, keys = Config::tile_kv, threads = list_mass_threads;
  static constexpr int warps = threads / warp_size, head_dim = Config::head_dim;
  static constexpr int steps = padded_head_dim(head_dim) / 16, heads = Config::heads;
  static constexpr ListMassSmem layout = list_mass_smem(head_dim, {rows, keys});
  using QTile = SmemTile<rows, padded_head_dim(head_dim) / 8>;
  using KTile = SmemTile<keys, padded_head_dim(head_dim) / 8>;

 public:
  JIT_DEVICE ListMassPass(const ListMassParams& params, unsigned smem)
      : params_(params), smem_(smem), token_(static_cast<int>(blockIdx.x)) {
    list_ = {params.lists + token_ * params.list_token,
             listed_count(params.counts, token_ * params.count_token, params.entries), params.keys};
  }

  JIT_DEVICE void run() const {
    float* const mass = params_.mass + token_ * params_.mass_token;
    for (int i = list_.count + static_cast<int>(threadIdx.x); i < params_.entries; i += threads) mass[i] = 0;
#pragma unroll 1
    for (int kv_head = 0; kv_head < params_.heads_kv; ++kv_head) {
#pragma unroll 1
      for (int group = 0; group < heads; group += rows) {
        load_rows(kv_head, group);
        add_masses(kv_head, mass, kv_head == 0 && group == 0);
        cp_async_wait_group<0>();  // a list without keys has not waited for its rows
      }
    }
  }

 private:
  JIT_DEVICE void load_rows(int kv_head, int first) const {
    const auto* const q = static_cast<const Element*>(params_.q) + token_ * params_.q_token;
    const int head = kv_head * heads + first, existing = minimum(rows, heads - first);
    copy_rows<QTile, head_dim, threads, chunk_bytes>(smem_ + layout.q, [&](int row) {
      return row < existing ? q + (head + row) * params_.q_head : nullptr;
    });
    cp_async_commit_group();
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += threads) {
      const float lse = row < existing
                            ? params_.lse[(head + row) * params_.lse_head + token_ * params_.lse_token]
                            : negative_infinity();
      // Without keys nothing has a probability.
      const float subtracted = lse == negative_infinity() ? -negative_infinity() : lse * log2_e;
      store_shared(smem_ + layout.lse + row * 4, __float_as_int(subtracted));
    }
  }

  JIT_DEVICE void add_masses(int kv_head, float* mass, bool is_first) const {
    const auto* const k = static_cast<const Element*>(params_.k) + kv_head * params_.k_head;
#pragma unroll 1
    for (int first = 0; first < list_.count; first += keys) {
      find_listed_rows<KTile, threads>(smem_ + layout.places, list_, first);
      __syncthreads();  // mutate: MassKeysCopiedBeforeTheirPlaces
      copy_listed_rows<KTile, head_dim, threads>(smem_ + layout.k, smem_ + layout.places, k, params_.k_row);
      cp_async_commit_group();
      cp_async_wait_group<0>();  // mutate: MassOfKeysOnTheirWay
      __syncthreads();           // mutate: MassOfKeysOfOtherThreads
#pragma unroll 1
      for (int unit = warp_id(); unit < rows / 16 * (keys / 16); unit += warps) sum_unit(unit);
      __syncthreads();  // mutate: MassesOfSumsThatAreNotThere
      const int own = static_cast<int>(threadIdx.x);
      if (own >= keys || first + own >= list_.count) continue;
      float sum = 0;
#pragma unroll
      for (int m = 0; m < rows / 16; ++m)
        sum += __int_as_float(load_shared(smem_ + layout.sums + (m * keys + own) * 4));
      if (load_shared(smem_ + layout.places + own * 4) < 0) sum = 0;  // mutate: MassOfNoKey
      mass[first + own] = is_first ? sum : mass[first + own] + sum;   // mutate: MassOfEarlierGroupsLeftOut
    }
  }

  /// Sums of P over the rows of a unit.
  JIT_DEVICE void sum_unit(int unit) const {
    const int row = unit / (keys / 16) * 16, key = unit % (keys / 16) * 16;
    UnitProduct product = {};
    add_rows_by_rows<Element, QTile, KTile, steps>(product, smem_ + layout.q, row, smem_ + layout.k, key);
    UnitProduct::for_each_row(row + MmaLayout::lane_row(lane_id()), [&](int r, int own_row) {
      const float lse = __int_as_float(load_shared(smem_ + layout.lse + own_row * 4));
      product.for_each_of_row(r, [&](float& s, int) { s = ex2(__fmaf_rn(s, params_.exponent, -lse)); });
    });
    store_column_sums(product, smem_ + layout.sums + (row / 16 * keys + key) * 4);
  }

  const ListMassParams& params_;
  const unsigned smem_;
  const int token_;
  TokenList list_;
};

template <class Config>
JIT_DEVICE void list_mass(const ListMassParams& params) {
  extern __shared__ __align__(128) unsigned char smem[];
  wait_for_grids_before();  // mutate: MassOfListsThatAreNotThere
  ListMassPass<Config>(params, smem_address(smem)).run();
  let_next_grid_start();
}

}  // namespace jit
