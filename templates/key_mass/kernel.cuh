// The mass of each key, Σ P over queries, with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A block owns keys of one head, and computes S of one tile of queries after another as the kernel of dK and dV does, of all
// query heads that share a sum. P = exp(S − LSE), of which each lane sums its own, in a fixed order. Lanes of a row meet in
// the end: no sum needs an atomic operation.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/pass_tiles.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "key_mass/masses.cuh"
#include "key_mass/params.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/paged_kv.cuh"
#include "problem/query_tiles.cuh"
#include "problem/scores.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/product_numbers.cuh"
#include "steps/score_gradients.cuh"

namespace jit {

template <class Config>
using KeyMassTraits =
    PassTraits<Config, key_mass_keys(Config::head_dim), key_mass_queries, key_mass_warps, key_mass_stages>;

/// Starts the copies of LSE of a tile of queries to a shared address; what lies behind the last query is not read.
template <class Config>
JIT_DEVICE void load_lse(unsigned tile, const DenseRows<float>& lse, int first, int seqlen_q) {
  constexpr int bytes = static_cast<int>(sizeof(float));
  for (int i = static_cast<int>(threadIdx.x); i < key_mass_queries; i += KeyMassTraits<Config>::threads)
    cp_async_zfill<bytes>(tile + static_cast<unsigned>(i * bytes), lse.at(first + i), first + i < seqlen_q);
}

/// Starts the copies of a block's keys to the tile at shared address `tile`; rows that are no key's become zeros.
template <class Config, class Tile>
JIT_DEVICE void load_keys_of_mass(const AttentionParams& params, const SequencesOf<Config>& sequences,
                                  const KeyTile<Config>& keys, unsigned tile) {
  using Traits = KeyMassTraits<Config>;
  const int kv_head = keys.kv_head / Config::heads_per_key, seqlen_kv = sequences.kv(keys.batch).length;
  if constexpr (PagedKv<Config>::has_pages) {
    const PagedKv<Config> pages(params);
    const auto* const k = static_cast<const typename Config::Element*>(params.k);
    copy_rows<Tile, Config::head_dim, Traits::threads, Config::alignment>(tile, [&](int row) {
      const int key = keys.k_begin + row, page = key < seqlen_kv ? pages.page(keys.batch, key) : -1;
      const long long offset = pages.offset(params.k_strides, pages.place_in(page, kv_head, key));
      return pages.exists(page) ? k + offset : nullptr;  // mutate: MassOfPagesThatDoNotExist
    });
  } else {
    typename Traits::template Copy<Tile>(sequences.key_rows(keys.batch, kv_head), seqlen_kv)
        .load(tile, keys.k_begin);
  }
}

/// Adds exp(score − LSE) to `sums` of rows. A query without keys has LSE −inf, and no score that is not. One whose LSE is
/// large (steps/large_rows.cuh) has no mass: as an exponent its LSE does not say how many keys share the row.
template <class Product>
JIT_DEVICE void add_probabilities(Product& scores, float exponent, const ColumnNumbers& lse,
                                  float (&sums)[Product::rows]) {
  with_numbers(scores, lse, [&](float score, float own, int r, int, int) {
    // mutate: QueriesWithoutKeysHaveMass
    sums[r] += ex2(__fmaf_rn(score, exponent, -lse_exponent(own)));
  });
}

template <class Config>
JIT_DEVICE void sum_key_mass(const KeyMassParams& mass_params) {
  using Traits = KeyMassTraits<Config>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::OwnTile;
  using QTile = typename Traits::OtherTile;
  static_assert(Traits::parts == 1, "a warp has all columns of its keys");
  constexpr KeyMassSmem layout = key_mass_smem(Config::head_dim);
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned smem_base = smem_address(smem);
  const AttentionParams& params = mass_params.attention;

  wait_on_dependent_grids();  // mutate: MassOfLseThatIsNotThere
  const KeyTile<Config> keys = key_tile<Config>(params, static_cast<int>(blockIdx.x));
  if (!keys.is_there()) return write_no_masses<Config>(mass_params, keys);
  const auto sequences = keys.sequences(params);
  const int batch = keys.batch, head = keys.kv_head, k_begin = keys.k_begin;
  const int seqlen_q = sequences.q(batch).length, seqlen_kv = sequences.kv(batch).length;
  QueryTiles<Config, Traits::ahead> tiles(sequences, batch, head,
                                          {0, 0, k_begin, minimum(k_begin + Config::tile_kv, seqlen_kv)});

  const auto q_tile = [&](int stage) { return smem_base + layout.queries + stage * layout.stage_bytes; };
  const auto load = [&](int ahead, int stage) {
    const int query = tiles.query(ahead), query_head = tiles.head(ahead);
    typename Traits::template Copy<QTile>(sequences.query_rows(batch, query_head), seqlen_q)
        .load(q_tile(stage), query);
    load_lse<Config>(q_tile(stage) + layout.lse, sequences.lse_rows(batch, query_head), query, seqlen_q);
  };
  load_keys_of_mass<Config, KTile>(params, sequences, keys, smem_base);
  load_first_tiles<Traits>(tiles, load);

  const int warp_row = Traits::first_row();
  const typename Traits::OwnRows k(smem_base, warp_row);
  const int first_key = k_begin + warp_row + MmaLayout::lane_row(lane_id());
  const int lane_query = MmaLayout::lane_column(lane_id());
  const float exponent = score_exponent<Score>(params.softmax_scale);
  float sums[Scores::rows] = {};
  for_each_tile<Traits>(tiles, load, [&](int stage) {
    const BlockContext context = sequences.context(batch, tiles.head(0));
    const Score score(context);
    const int first_query = tiles.query(0) + lane_query;
    Scores scores;
    multiply_qk<Element, QTile, Traits::steps>(scores, k, q_tile(stage));
    apply_score<KeysByQueries>(scores, first_key, first_query, score, params.softmax_scale, context);
    if (tiles.is_partial()) {  // mutate: MassOfMaskedKeys
      const TileMask<Config> mask(context);
      drop_masked_scores<KeysByQueries>(scores, first_key, first_query, mask, context);
    }
    const unsigned lane_lse = q_tile(stage) + layout.lse + static_cast<unsigned>(lane_query * 4);
    add_probabilities(scores, exponent, ColumnNumbers{lane_lse}, sums);
  });

  const TensorStrides& strides = mass_params.mass_strides;
  float* const mass = mass_params.mass + batch * strides.batch + head * strides.head +
                      sequences.kv(batch).begin * strides.seq;
  Scores::for_each_row(first_key, [&](int r, int key) {
    const float sum = MmaLayout::reduce(sums[r], [](float x, float y) { return x + y; });
    if (MmaLayout::is_row_leader(lane_id()))
      write_mass<Config>(mass_params, key, seqlen_kv, sum, [&] { return mass + key * strides.seq; });
  });
  launch_dependent_grids();
}

}  // namespace jit
