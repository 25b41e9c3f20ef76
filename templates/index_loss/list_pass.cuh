// A token's pass over its list: the loss of the indexer's scores, and its gradients.
//
// A block owns a token, whose heads are the rows of one tile. Keys of the list come in tiles, gathered by cp.async;
// first for the scores of all, which the softmax needs, and for gradients again:
//
//     places of keys ─ barrier ─ load K ─ barrier ─ X = Q Kᵀ, relu, sums over heads ─ barrier ─ scores
//     loss = Σ p (log p − log softmax(scores)), d_score = softmax(scores) − p
//     places of keys ─ barrier ─ load K ─ barrier ─ X again, where it is above 0 ─ barrier ─
//     dQ += d_score · [X > 0] K ─ (weight · [X > 0])ᵀ Q · d_score, which is stored for each entry
//
// 16-bit operands are divided by their largest magnitude, so that fp16 holds them. All sums have a fixed order.
#pragma once

#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "index_loss/params.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "steps/unit_products.cuh"
#include "tiles/listed_rows.cuh"

namespace jit {

template <class Config>
class IndexLossPass {
  using Element = typename Config::Element;
  static constexpr int heads = Config::heads, rows = index_loss_rows(heads), keys = index_loss_keys;
  static constexpr int head_dim = Config::head_dim, threads = index_loss_threads, warps = threads / warp_size;
  static constexpr int units = head_dim / 16, own_units = (units + warps - 1) / warps;
  static constexpr IndexLossSmem layout = index_loss_smem(heads, head_dim);
  using QTile = SmemTile<rows, head_dim / 8>;
  using KTile = SmemTile<keys, head_dim / 8>;
  using WeightTile = SmemTile<rows, keys / 8>;

 public:
  JIT_DEVICE IndexLossPass(const IndexLossParams& params, unsigned smem)
      : params_(params), smem_(smem), own_(static_cast<int>(blockIdx.x)), token_(params.first_list + own_) {
    list_ = {params.lists + token_ * params.list_token,
             listed_count(params.counts, token_ * params.count_token, params.entries), params.keys};
    scores_ = params.scores + static_cast<long long>(own_) * params.entries;
    targets_ = params.targets + token_ * params.target_token;
  }

  JIT_DEVICE void run() const {
    load_rows();
    score();
    __syncthreads();  // mutate: LossOfScoresThatAreNotThere
    const Softmax softmax = normalize();
    if (params_.step == IndexLossStep::loss) {
      const float loss = loss_of(softmax);
      if (threadIdx.x == 0) params_.loss[token_ * params_.loss_token] = loss;
    } else {
      differentiate(softmax);
    }
    cp_async_wait_group<0>();  // a list without keys has not waited for its rows
  }

 private:
  struct Accumulators {
    UnitProduct units[own_units][rows / 16];
  };
  /// The numbers that make probabilities of scores and of targets.
  struct Softmax {
    float largest;
    float sum;
    float targets;
    /// Whether there is neither loss nor gradient: no key, or no target.
    JIT_DEVICE bool is_none() const { return largest == negative_infinity() || targets == 0; }
    JIT_DEVICE float probability(float score) const { return ex2((score - largest) * log2_e) / sum; }
  };

  static JIT_DEVICE float shared(unsigned address) { return __int_as_float(load_shared(address)); }
  static JIT_DEVICE void share(unsigned address, float value) {
    store_shared(address, __float_as_int(value));
  }

  /// Reduces numbers of all threads, in a fixed order; every thread gets the result.
  template <class F>
  JIT_DEVICE float reduce(float own, F f) const {
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) own = f(own, __shfl_xor_sync(full_warp, own, step));
    __syncthreads();  // the last result has been read  // mutate: NumbersOfWarpsOverThoseInUse
    if (lane_id() == 0) share(smem_ + layout.of_warps + warp_id() * 4, own);
    __syncthreads();  // mutate: NumbersOfWarpsReadEarly
    float all = shared(smem_ + layout.of_warps);
#pragma unroll
    for (int warp = 1; warp < warps; ++warp) all = f(all, shared(smem_ + layout.of_warps + warp * 4));
    return all;
  }
  JIT_DEVICE float sum_of(float own) const {
    return reduce(own, [](float a, float b) { return a + b; });
  }
  JIT_DEVICE float largest_of(float own) const {
    return reduce(own, [](float a, float b) { return max_nan(a, b); });
  }
  /// Calls f(entry, score, target) for the thread's entries that name a key.
  template <class F>
  JIT_DEVICE void for_own_entries(F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < list_.count; i += threads) {
      const float score = scores_[i];
      if (score != negative_infinity()) f(i, score, targets_[i]);  // mutate: LossOfNoKeys
    }
  }

  JIT_DEVICE void load_rows() const {
    const auto* const q = static_cast<const Element*>(params_.q) + token_ * params_.q_token;
    copy_rows<QTile, head_dim, threads, chunk_bytes>(
        smem_ + layout.q, [&](int row) { return row < heads ? q + row * params_.q_head : nullptr; });
    cp_async_commit_group();
    const float* const weights = params_.weights + token_ * params_.weight_token;
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += threads)
      share(smem_ + layout.weights + row * 4, row < heads ? weights[row * params_.weight_head] : 0);
  }

  /// The keys of a tile in shared memory, for all threads.
  JIT_DEVICE void load_keys() const {
    copy_listed_rows<KTile, head_dim, threads>(smem_ + layout.k, smem_ + layout.places,
                                               static_cast<const Element*>(params_.k), params_.k_row);
    cp_async_commit_group();
    cp_async_wait_group<0>();  // mutate: IndexKeysOnTheirWay
    __syncthreads();           // mutate: IndexKeysOfOtherThreads
  }
  JIT_DEVICE UnitProduct products(int row, int key) const {
    UnitProduct product = {};
    add_rows_by_rows<Element, QTile, KTile, units>(product, smem_ + layout.q, row, smem_ + layout.k, key);
    return product;
  }

  /// Leaves the scores of the list in memory, −inf of no key.
  JIT_DEVICE void score() const {
#pragma unroll 1
    for (int first = 0; first < list_.count; first += keys) {
      find_listed_rows<KTile, threads>(smem_ + layout.places, list_, first);
      __syncthreads();  // mutate: IndexKeysCopiedBeforeTheirPlaces
      load_keys();
#pragma unroll 1
      for (int unit = warp_id(); unit < rows / 16 * (keys / 16); unit += warps) {
        const int row = unit / (keys / 16) * 16, key = unit % (keys / 16) * 16;
        UnitProduct product = products(row, key);
        UnitProduct::for_each_row(row + MmaLayout::lane_row(lane_id()), [&](int r, int own_row) {
          const float weight = shared(smem_ + layout.weights + own_row * 4);
          // NaN stays NaN.
          product.for_each_of_row(r, [&](float& x, int) { x = weight * max_nan(x, 0.0f); });
        });
        store_column_sums(product, smem_ + layout.column_sums + (row / 16 * keys + key) * 4);
      }
      __syncthreads();  // mutate: ScoresOfSumsThatAreNotThere
      const int own = static_cast<int>(threadIdx.x);
      if (own >= keys || first + own >= list_.count) continue;
      float sum = 0;
#pragma unroll
      for (int m = 0; m < rows / 16; ++m) sum += shared(smem_ + layout.column_sums + (m * keys + own) * 4);
      const bool is_key = load_shared(smem_ + layout.places + own * 4) >= 0;
      scores_[first + own] = is_key ? sum : negative_infinity();
    }
  }

  JIT_DEVICE Softmax normalize() const {
    float largest = negative_infinity(), targets = 0, sum = 0;
    for_own_entries([&](int, float score, float target) {
      largest = max_nan(largest, score);
      targets += target;
    });
    largest = largest_of(largest);
    for_own_entries([&](int, float score, float) { sum += ex2((score - largest) * log2_e); });
    return {largest, sum_of(sum), sum_of(targets)};
  }

  /// The logarithm of what is smaller is −∞, and its inverse may be +∞.
  static constexpr float least_normal = 0x1p-126f;
  static JIT_DEVICE float inverse(float largest) { return largest >= least_normal ? 1 / largest : 0; }

  JIT_DEVICE float loss_of(const Softmax& softmax) const {
    if (softmax.is_none()) return 0;
    const float log_sum = softmax.largest + lg2(softmax.sum) * ln_2;
    float loss = 0;
    for_own_entries([&](int, float score, float target) {
      const float p = target / softmax.targets;
      if (!(p < least_normal)) loss += p * (lg2(p) * ln_2 - (score - log_sum));
    });
    return sum_of(loss);
  }

  JIT_DEVICE void differentiate(const Softmax& softmax) const {
    float largest = 0, largest_weight = 0;
    for_own_entries([&](int i, float score, float target) {
      const float slope = softmax.is_none() ? 0 : softmax.probability(score) - target / softmax.targets;
      scores_[i] = slope;
      largest = ::fmaxf(largest, ::fabsf(slope));
    });
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += threads)
      largest_weight = ::fmaxf(largest_weight, ::fabsf(shared(smem_ + layout.weights + row * 4)));
    largest = largest_of(largest);
    largest_weight = largest_of(largest_weight);
    const float d_loss = params_.d_loss[token_ * params_.d_loss_token];
    const float slope_scale = inverse(largest), weight_scale = inverse(largest_weight);
    Accumulators dq = {};
    float d_weight = 0;
#pragma unroll 1
    for (int first = 0; first < list_.count; first += keys) {
      __syncthreads();  // places and slopes of the tile before are in use  // mutate: PlacesOverThoseInUse
      find_listed_rows<KTile, threads>(smem_ + layout.places, list_, first);
      find_slopes(first);
      __syncthreads();  // mutate: IndexKeysCopiedBeforeTheirSlopes
      load_keys();
      weigh(slope_scale, weight_scale);
      __syncthreads();  // mutate: IndexGradientsOfWeightsThatAreNotThere
      add_to_queries(dq);
      add_to_keys(first, d_loss * largest_weight);
      if (static_cast<int>(threadIdx.x) >= rows) continue;
#pragma unroll
      for (int n = 0; n < keys / 16; ++n)
        d_weight += shared(smem_ + layout.row_sums + (n * rows + static_cast<int>(threadIdx.x)) * 4);
    }
    store_queries(dq, d_loss * largest);
    const int head = static_cast<int>(threadIdx.x);
    if (head < heads)
      params_.d_weights[token_ * params_.d_weight_token + head * params_.d_weight_head] = d_loss * d_weight;
  }

  JIT_DEVICE void find_slopes(int first) const {
    for (int i = static_cast<int>(threadIdx.x); i < keys; i += threads) {
      const float slope = first + i < list_.count ? scores_[first + i] : negative_infinity();
      share(smem_ + layout.d_score + i * 4, slope == negative_infinity() ? 0 : slope);
    }
  }

  /// Leaves both operands of a tile, and sums over its keys for the gradient of weights.
  JIT_DEVICE void weigh(float slope_scale, float weight_scale) const {
#pragma unroll 1
    for (int unit = warp_id(); unit < rows / 16 * (keys / 16); unit += warps) {
      const int row = unit / (keys / 16) * 16, key = unit % (keys / 16) * 16;
      const UnitProduct product = products(row, key);
      const int lane_column = MmaLayout::lane_column(lane_id());
      UnitProduct::for_each_row(row + MmaLayout::lane_row(lane_id()), [&](int r, int own_row) {
        const float weight = shared(smem_ + layout.weights + own_row * 4) * weight_scale;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < UnitProduct::column_blocks; ++n) {
          float active[2], slopes[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float x = product.at(r, n, i);
            const int column = key + MmaLayout::column(lane_column, n, i);
            const float slope = shared(smem_ + layout.d_score + column * 4);
            const bool is_active = x > 0;  // mutate: GradientsOfInactiveHeads
            active[i] = is_active ? weight : 0;
            slopes[i] = is_active ? slope * slope_scale : 0;
            sum = is_active ? __fmaf_rn(slope, x, sum) : sum;
          }
          const unsigned offset = static_cast<unsigned>(WeightTile::offset(own_row, key / 8 + n) +
                                                        lane_column * ElementTraits<Element>::bytes);
          store_shared(smem_ + layout.active + offset, static_cast<int>(pack<Element>(active[0], active[1])));
          store_shared(smem_ + layout.slopes + offset, static_cast<int>(pack<Element>(slopes[0], slopes[1])));
        }
        sum = MmaLayout::reduce(sum, [](float a, float b) { return a + b; });
        if (MmaLayout::is_row_leader(lane_id()))
          share(smem_ + layout.row_sums + (key / 16 * rows + own_row) * 4, sum);
      });
    }
  }

  JIT_DEVICE void add_to_queries(Accumulators& dq) const {
#pragma unroll
    for (int i = 0; i < own_units; ++i) {
      const int unit = warp_id() + i * warps;
      if (unit >= units) break;
      add_rows_by_columns<Element, WeightTile, KTile>(dq.units[i], smem_ + layout.slopes, smem_ + layout.k,
                                                      unit);
    }
  }

  /// Stores what the token adds to the keys of a tile.
  JIT_DEVICE void add_to_keys(int first, float factor) const {
    float* const parts = params_.parts + (static_cast<long long>(own_) * params_.entries + first) * head_dim;
#pragma unroll 1
    for (int unit = warp_id(); unit < units * (keys / 16); unit += warps) {
      const int key = unit / units * 16, column = unit % units * 16 + MmaLayout::lane_column(lane_id());
      UnitProduct product = {};
      add_columns_by_columns<Element, WeightTile, QTile>(product, smem_ + layout.active, key,
                                                         smem_ + layout.q, unit % units);
      UnitProduct::for_each_row(key + MmaLayout::lane_row(lane_id()), [&](int r, int own_key) {
        if (first + own_key >= list_.count) return;  // mutate: IndexPartsBehindTheList
        const float slope = shared(smem_ + layout.d_score + own_key * 4) * factor;
#pragma unroll
        for (int n = 0; n < UnitProduct::column_blocks; ++n)
          *reinterpret_cast<float2*>(parts + static_cast<long long>(own_key) * head_dim +
                                     MmaLayout::column(column, n, 0)) =
              make_float2(product.at(r, n, 0) * slope, product.at(r, n, 1) * slope);
      });
    }
  }

  JIT_DEVICE void store_queries(Accumulators& dq, float factor) const {
    auto* const out = static_cast<Element*>(params_.dq) + token_ * params_.dq_token;
#pragma unroll
    for (int i = 0; i < own_units; ++i) {
      const int unit = warp_id() + i * warps;
      if (unit >= units) break;
#pragma unroll
      for (int m = 0; m < rows / 16; ++m) {
        const UnitProduct& product = dq.units[i][m];
        UnitProduct::for_each_row(16 * m + MmaLayout::lane_row(lane_id()), [&](int r, int row) {
          if (row >= heads) return;
          const float scale = shared(smem_ + layout.weights + row * 4) * factor;
#pragma unroll
          for (int n = 0; n < UnitProduct::column_blocks; ++n) {
            const int column = 16 * unit + MmaLayout::column(MmaLayout::lane_column(lane_id()), n, 0);
            const unsigned words[1] = {
                pack<Element>(product.at(r, n, 0) * scale, product.at(r, n, 1) * scale)};
            store_words<4, chunk_bytes>(out + row * params_.dq_head + column, words);
          }
        });
      }
    }
  }

  const IndexLossParams& params_;
  const unsigned smem_;
  const int own_;  ///< among the lists of this launch
  const int token_;
  TokenList list_;
  float* scores_;
  const float* targets_;
};

}  // namespace jit
