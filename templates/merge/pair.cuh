// Merges two partial attention states, with the bits of merge/kernel.cuh. The instructions of a row decide here, since it moves few
// bytes: rows of o lie at equal distances, a lane has two pieces of a row, and reads the lse of both states itself.
#pragma once

#include "base/prelude.cuh"
#include "base/row_lanes.cuh"
#include "base/row_pieces.cuh"
#include "merge/params.cuh"
#include "merge/row_place.cuh"
#include "pipeline/dependent_launch.cuh"
#include "ptx/math.cuh"

namespace jit {

template <class Config>
class MergePair {
  using Element = typename Config::Element;
  using Output = typename Config::OutputElement;
  static constexpr RowLanes share = halved(
      row_lanes(Config::head_dim_v, Config::head_dim_v, maximum<int>(sizeof(Element), sizeof(Output))));
  static constexpr int states = 2;
  static constexpr int at_once = minimum(share.iterations, 2);  ///< pieces of a lane on their way together
  static constexpr int piece_bytes = share.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;
  static constexpr int row_alignment = maximum(Config::alignment, static_cast<int>(sizeof(Element)));

  /// One piece of the row in each state.
  struct Words {
    unsigned of_state[states][piece_words];
  };

 public:
  JIT_DEVICE explicit MergePair(const MergePairParams& params)
      : params_(params),
        lane_(threadIdx.x % share.lanes),
        row_(blockIdx.x * (blockDim.x / share.lanes) + threadIdx.x / share.lanes),
        is_row_(row_ < params.rows),
        place_(params, row_) {}

  JIT_DEVICE void merge() {
    const long long first = row_ * params_.state_o_row_stride + lane_ * share.piece;
    const long long lse_at = place_(params_.state_lse_strides);
    float lse[states];
    const Element* o[states];
#pragma unroll
    for (int i = 0; i < states; ++i) {
      lse[i] = is_row_ ? params_.state_lse[i][lse_at] : negative_infinity();
      o[i] = static_cast<const Element*>(params_.state_o[i]) + first;
    }
    Words words[at_once];
    load(0, o, words);
#pragma unroll
    for (int i = 0; i < states;
         ++i)  // +inf, which some kernels write for rows without keys, is taken for -inf
      lse[i] = lse[i] == -negative_infinity() ? negative_infinity() : lse[i];
    const float largest = max_nan(lse[0], lse[1]);
    float weights[states], sum = 0;
#pragma unroll
    for (int i = 0; i < states; ++i) {
      weights[i] = largest == negative_infinity() ? 0.0f : ex2((lse[i] - largest) * log2_e);
      sum += weights[i];
    }
    const float inverse = inverse_of(sum);
    Output* const row = static_cast<Output*>(params_.o) + row_ * params_.o_row_stride + lane_ * share.piece;
#pragma unroll 1
    for (int begin = 0;;) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) add(words[i], weights, inverse, begin + i, row);
      begin += at_once;
      if (begin >= share.iterations) break;
      load(begin, o, words);
    }
    __syncwarp();  // lse may lie over that of a state
    if (lane_ == 0 && is_row_ && params_.lse != nullptr)
      params_.lse[place_(params_.lse_strides)] = sum == 0 ? negative_infinity() : largest + ln_2 * lg2(sum);
  }

 private:
  /// 1 / sum, rounded as a division is, and 0 of 0. The sum is 0, not a number, or from 1 to 2, so that one step of Newton's
  /// suffices.
  static JIT_DEVICE float inverse_of(float sum) {
    const float near = rcp(sum);
    return sum == 0 ? 0.0f : fmaf(near, fmaf(-sum, near, 1.0f), near);
  }

  /// Asks for the pieces of iterations `begin` to `begin + at_once`.
  JIT_DEVICE void load(int begin, const Element* const (&o)[states], Words (&words)[at_once]) const {
#pragma unroll
    for (int iteration = 0; iteration < at_once; ++iteration) {
#pragma unroll
      for (int i = 0; i < states; ++i) {
        if (has_piece(begin + iteration))
          load_words<piece_bytes, row_alignment>(o[i] + step(begin + iteration),
                                                 words[iteration].of_state[i]);
      }
    }
  }

  JIT_DEVICE void add(const Words& words, const float (&weights)[states], float inverse, int iteration,
                      Output* row) const {
    float o[share.piece] = {};
#pragma unroll
    for (int i = 0; i < states; ++i) {
      unsigned own[piece_words];
#pragma unroll
      for (int w = 0; w < piece_words; ++w)
        own[w] = weights[i] == 0 ? 0 : words.of_state[i][w];  // not 0 times the row, which may be NaN
      float values[share.piece];
      upcast_words<Element>(own, values);
#pragma unroll
      for (int d = 0; d < share.piece; ++d) o[d] = fmaf(weights[i], values[d], o[d]);
    }
#pragma unroll
    for (int d = 0; d < share.piece; ++d) o[d] *= inverse;
    if (has_piece(iteration)) store_piece<Config::alignment>(row + step(iteration), o);
  }

  static JIT_DEVICE int step(int iteration) { return iteration * share.lanes * share.piece; }
  JIT_DEVICE bool has_piece(int iteration) const {
    return is_row_ && (share.pieces % share.lanes == 0 || iteration * share.lanes + lane_ < share.pieces);
  }

  const MergePairParams& params_;
  const int lane_;
  const unsigned row_;
  const bool is_row_;
  const RowPlace place_;
};

template <class Config>
JIT_DEVICE void merge_pair(const MergePairParams& params) {
  wait_on_dependent_grids();
  MergePair<Config>(params).merge();
  launch_dependent_grids();
}

}  // namespace jit
