// Dequantization of 8-bit q, k and v, whose elements stay 8-bit: which quantity each kind of scale multiplies.
//
//     one for each       q and k are factors of                                   v is a factor of
//     KV head            the softmax scale                                        O
//     KV head, k alone   the softmax scale, or scores where it may be any number  O
//     token              scores; q of exponents, where no functor wants scores    O
//     block of tokens    exponents, and scores where a functor wants to see them  O
//     column             -                                                        columns of O (steps/value_columns.cuh)
//
// Scales of a tile's keys accompany it in shared memory (mainloop/key_scales.cuh). Blocks that do not begin with tiles
// are looked up per token. Split-KV kernels use split_keys/split_dequant.cuh.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/scores.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/block_factors.cuh"
#include "steps/softmax.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// A scale as a factor of exponents or of scores; the other factor is 1. In exponents, which softmax multiplies anyway,
/// it costs nothing. But 0 times the −inf of a dropped key is NaN, and a negative factor would turn maxima into minima:
/// such a factor multiplies the scores before any is dropped.
struct ScoreFactor {
  float exponents = 1;
  float scores = 1;

  /// Multiplies scores of which none has been dropped. By whole warps.
  template <class Scores>
  JIT_DEVICE void scale(Scores& products) const {
    if (scores != 1.0f) products.for_each(0, 0, [&](float& score, int, int) { score *= scores; });
  }
};

JIT_DEVICE ScoreFactor score_factor(float factor) {
  constexpr float least = 0x1p-100f, most = 0x1p100f;
  const bool is_of_exponents = factor >= least && factor <= most;
  return {is_of_exponents ? factor : 1.0f, is_of_exponents ? 1.0f : factor};
}

/// Reads a scale from a word without a zero point.
struct WholeScale {
  JIT_DEVICE float operator()(int bits) const { return __int_as_float(bits); }
};

/// Multiplies scores, or exponentials, by the scales of their keys and by `of_queries(row)`; `of_keys` is the shared
/// address of the scale of the lane's first column.
template <class Scale = WholeScale, class Scores, class OfQueries>
JIT_DEVICE void scale_by_columns(Scores& scores, unsigned of_keys, const OfQueries& of_queries) {
#pragma unroll
  for (int n = 0; n < Scores::column_blocks; ++n) {
    int pair[2];
    if constexpr (Scores::Layout::neighbors > 1) {
      load_shared(pair, of_keys + Scores::Layout::column(0, n, 0) * 4);
    } else {
      for (int i = 0; i < 2; ++i) pair[i] = load_shared(of_keys + Scores::Layout::column(0, n, i) * 4);
    }
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      scores.at(r, n, 0) *= of_queries(r) * Scale()(pair[0]);
      scores.at(r, n, 1) *= of_queries(r) * Scale()(pair[1]);
    }
  }
}
template <class Scale = WholeScale, class Scores>
JIT_DEVICE void scale_by_columns(Scores& scores, unsigned of_keys) {
  scale_by_columns<Scale>(scores, of_keys, [](int) { return 1.0f; });
}
template <class Scale = WholeScale, class Scores>
JIT_DEVICE void scale_by_rows(Scores& scores, const float (&of_queries)[Scores::rows], unsigned of_keys) {
  scale_by_columns<Scale>(scores, of_keys, [&](int r) { return of_queries[r]; });
}

/// The granularity of the scales of q and k.
enum class ScoreScales {
  none,         ///< 16-bit elements that were never quantized
  work_tile,    ///< one number of q and k
  upcast_keys,  ///< one number for k alone, of any value
  rows,         ///< one for each query and key
  tokens,  ///< as rows, but scales of queries are factors of exponents: a multiplication less for each score
  blocks,  ///< one for each block of queries and of keys; a tile has whole or half blocks
};
template <class Config>
inline constexpr ScoreScales score_scales = !has_scaled_keys<Config>            ? ScoreScales::none
                                            : !is_fp8<typename Config::Element> ? ScoreScales::upcast_keys
                                            : has_block_factors<Config>         ? ScoreScales::blocks
                                            : has_row_scales<Config>            ? ScoreScales::rows
                                                                                : ScoreScales::work_tile;

/// Applies the scales of a work tile to a warp's `Scores`, P and O.
template <class Config, class Scores, ScoreScales kind = score_scales<Config>>
class Dequant {
  using Place = typename ChosenType<is_same<typename Scores::Layout, RowLayout>, RowLayout, MmaLayout>::type;
  static constexpr bool by_blocks = kind == ScoreScales::blocks, by_tokens = kind == ScoreScales::tokens;
  static_assert(!by_blocks || scale_block_rows % (Scores::row_blocks * Scores::Layout::block_rows) == 0,
                "a warp's rows, which begin with a multiple of their number, are of one block");

  // State per kind, so that no register is wasted.
  struct OfWorkTile {
    float scores = 0;
  };
  struct OfRows {
    float queries[Scores::rows] = {};
  };
  struct OfTokens {
    RowScales<Scores::rows> exponents{};
    int negative = 0;           // a bit for each row of the lane's
    bool has_negative = false;  // some row of the warp
  };
  // Products of the scales of a query block and a few key blocks multiply exponents, so that scores need no
  // multiplication unless a functor reads them.
  struct OfBlocks {
    float queries = 0;
    BlockFactors<Scores, Config::tile_kv> factors;
  };
  static __device__ auto nothing_read() {
    if constexpr (kind == ScoreScales::work_tile) return OfWorkTile();
    if constexpr (kind == ScoreScales::upcast_keys) return ScoreFactor();
    if constexpr (kind == ScoreScales::rows) return OfRows();
    if constexpr (by_tokens) return OfTokens();
    if constexpr (by_blocks) return OfBlocks();
  }

 public:
  JIT_DEVICE Dequant(const AttentionParams& params, const DescaleParams& descale)
      : params_(params), descale_(descale) {}

  /// Reads the scales of q and k. The warp's first row is row `warp_row` of the work tile; find_context() returns its
  /// BlockContext.
  template <class FindContext>
  JIT_DEVICE void take_scores(const WorkTile& work, int warp_row, FindContext find_context) {
    // Times 0, −inf of a dropped key would be no number; times a negative number, maxima would be minima.
    constexpr float least = 0x1p-100f;
    if constexpr (kind == ScoreScales::work_tile) {
      const float scale =
          // mutate: KeysUnscaled
          read(descale_.q, descale_.q_strides, work) * read(descale_.k, descale_.k_strides, work);
      of_.scores = scale < 0 ? __int_as_float(0x7fffffff) : max_nan(params_.softmax_scale * scale, least);
    } else if constexpr (kind == ScoreScales::upcast_keys) {
      const float scale = read(descale_.k, descale_.k_strides, work);
      // A functor reads scores, so the scale multiplies these.
      of_ = Config::Score::is_identity ? score_factor(scale) : ScoreFactor{scale, 1.0f};
    } else if constexpr (by_blocks) {
      const TensorStrides& strides = descale_.q_strides;
      const int last = find_context().seqlen_q - 1;
      const int block = minimum(work.q_begin + warp_row, last) / scale_block_rows;
      of_.queries = descale_.q[work.batch * strides.batch + work.head * strides.head + block * strides.seq];
    } else {
      const BlockContext context = find_context();
      const TensorStrides& strides = descale_.q_strides;
      const float* const of_head = descale_.q + work.batch * strides.batch + work.head * strides.head;
      const int first = work.q_begin + warp_row + Place::lane_row(static_cast<int>(threadIdx.x));
      if constexpr (by_tokens) of_.negative = 0;
      Scores::for_each_row(first, [&](int r, int row) {
        const int query = context.q_begin + minimum(row, context.seqlen_q - 1);
        // mutate: ScaleOfAnotherQuery
        const float scale = of_head[query / rows_of_scale<Config> * strides.seq];
        if constexpr (by_tokens) {
          of_.exponents.of_rows[r] =
              exponent_scale<typename Config::Score>(max_nan(::fabsf(scale) * of_scores(), least));
          if (scale < 0) of_.negative |= 1 << r;
        } else {
          of_.queries[r] = scale;
        }
      });
      if constexpr (by_tokens) of_.has_negative = __any_sync(full_warp, of_.negative != 0);
    }
  }
  /// The factor by which products of q and k become scores.
  JIT_DEVICE float of_scores() const {
    if constexpr (kind == ScoreScales::work_tile) return of_.scores;
    // mutate: KeysOfManyUnscaled
    if constexpr (kind == ScoreScales::upcast_keys) return params_.softmax_scale * of_.exponents;
    return params_.softmax_scale;
  }
  /// By tokens: the factors by which scores that `scale_scores` leaves become exponents of 2.
  JIT_DEVICE const auto& exponents() const { return of_.exponents; }
  /// By blocks: the factors of the tile that `scale_scores` was last called for.
  JIT_DEVICE auto& factors() { return of_.factors; }
  /// Multiplies the scores of a tile of keys; `scales` is the shared address of the scales of its keys.
  JIT_DEVICE void scale_scores(Scores& scores, unsigned scales) {
    if constexpr (kind == ScoreScales::upcast_keys) {
      if constexpr (Config::Score::is_identity) of_.scale(scores);
    } else if constexpr (kind == ScoreScales::rows) {
      scale_by_rows(scores, of_.queries, scales + Place::lane_column(reread_thread_index()) * 4);
    } else if constexpr (by_blocks) {
      of_.factors.take(of_.queries, scales);
      if constexpr (!Config::Score::is_identity) of_.factors.scale(scores);
    } else if constexpr (by_tokens) {
      scale_by_columns(scores, scales + Place::lane_column(reread_thread_index()) * 4);
      if (!of_.has_negative) return;
      float signs[Scores::rows];
#pragma unroll
      for (int r = 0; r < Scores::rows; ++r) signs[r] = (of_.negative >> r & 1) != 0 ? -1.0f : 1.0f;
      scores.scale_rows(signs);
    }
  }

  /// Reads the scale of v, or finds the scales of its columns.
  JIT_DEVICE void take_values(const WorkTile& work) {
    if constexpr (finishes_columns<Config>) {
      slice_ = work.batch * params_.heads_kv + work.head / Config::gqa_ratio;
    } else {
      of_values_ = read(descale_.v, descale_.v_strides, work);  // mutate: ValuesUnscaled
    }
  }
  template <class Output>
  JIT_DEVICE void scale_output(Output& output) const {
    if constexpr (finishes_columns<Config>) return;
    float scale[Output::rows];
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) scale[r] = of_values_;
    output.scale_rows(scale);
  }
  /// The factor of a row of O: `inverse` times the scale of values; 0 for a row without keys, also if the scale is NaN.
  JIT_DEVICE float output_factor(float inverse) const {
    if constexpr (finishes_columns<Config>) return inverse;
    return keep_if_has_keys(inverse * of_values_, inverse);
  }
  /// The batch entry and KV head of values whose columns are finished one by one.
  JIT_DEVICE int value_slice() const { return slice_; }

 private:
  static JIT_DEVICE float read(const float* scales, const TensorStrides& strides, const WorkTile& work) {
    const int kv_head = work.head / Config::gqa_ratio;  // mutate: ScaleOfAnotherHead
    // mutate: ScaleOfAnotherEntry
    return scales != nullptr ? scales[work.batch * strides.batch + kv_head * strides.head] : 1.0f;
  }

  const AttentionParams& params_;
  const DescaleParams& descale_;
  float of_values_ = 0;
  int slice_ = 0;  // of batch entries and KV heads
  decltype(nothing_read()) of_;
};

/// 16-bit elements have no scales.
template <class Config, class Scores>
class Dequant<Config, Scores, ScoreScales::none> {
 public:
  JIT_DEVICE Dequant(const AttentionParams& params, const DescaleParams&) : params_(params) {}

  template <class FindContext>
  JIT_DEVICE void take_scores(const WorkTile&, int /*warp_row*/, FindContext) {}
  JIT_DEVICE float of_scores() const { return params_.softmax_scale; }
  JIT_DEVICE void scale_scores(Scores&, unsigned) const {}
  JIT_DEVICE void take_values(const WorkTile&) {}
  template <class Output>
  JIT_DEVICE void scale_output(Output&) const {}
  JIT_DEVICE float output_factor(float inverse) const { return inverse; }
  JIT_DEVICE int value_slice() const { return 0; }

 private:
  const AttentionParams& params_;
};

}  // namespace jit
