// The gradients of keys and values of wide heads with TMA and wgmma, for sm_90a. A pair of blocks owns 64 keys of a KV head;
// the queries of all heads that share them pass by. Each block sums one gradient, whose columns two warpgroups share, and
// has one of the products that scores and their gradients take, so that none is computed twice:
//
//                        block of dV                            block of dK
//     stays              K                                      V
//     panels, parts      of Q, of dO                            of dO, of Q
//     score warpgroup    Sᵀ = K Qᵀ ─ P ─┬─ P ∘ f′ ────────────> dPᵀ = V dOᵀ ─ dS ─┐
//     sum warpgroups                    └ Pᵀ ─ dV += Pᵀ dO                         └ dSᵀ ─ dK += dSᵀ Q
//
// Gradients are sums in a fixed order: equal inputs give bitwise identical results, and nothing needs to be zeroed or
// converted.
#pragma once

#include "backward/boxes.cuh"
#include "backward/key_block.cuh"
#include "backward_dkv_wide_wgmma/exchange.cuh"
#include "backward_wide/output_warpgroup.cuh"
#include "backward_wide/panels.cuh"
#include "backward_wide/roles.cuh"
#include "backward_wide/traits.cuh"
#include "backward_wide/weights.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/query_tiles.cuh"
#include "problem/scores.cuh"
#include "ptx/cluster.cuh"
#include "steps/dropout.cuh"
#include "steps/large_row_gradients.cuh"
#include "steps/score_gradients.cuh"

namespace jit::backward_dkv_wide_wgmma {

template <class Config>
using KernelTraits = BlockTraits<Config, false>;

/// The keys of a block.
template <class Config>
struct OwnKeys {
  const AttentionParams& params;
  const GradientParams& gradient_params;
  const SequencesOf<Config>& sequences;
  KeyBlock keys;

  JIT_DEVICE int end() const { return minimum(keys.k_begin + tile_rows, sequences.kv(keys.batch).length); }
  /// Whether the place has no tile.
  JIT_DEVICE bool is_empty() const {
    return has_entry_lengths<Config> && (keys.k_begin < 0 || keys.k_begin >= sequences.kv(keys.batch).length);
  }
  JIT_DEVICE Gradients<Config> gradients() const { return {params, gradient_params, sequences}; }
  /// Calls visit(head, query, is_partial) for each tile of queries that see them. By a whole warp.
  template <class Visit>
  JIT_DEVICE void for_each_tile(const Visit& visit) const {
    QueryTiles<Config, 0> tiles(sequences, keys.batch, keys.kv_head, {0, 0, keys.k_begin, end()});
    for (; tiles.has(0); tiles.advance()) visit(tiles.head(0), tiles.query(0), tiles.is_partial());
  }
};

/// Tensors that a block loads: `own` of its keys, `panels` and `parts` of queries.
template <class Config, Gradient gradient>
struct Loads;
template <class Config>
struct Loads<Config, Gradient::dv> {
  using Product = ScoreProduct<Config>;
  template <class Maps>
  static JIT_DEVICE decltype(auto) own(const Maps& maps) {
    return map_of(maps, &TensorMaps::k, &SequenceMaps::bounded_k, tile_rows);
  }
  template <class Maps>
  static JIT_DEVICE decltype(auto) panels(const Maps& maps) {
    return map_of(maps, &TensorMaps::q, &SequenceMaps::bounded_q, tile_rows);
  }
  template <class Maps>
  static JIT_DEVICE decltype(auto) parts(const Maps& maps) {
    return map_of(maps, &TensorMaps::d_o, &SequenceMaps::bounded_do, tile_rows);
  }
};
template <class Config>
struct Loads<Config, Gradient::dk> {
  using Product = ProbabilityProduct<Config>;
  template <class Maps>
  static JIT_DEVICE decltype(auto) own(const Maps& maps) {
    return map_of(maps, &TensorMaps::v, &SequenceMaps::bounded_v, tile_rows);
  }
  template <class Maps>
  static JIT_DEVICE decltype(auto) panels(const Maps& maps) {
    return map_of(maps, &TensorMaps::d_o, &SequenceMaps::bounded_do, tile_rows);
  }
  template <class Maps>
  static JIT_DEVICE decltype(auto) parts(const Maps& maps) {
    return map_of(maps, &TensorMaps::q, &SequenceMaps::bounded_q, tile_rows);
  }
};

/// A producer warp: the first one loads what stays, and panels, the second one parts.
template <class Config, Gradient gradient, class Maps>
JIT_DEVICE void load(const OwnKeys<Config>& own, const Maps& maps, int warp, unsigned smem) {
  using Traits = SumTraits<Config, gradient>;
  using Loads = Loads<Config, gradient>;
  const auto& sequences = own.sequences;
  const KeyBlock keys = own.keys;
  const auto queries = [&](int head, int query) {
    return query_box<Config>(sequences, keys.batch, head, query);
  };
  if (warp == 0) {
    const unsigned full = smem + Traits::layout.own_full;
    PanelPipeline<Traits> pipeline(smem, Traits::layout.panels);
    load_own<typename Loads::Product>(
        pipeline, smem + Traits::layout.own, full, Loads::own(maps),
        key_box<Config>(sequences, keys.batch, keys.kv_head, keys.k_begin, tile_rows));
    if (lane_id() == 0) mbarrier_arrive(full);
    __syncwarp();
    own.for_each_tile([&](int head, int query, bool) {
      load_panels<typename Loads::Product>(pipeline, Loads::panels(maps), queries(head, query));
    });
  } else if (warp == 1) {
    PartPipeline<Traits> pipeline(smem, Traits::layout.parts);
    own.for_each_tile([&](int head, int query, bool) {
      load_parts<Traits>(pipeline, Loads::parts(maps), queries(head, query));
    });
  }
}

/// Numbers of columns of a product in registers.
template <int blocks>
struct ColumnRegisters {
  struct Pair {
    float numbers[2];
    JIT_DEVICE float of(int /*r*/, int i) const { return numbers[i]; }
  };
  Pair pairs[blocks];

  /// The numbers of queries from `query` on, of which there are `end`, a multiple of 4; 0 behind them.
  JIT_DEVICE ColumnRegisters(const float* numbers, int query, long long end) {
    query += MmaLayout::lane_column(lane_id());
#pragma unroll
    for (int n = 0; n < blocks; ++n) {
      const int own = query + n * MmaLayout::block_columns;
      const float2 pair = own < end ? *reinterpret_cast<const float2*>(numbers + own) : make_float2(0, 0);
      pairs[n] = {pair.x, pair.y};
    }
  }
  JIT_DEVICE const Pair& at(int n) const { return pairs[n]; }
};

/// The score warpgroup of the block of dV: P for those that sum it, and P ∘ f′ for the other block.
template <class Config>
JIT_DEVICE void compute_p(const OwnKeys<Config>& own, unsigned smem) {
  using Traits = SumTraits<Config, Gradient::dv>;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using Product = ScoreProduct<Config>;
  const AttentionParams& params = own.params;
  const auto& sequences = own.sequences;
  const int batch = own.keys.batch;
  const int warp_key = own.keys.k_begin + uniform(threadIdx.x % warpgroup_size / warp_size) * 16;
  const int first_key = warp_key + MmaLayout::lane_row(lane_id());
  const float exponent = score_exponent<Score>(params.softmax_scale);
  const long long numbers = statistic_rows(sequences.q(batch).length);

  PanelReader<Traits> panels(smem);
  WeightPipeline<Traits> weights(smem);
  Exchange<Traits> exchange(smem);
  const auto k = panels.template take_own<Product>(uniform(smem + Traits::layout.own));
  mbarrier_wait_parity(smem + Traits::layout.own_full, 0);
  own.for_each_tile([&](int head, int query, bool is_partial) {
    // On its way under the product.
    const ColumnRegisters<Scores::column_blocks> lse_log2(own.gradients().lse_log2(batch, head), query,
                                                          numbers);
    Scores scores;
    panels.template multiply<Product, true, 0>(scores, k);
    panels.template finish<Product::panels>();
    weights.hand_over();
    wgmma_hold(scores.registers[0]);
    const BlockContext context = sequences.context(batch, head);
    const auto kept = kept_scores<KeysByQueries, Scores>(
        dropout_head<Config>(params.dropout, params.heads_q, batch, head, params.tensors), query, warp_key);
    const int first_query = query + MmaLayout::lane_column(lane_id());
    const auto drop_and_exponentiate = [&] {
      if (is_partial) {
        const TileMask<Config> mask(context);
        drop_masked_scores<KeysByQueries>(scores, first_key, first_query, mask, context);
      }
      exponentiate_scores(scores, exponent, lse_log2);
    };
    if constexpr (Score::is_identity) {
      drop_and_exponentiate();
      exchange.send(scores.registers[0]);
    } else {
      Scores derivatives;
      Scores::for_each_place([&](int r, int n, int i) { derivatives.at(r, n, i) = 1; });
      const Score score(context);
      differentiate_score<KeysByQueries>(scores, derivatives, first_key, first_query, score,
                                         params.softmax_scale, context);
      drop_and_exponentiate();
      multiply_by_probabilities<Score>(derivatives, scores);
      exchange.send(derivatives.registers[0]);
    }
    weights.write(scores, kept);
  });
  weights.end();
}

/// The score warpgroup of the block of dK: dS of dP and of what the other block sends.
template <class Config>
JIT_DEVICE void compute_ds(const OwnKeys<Config>& own, unsigned smem) {
  using Traits = SumTraits<Config, Gradient::dk>;
  using Scores = typename Traits::Scores;
  using Product = ProbabilityProduct<Config>;
  const AttentionParams& params = own.params;
  const int batch = own.keys.batch;
  const int warp_key = own.keys.k_begin + uniform(threadIdx.x % warpgroup_size / warp_size) * 16;
  const long long numbers = statistic_rows(own.sequences.q(batch).length);

  PanelReader<Traits> panels(smem);
  WeightPipeline<Traits> weights(smem);
  Exchange<Traits> exchange(smem);
  const auto v = panels.template take_own<Product>(uniform(smem + Traits::layout.own));
  mbarrier_wait_parity(smem + Traits::layout.own_full, 0);
  own.for_each_tile([&](int head, int query, bool) {
    const ColumnRegisters<Scores::column_blocks> delta(own.gradients().delta(batch, head), query, numbers);
    Scores d_scores, factors;
    panels.template multiply<Product, true, 0>(d_scores, v);
    panels.template finish<Product::panels>();
    weights.hand_over();
    wgmma_hold(d_scores.registers[0]);
    drop(d_scores, kept_scores<KeysByQueries, Scores>(
                       dropout_head<Config>(params.dropout, params.heads_q, batch, head, params.tensors),
                       query, warp_key));
    exchange.receive(factors.registers[0]);
    with_numbers(d_scores, delta, [&](float& value, float number, int r, int n, int i) {
      value = factors.at(r, n, i) * (value - number);  // mutate: DsOfWideKeysWithoutDelta
    });
    weights.write(d_scores);
  });
  weights.end();
}

/// Adds large rows, if there are some, behind those that sum. By the score warpgroup.
template <class Config, Gradient gradient>
JIT_DEVICE void add_large_rows(const OwnKeys<Config>& own) {
  const bool has_large = has_large_rows(own.gradient_params);
  // Other warps have stored what is added to.
  bar_sync(KernelTraits<Config>::computing_barrier, KernelTraits<Config>::computing_threads);
  if (!__builtin_expect(has_large, false)) return;
  const Gradients<Config> gradients = own.gradients();
  const auto place = [&](int head, int query) {
    return gradients.lse_log2(own.keys.batch, head) - own.gradient_params.lse_log2 + query;
  };
  if (!own.is_empty()) {
    jit::add_large_rows<Config, gradient == Gradient::dk, gradient == Gradient::dv>(
        own.params, own.gradient_params, own.sequences, own.keys.batch, own.keys.kv_head, own.keys.k_begin,
        own.end(), place, 1, static_cast<int>(threadIdx.x % warpgroup_size / warp_size),
        KernelTraits<Config>::warps);
  }
  have_added_large_rows(own.gradient_params, warpgroup_size);
}

/// Half of the columns of the block's gradient. By a warpgroup.
template <class Config, Gradient gradient>
JIT_DEVICE void sum_gradient(const OwnKeys<Config>& own, int index, unsigned smem) {
  if (!own.is_empty()) {
    const KeyBlock& keys = own.keys;
    const DropoutParams& dropout = own.params.dropout;
    OutputWarpgroup<SumTraits<Config, gradient>> output(smem, index);
    output.sum();
    if constexpr (gradient == Gradient::dv) {
      output.store(own.gradients().dv_rows(keys.batch, keys.kv_head),
                   over_keep_probability<Config>(1.0f, dropout), keys.k_begin, own.end());
    } else {
      output.store(own.gradients().dk_rows(keys.batch, keys.kv_head),
                   // mutate: DkOfWideHeadsUnscaled
                   over_keep_probability<Config>(own.params.softmax_scale, dropout), keys.k_begin, own.end());
    }
  }
  bar_sync(KernelTraits<Config>::computing_barrier, KernelTraits<Config>::computing_threads);
}

template <class Config, class Maps>
JIT_DEVICE void attention_backward_dkv(const AttentionParams& params, const GradientParams& gradients,
                                       const Maps& maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<KernelTraits<Config>>(smem);
  cluster_arrive();
  cluster_wait();
  using Order = GroupByGroup<1, 2>;
  const KeyBlock keys = key_block<Config, Order>(params, gradients, Order::head());
  const SequencesOf<Config> sequences(params, keys.batch);
  const OwnKeys<Config> own{params, gradients, sequences, keys};
  const bool sums_dv = static_cast<int>(blockIdx.x) % 2 == rank_of_dv;
  run_role<Config>(
      [&](int warp) {
        if (own.is_empty()) return;
        if (sums_dv) {
          load<Config, Gradient::dv>(own, maps, warp, smem);
        } else {
          load<Config, Gradient::dk>(own, maps, warp, smem);
        }
      },
      [&] {
        if (sums_dv) {
          if (!own.is_empty()) compute_p<Config>(own, smem);
          add_large_rows<Config, Gradient::dv>(own);
        } else {
          if (!own.is_empty()) compute_ds<Config>(own, smem);
          add_large_rows<Config, Gradient::dk>(own);
        }
      },
      [&](int index) {
        if (sums_dv) {
          sum_gradient<Config, Gradient::dv>(own, index, smem);
        } else {
          sum_gradient<Config, Gradient::dk>(own, index, smem);
        }
      });
  // The other block may still read, or arrive, here.
  cluster_arrive();
  cluster_wait();
}

}  // namespace jit::backward_dkv_wide_wgmma
