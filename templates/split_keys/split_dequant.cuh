// Scales of 8-bit queries, keys and values in split-KV kernels: as in steps/dequant.cuh, but read once per split; a
// scale of each value multiplies P. Column scales of values are applied to O at the end of rows
// (split_keys/result_pieces.cuh).
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/warp_layout.cuh"
#include "split_keys/zero_points.cuh"
#include "steps/dequant.cuh"

namespace jit {

/// Extracts the scale of a word that also holds a zero point.
struct ScaleBesideZero {
  JIT_DEVICE float operator()(int bits) const { return without_zero_point(bits); }
};
/// Extracts that scale, raised as products with digits want weights (zero_points.cuh).
struct RaisedScale {
  JIT_DEVICE float operator()(int bits) const { return without_zero_point(bits) * raised_weights; }
};
/// The functor that extracts the scale of a token.
template <class Element>
using TokenScale = typename ChosenType<is_same<Element, int4_pair>, ScaleBesideZero, WholeScale>::type;

/// Applies the scales of a split to a warp's scores, P and O. `Queries` are those of KvProducts, whose conversion to
/// fp16 gives rows factors, which multiply scores as scales do. With wgmma there are none, and the scale of keys
/// becomes a factor of exponents if possible.
template <class Traits, class Queries, bool is_used = keys_are_narrow<typename Traits::Config>>
class SplitDequant {
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Layout = typename Scores::Layout;
  static constexpr bool has_each = has_row_scales<Config>;
  static constexpr bool has_query_factors = requires(const Queries& q) { q.factors; };
  // Replaces the reference if each value has a scale: an unused reference would cost instructions.
  struct NothingToRead {
    JIT_DEVICE NothingToRead(const DescaleParams&) {}
  };
  struct OfRows {
    float of_rows[Scores::rows] = {};
  };
  // Whether each value has a scale. With 8-bit q all values of a head share one.
  static constexpr bool has_each_value = has_each && !is_fp8<typename Config::Element>;
  // Whether numbers are smaller than they are by a power of two.
  static constexpr bool has_blocks = scale_columns_of<KvElement<Config>> != 0 && !converts_scales<Config>;
  using Scale = TokenScale<KvElement<Config>>;
  // Whether zero points are apart from numbers.
  static constexpr bool has_zeros = has_each_value && is_same<Scale, ScaleBesideZero>;
  using ValueScale = typename ChosenType<has_zeros, RaisedScale, Scale>::type;

 public:
  JIT_DEVICE explicit SplitDequant(const AttentionParams& params) : descale_(params.descale) {}

  /// Reads the scales of a split with queries `q`, before its first step.
  JIT_DEVICE void begin_split(const Info<Config>& split, const Queries& q) {
    if constexpr (has_each_value) {
#pragma unroll
      for (int r = 0; r < Scores::rows; ++r) of_scores_.of_rows[r] = q.factors[r];
    } else if constexpr (has_each) {
      take_values(split);
      const int first = split.row_begin + warp_id() % Config::row_warps * Traits::warp_rows;
      Scores::for_each_row(first + Layout::lane_row(lane_id()), [&](int r, int row) {
        const PackedRow<Config> place(split.kv_head, minimum(row, split.q.length * Config::gqa_ratio - 1));
        const int query = split.q.begin + place.query;
        of_scores_.of_rows[r] = descale_.q[VariableSequences<Config>::query_offset(
            // mutate: ScaleOfQuery
            descale_.q_strides, split.batch, place.head, query / rows_of_scale<Config>)];
      });
    } else {
      float k = read(descale_.k, descale_.k_strides, split);
      if constexpr (has_query_factors) {
        if constexpr (is_fp8<typename Config::Element>) {
          k *= read(descale_.q, descale_.q_strides, split);
          if (k < 0) k = __int_as_float(0x7fffffff);  // NaN, as in families that would take minima for maxima
        }
        if constexpr (has_blocks) k *= e2m1_shrinks<KvElement<Config>>;
#pragma unroll
        for (int r = 0; r < Scores::rows; ++r) of_scores_.of_rows[r] = k * q.factors[r];
        take_values(split);
      } else {
        take_values(split);
        of_scores_ = Config::Score::is_identity ? score_factor(k)
                                                : ScoreFactor{1.0f, k};  // functors want scores as they are
      }
    }
  }
  /// The factor that turns the split's scores into exponents of 2; `scale_log2` is the factor without scales.
  JIT_DEVICE float of_exponents(float scale_log2) const { return scale_log2 * of_scores_.exponents; }
  /// Scales a warp's scores; their first key is key `first_key` of the stage at shared address `stage`.
  JIT_DEVICE void scale_scores(Scores& scores, unsigned stage = 0, int first_key = 0) const {
    if constexpr (has_each) {
      scale_by_rows<Scale>(
          scores, of_scores_.of_rows,
          // mutate: ScalesOfTheFirstKeys
          stage + Traits::layout.k_scales + (first_key + Layout::lane_column(lane_id())) * 4);
    } else if constexpr (has_query_factors) {
      scores.scale_rows(of_scores_.of_rows);
    } else {
      of_scores_.scale(scores);
    }
  }
  /// Multiplies P by the scales of values, after P has been summed.
  JIT_DEVICE void scale_weights(Scores& p, unsigned stage, int first_key) const {
    if constexpr (has_each_value)
      scale_by_columns<ValueScale>(
          p, stage + Traits::layout.v_scales + first_key * 4 + Layout::lane_column(lane_id()) * 4);
  }
  /// Multiplies O by the scale of values, after the last step of a split.
  template <class Output>
  JIT_DEVICE void scale_output(Output& output) const {
    if constexpr (has_zeros) {
      output.finish();
    } else if constexpr (!has_each_value) {
      output.for_each(0, 0, [&](float& value, int, int) { value *= v_; });
    }
  }

 private:
  // Reads the scale of all values of a split; 1 if columns have scales.
  JIT_DEVICE void take_values(const Info<Config>& split) {
    v_ = has_channel_scales<Config> ? 1 : read(descale_.v, descale_.v_strides, split);
    if constexpr (has_blocks) v_ *= e2m1_shrinks<KvElement<Config>>;
  }
  static JIT_DEVICE float read(const float* scales, const TensorStrides& strides, const Info<Config>& split) {
    return scales != nullptr ? scales[sequence_of(split) * strides.batch + split.kv_head * strides.head]
                             : 1.0f;
  }
  static JIT_DEVICE int sequence_of(const Info<Config>& split) {
    if constexpr (has_key_lists<Config>) return split.owner.sequence;
    return split.batch;
  }

  typename ChosenType<has_each_value, NothingToRead, const DescaleParams&>::type descale_;
  typename ChosenType<has_query_factors, OfRows, ScoreFactor>::type of_scores_;
  float v_ = 1;
};

/// 16-bit elements have no scales.
template <class Traits, class Queries>
class SplitDequant<Traits, Queries, false> {
  using Scores = typename Traits::Scores;

 public:
  JIT_DEVICE explicit SplitDequant(const AttentionParams&) {}

  JIT_DEVICE void begin_split(const SplitInfo&, const Queries&) {}
  JIT_DEVICE float of_exponents(float scale_log2) const { return scale_log2; }
  JIT_DEVICE void scale_scores(Scores&, unsigned = 0, int = 0) const {}
  JIT_DEVICE void scale_weights(Scores&, unsigned, int) const {}
  template <class Output>
  JIT_DEVICE void scale_output(Output&) const {}
};

}  // namespace jit
