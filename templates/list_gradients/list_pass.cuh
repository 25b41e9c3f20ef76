// A list's pass: the gradient of its queries, and what it adds to the gradients of its keys.
//
// A block owns the rows of a list and a KV head: those of all query heads that share it, and of all queries. Rows come in
// groups of tile_q, and for each group the keys of the list in tiles of tile_kv, gathered by cp.async:
//
//     places of keys ─ barrier ─ load K, V ─ barrier ─ S = Q Kᵀ, dP = dO Vᵀ, P, dS ─ barrier ─
//     dQ += dS K ─ dSᵀ Q, Pᵀ dO, which are stored for each key along the list
//
// Units of 16 × 16 scores, and of 16 columns, are taken by warps in turns. What a list adds to a key is read and written by
// one thread alone, group after group, so that all sums have a fixed order, and no operation is atomic.
#pragma once

#include "base/prelude.cuh"
#include "list_gradients/key_sums.cuh"
#include "list_gradients/params.cuh"
#include "problem/dual.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "problem/key_lists.cuh"
#include "problem/masks.cuh"
#include "problem/row_mask.cuh"
#include "problem/scores.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/math.cuh"
#include "steps/score_gradients.cuh"
#include "steps/unit_products.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

template <class Config>
class ListPass {
  using Element = typename Config::Element;
  using Lists = typename Config::Lists;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  static constexpr int rows = Config::tile_q, keys = Config::tile_kv, threads = list_gradient_threads;
  static constexpr int warps = threads / warp_size, ratio = Config::gqa_ratio;
  static constexpr int all_rows = ratio * Lists::queries, groups = (all_rows + rows - 1) / rows;
  static constexpr int head_dim = Config::head_dim, head_dim_v = Config::head_dim_v;
  static constexpr int units = padded_head_dim(head_dim) / 16, units_v = padded_head_dim(head_dim_v) / 16;
  static constexpr int own_units = (units + warps - 1) / warps;
  static constexpr int columns = list_part_columns(head_dim, head_dim_v, Config::shares_values);
  static constexpr ListGradientSmem layout =
      list_gradient_smem(head_dim, head_dim_v, Config::shares_values, {rows, keys});
  using QTile = SmemTile<rows, padded_head_dim(head_dim) / 8>;
  using DoTile = SmemTile<rows, padded_head_dim(head_dim_v) / 8>;
  using KTile = SmemTile<keys, padded_head_dim(head_dim) / 8>;
  using VTile = typename ChosenType<Config::shares_values, KTile,
                                    SmemTile<keys, padded_head_dim(head_dim_v) / 8>>::type;
  using WeightTile = SmemTile<rows, keys / 8>;

 public:
  JIT_DEVICE ListPass(const ListGradientsParams& params, unsigned smem)
      : params_(params), attention_(params.attention), smem_(smem) {
    const int heads = attention_.heads_kv;
    own_ = static_cast<int>(blockIdx.x) / heads;
    list_ = params.first_list + own_;
    kv_head_ = static_cast<int>(blockIdx.x) % heads;
    entries_ = attention_.tensors[Lists::slot].last_size;
    owner_ = owner_of<Config>(attention_, list_);
    // Rows that are no query's see nothing, wherever their entries lie.
    length_ = owner_.queries == 0 ? 0 : Lists::count(attention_.tensors, list_, kv_head_) * Lists::block;
  }

  JIT_DEVICE void run() {
    number_blocks();
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      __syncthreads();  // rows of the group before are in use  // mutate: RowsOverThoseInUse
      load_rows(group * rows);
      Accumulators dq = {};
#pragma unroll 1
      for (int first = 0; first < length_; first += keys) {
        find_keys(first);
        __syncthreads();  // mutate: KeysCopiedBeforeTheirPlaces
        load_keys();
        cp_async_commit_group();
        cp_async_wait_group<0>();  // mutate: ScoresOfKeysOnTheirWay
        __syncthreads();           // mutate: ScoresOfKeysOfOtherThreads
        score_keys(group * rows);
        __syncthreads();  // mutate: ProductsOfScoresThatAreNotThere
        add_to_queries(dq);
        add_to_keys(first, group == 0);
      }
      cp_async_wait_group<0>();  // a list without keys has not waited for its rows
      store_queries(dq, group * rows);
    }
  }

 private:
  struct Accumulators {
    UnitProduct units[own_units][rows / 16];
  };
  /// Row `row` of those of the list: its row of q, and its head.
  struct Row {
    int query;  ///< of those that share the list
    int head;
    int row;  ///< of q
    bool exists;
    bool is_seen;  ///< whether it is of the list's sequence
  };
  JIT_DEVICE Row row_at(int row) const {
    const int query = row / ratio;
    Row place{query, kv_head_ * ratio + row % ratio, list_ * Lists::queries + query, row < all_rows, false};
    place.exists = place.exists && place.row < attention_.sequences.total_q;
    place.is_seen = place.exists && query < owner_.queries;  // mutate: RowsBehindTheSequenceHaveGradients
    return place;
  }
  template <class T>
  static JIT_DEVICE T* row_of(T* first, const TensorStrides& strides, const Row& at) {
    return first + at.row * strides.seq + at.head * strides.head;
  }

  JIT_DEVICE void number_blocks() const {
    int* const blocks =
        params_.blocks + (static_cast<long long>(own_) * attention_.heads_kv + kv_head_) * entries_;
    const FunctorTensor& lists = attention_.tensors[Lists::slot];
    const int* const listed =
        static_cast<const int*>(lists.data) + list_ * lists.strides[0] + kv_head_ * lists.strides[1];
    for (int i = static_cast<int>(threadIdx.x); i < entries_; i += threads) {
      const bool counts =
          i * Lists::block < length_ &&
          Lists::template position<Config>(attention_, owner_, list_, kv_head_, i * Lists::block) >= 0;
      // mutate: BlocksOfEntriesThatAreNone
      blocks[i] = counts ? block_number<Config>(owner_.kv, owner_.sequence, listed[i]) : -1;
    }
  }

  /// Starts the copies of rows of q and do, and leaves their LSE and delta.
  JIT_DEVICE void load_rows(int first) const {
    const GradientParams& gradients = params_.gradients;
    const auto* const q = static_cast<const Element*>(attention_.q);
    const auto* const d_o = static_cast<const Element*>(gradients.d_o);
    copy_rows<QTile, head_dim, threads, Config::alignment>(smem_ + layout.q, [&](int row) {
      const Row at = row_at(first + row);
      return at.is_seen && row < rows ? row_of(q, attention_.q_strides, at) : nullptr;
    });
    copy_rows<DoTile, head_dim_v, threads, Config::alignment>(smem_ + layout.d_o, [&](int row) {
      const Row at = row_at(first + row);
      return at.is_seen && row < rows ? row_of(d_o, gradients.do_strides, at) : nullptr;
    });
    cp_async_commit_group();
#pragma unroll 1
    for (int row = warp_id(); row < rows; row += warps) {
      const Row at = row_at(first + row);
      float lse = negative_infinity(), delta = 0;
      if (at.is_seen) {
        constexpr int piece = ElementTraits<Element>::per_chunk;
        const Element* const x = row_of(d_o, gradients.do_strides, at);
        const Element* const y = row_of(static_cast<const Element*>(attention_.o), attention_.o_strides, at);
#pragma unroll 1
        for (int d = lane_id() * piece; d < head_dim_v; d += warp_size * piece) {
          float a[piece], b[piece];
          load_piece<Config::alignment>(x + d, a);
          load_piece<Config::alignment>(y + d, b);
#pragma unroll
          for (int i = 0; i < piece; ++i) delta = __fmaf_rn(a[i], b[i], delta);
        }
#pragma unroll
        for (int step = 1; step < warp_size; step *= 2) delta += __shfl_xor_sync(full_warp, delta, step);
        lse = *row_of(attention_.lse, attention_.lse_strides, at);
        if (gradients.d_lse != nullptr && lse != negative_infinity()) {
          const float d_lse = *row_of(gradients.d_lse, gradients.d_lse_strides, at);
          delta -= d_lse;  // mutate: ListsWithoutGradientOfLse
        }
      }
      if (lane_id() != 0) continue;
      if (at.exists && gradients.d_sinks != nullptr)
        gradients.delta[static_cast<long long>(at.head) * attention_.sequences.total_q + at.row] = delta;
      store_shared(smem_ + layout.lse + row * 4, __float_as_int(lse_exponent(lse)));
      store_shared(smem_ + layout.delta + row * 4, __float_as_int(delta));
    }
  }

  /// Leaves where keys from `first` along the list on lie, where they stand, and who sees them.
  JIT_DEVICE void find_keys(int first) const {
    for (int key = static_cast<int>(threadIdx.x); key < keys; key += threads) {
      const int along = first + key;
      const bool is_listed = along < length_;
      const int where =
          is_listed ? Lists::template position<Config>(attention_, owner_, list_, kv_head_, along) : -1;
      const int place = where < 0 ? -1 : Lists::has_slots ? where : owner_.kv.begin + where;
      const unsigned members = where < 0 ? 0 : Lists::members(attention_.tensors, list_, kv_head_, along);
      store_shared(smem_ + layout.place + key * 4, place);
      store_shared(smem_ + layout.where + key * 4, where);
      store_shared(smem_ + layout.member + key * 4, static_cast<int>(members));
    }
  }

  JIT_DEVICE void load_keys() const {
    const auto copy = [&]<class Tile, int width>(unsigned tile, const void* data,
                                                 const TensorStrides& strides) {
      const Element* const first = static_cast<const Element*>(data) + kv_head_ * strides.head;
      copy_rows<Tile, width, threads, Config::alignment>(tile, [&](int row) {
        const int place = load_shared(smem_ + layout.place + minimum(row, keys - 1) * 4);
        return place >= 0 ? first + place * strides.seq : nullptr;
      });
    };
    copy.template operator()<KTile, head_dim>(smem_ + layout.k, attention_.k, attention_.k_strides);
    if constexpr (!Config::shares_values)
      copy.template operator()<VTile, head_dim_v>(smem_ + layout.v, attention_.v, attention_.v_strides);
  }

  /// P and dS of a tile, 16 bits, in shared memory.
  JIT_DEVICE void score_keys(int first_row) const {
#pragma unroll 1
    for (int unit = warp_id(); unit < rows / 16 * (keys / 16); unit += warps) {
      const int row = unit / (keys / 16) * 16, key = unit % (keys / 16) * 16;
      UnitProduct scores = {}, d_scores = {};
      add_rows_by_rows<Element, QTile, KTile, units>(scores, smem_ + layout.q, row, smem_ + layout.k, key);
      add_rows_by_rows<Element, DoTile, VTile, units_v>(d_scores, smem_ + layout.d_o, row, smem_ + layout.v,
                                                        key);
      differentiate(scores, d_scores, first_row, row, key);
      const int lane_row = row + MmaLayout::lane_row(lane_id());
      const unsigned column =
          static_cast<unsigned>(MmaLayout::lane_column(lane_id()) * ElementTraits<Element>::bytes);
#pragma unroll
      for (int r = 0; r < UnitProduct::rows; ++r) {
#pragma unroll
        for (int n = 0; n < UnitProduct::column_blocks; ++n) {
          const unsigned offset =
              static_cast<unsigned>(WeightTile::offset(MmaLayout::row(lane_row, 0, r), key / 8 + n)) + column;
          store_shared(smem_ + layout.p + offset,
                       static_cast<int>(pack<Element>(scores.at(r, n, 0), scores.at(r, n, 1))));
          store_shared(smem_ + layout.ds + offset,
                       static_cast<int>(pack<Element>(d_scores.at(r, n, 0), d_scores.at(r, n, 1))));
        }
      }
    }
  }

  /// Products become P and dS. Functors are built for each row: its head is its own.
  JIT_DEVICE void differentiate(UnitProduct& scores, UnitProduct& d_scores, int first_row, int unit_row,
                                int unit_key) const {
    const float scale = attention_.softmax_scale, exponent = score_exponent<Score>(scale);
    const int lane_key = unit_key + MmaLayout::lane_column(lane_id());
    UnitProduct::for_each_row(unit_row + MmaLayout::lane_row(lane_id()), [&](int r, int row) {
      const Row at = row_at(first_row + row);
      const int query = owner_.query + minimum(at.query, maximum(owner_.queries, 1) - 1);
      const BlockContext context{owner_.sequence,  at.head,        attention_.heads_q, owner_.q.length,
                                 owner_.kv.length, owner_.q.begin, attention_.tensors};
      const float lse = __int_as_float(load_shared(smem_ + layout.lse + row * 4));
      const float delta = __int_as_float(load_shared(smem_ + layout.delta + row * 4));
      const int member = minimum(at.query, Lists::queries - 1);
      const RowMask<Mask> mask(context, query);
      const Score score(context);
      scores.for_each_of_row(r, [&](float& s, int column) {
        const int key = lane_key + column, where = load_shared(smem_ + layout.where + key * 4);
        const unsigned members = static_cast<unsigned>(load_shared(smem_ + layout.member + key * 4));
        bool is_seen = where >= 0 && (members >> member & 1) != 0;  // mutate: GradientsOfOtherMembers
        if constexpr (!is_same<Mask, NoMask>)
          is_seen = is_seen && mask.keeps(where);  // mutate: GradientsOfMaskedKeys
        float& ds = d_scores.at(r, column / 8, column % 8);
        float slope = 1;
        if constexpr (!Score::is_identity) {
          const Dual applied = score.apply(Dual(s * scale, 1.0f), query, maximum(where, 0));
          s = applied.value;
          slope = applied.derivative;  // mutate: SlopesOfListedScores
        }
        const float p = is_seen ? ex2(__fmaf_rn(s, exponent, -lse)) : 0;
        s = p;
        ds = p > 0 ? p * (ds - delta) * slope : 0;
      });
    });
  }

  JIT_DEVICE void add_to_queries(Accumulators& dq) const {
#pragma unroll
    for (int i = 0; i < own_units; ++i) {
      const int unit = warp_id() + i * warps;
      if (unit >= units) break;
      add_rows_by_columns<Element, WeightTile, KTile>(dq.units[i], smem_ + layout.ds, smem_ + layout.k, unit);
    }
  }

  /// Stores what the group's rows add to the keys of a tile, or adds it to that of groups before.
  JIT_DEVICE void add_to_keys(int first, bool is_first) const {
    const long long along =
        (static_cast<long long>(own_) * attention_.heads_kv + kv_head_) * entries_ * Lists::block + first;
    float* const parts = params_.parts + along * columns;
    const auto store = [&](const UnitProduct& product, int key, int column, int column_end) {
      const int lane_key = key + MmaLayout::lane_row(lane_id()),
                lane_column = column + MmaLayout::lane_column(lane_id());
      UnitProduct::for_each_row(lane_key, [&](int r, int own_key) {
        if (first + own_key >= length_) return;  // mutate: PartsBehindTheList
#pragma unroll
        for (int n = 0; n < UnitProduct::column_blocks; ++n) {
          const int own_column = MmaLayout::column(lane_column, n, 0);
          if (own_column >= column_end) continue;
          float2* const to =
              reinterpret_cast<float2*>(parts + static_cast<long long>(own_key) * columns + own_column);
          float2 sum = make_float2(product.at(r, n, 0), product.at(r, n, 1));
          if (!is_first)
            sum = make_float2(to->x + sum.x, to->y + sum.y);  // mutate: RowsOfEarlierGroupsLeftOut
          *to = sum;
        }
      });
    };
#pragma unroll 1
    for (int unit = warp_id(); unit < units; unit += warps) {
#pragma unroll 1  // sums of dQ take most registers
      for (int key = 0; key < keys; key += 16) {
        UnitProduct product = {};
        add_columns_by_columns<Element, WeightTile, QTile>(product, smem_ + layout.ds, key, smem_ + layout.q,
                                                           unit);
        product.for_each(0, 0, [&](float& x, int, int) { x *= attention_.softmax_scale; });
        if (Config::shares_values && unit < units_v)  // mutate: LatentsWithoutGradientsOfValues
          add_columns_by_columns<Element, WeightTile, DoTile>(product, smem_ + layout.p, key,
                                                              smem_ + layout.d_o, unit);
        store(product, key, 16 * unit, head_dim);
      }
    }
    if constexpr (!Config::shares_values) {
#pragma unroll 1
      for (int unit = warp_id(); unit < units_v; unit += warps) {
#pragma unroll 1
        for (int key = 0; key < keys; key += 16) {
          UnitProduct product = {};
          add_columns_by_columns<Element, WeightTile, DoTile>(product, smem_ + layout.p, key,
                                                              smem_ + layout.d_o, unit);
          store(product, key, head_dim + 16 * unit, columns);
        }
      }
    }
  }

  JIT_DEVICE void store_queries(Accumulators& dq, int first_row) const {
    auto* const out = static_cast<Element*>(params_.gradients.dq);
    const int lane_column = MmaLayout::lane_column(lane_id());
#pragma unroll
    for (int i = 0; i < own_units; ++i) {
      const int unit = warp_id() + i * warps;
      if (unit >= units) break;
#pragma unroll
      for (int m = 0; m < rows / 16; ++m) {
        UnitProduct& product = dq.units[i][m];
        UnitProduct::for_each_row(first_row + 16 * m + MmaLayout::lane_row(lane_id()), [&](int r, int row) {
          const Row at = row_at(row);
          if (!at.exists) return;
          Element* const to = row_of(out, params_.gradients.dq_strides, at);
#pragma unroll
          for (int n = 0; n < UnitProduct::column_blocks; ++n) {
            const int column = 16 * unit + MmaLayout::column(lane_column, n, 0);
            if (column >= head_dim) continue;
            const float scale = attention_.softmax_scale;  // mutate: DqOfListsUnscaled
            const unsigned words[1] = {
                pack<Element>(product.at(r, n, 0) * scale, product.at(r, n, 1) * scale)};
            store_words<4, Config::alignment>(to + column, words);
          }
        });
      }
    }
  }

  const ListGradientsParams& params_;
  const AttentionParams& attention_;
  const unsigned smem_;
  int own_;  ///< among the lists of this launch
  int list_;
  int kv_head_;
  int entries_;
  int length_;  ///< keys along the list
  ListOwner owner_;
};

}  // namespace jit
