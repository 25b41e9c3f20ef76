// Merges up to `few` partial attention states, with the bits of merge/kernel.cuh. The instructions of a row decide here, since
// they move few bytes: a lane has two pieces of a row, and reads the lse of all states itself, without shuffles.
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
class FewStates {
  using Element = typename Config::Element;
  using Output = typename Config::OutputElement;
  static constexpr RowLanes share = halved(
      row_lanes(Config::head_dim_v, Config::head_dim_v, maximum<int>(sizeof(Element), sizeof(Output))));
  static constexpr int few = Config::few;
  static constexpr int at_once = minimum(share.iterations, 2);  ///< pieces of a lane on their way together
  static constexpr int piece_bytes = share.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;
  static constexpr int row_alignment = maximum(Config::alignment, static_cast<int>(sizeof(Element)));

  /// One piece of the row in each state.
  struct Words {
    unsigned of_state[few][piece_words];
  };

 public:
  JIT_DEVICE explicit FewStates(const MergeParams<Config::views>& params)
      : params_(params),
        lane_(threadIdx.x % share.lanes),
        row_(blockIdx.x * (blockDim.x / share.lanes) + threadIdx.x / share.lanes),
        place_(params, row_) {
    find_states();
  }

  JIT_DEVICE void merge() {
    Words words[at_once];
    load(0, words);
    float largest = lse_[0], sum = 0;
#pragma unroll
    for (int i = 1; i < few; ++i) largest = max_nan(largest, lse_[i]);
    float weights[few];
#pragma unroll
    for (int i = 0; i < few; ++i) {
      weights[i] =
          i >= params_.states || largest == negative_infinity() ? 0.0f : ex2((lse_[i] - largest) * log2_e);
      sum += weights[i];
    }
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    Output* const row = static_cast<Output*>(params_.o) + place_(params_.o_strides);
#pragma unroll 1
    for (int first = 0;;) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) add(words[i], weights, inverse, first + i, row);
      first += at_once;
      if (first >= share.iterations) break;
      load(first, words);
    }
    __syncwarp();  // lse may lie over that of a state
    if (lane_ == 0 && row_ < params_.rows && params_.lse != nullptr)
      params_.lse[place_(params_.lse_strides)] = sum == 0 ? negative_infinity() : largest + ln_2 * lg2(sum);
  }

 private:
  /// Finds the row of each state, and its lse: −inf where there is no state; +inf, which some kernels write for rows
  /// without keys, is taken for it.
  JIT_DEVICE void find_states() {
    const bool is_row = row_ < params_.rows;
    int v = 0;
    long long index = 0;  // of the state in view v
    const Element* o = first_row(0);
    const float* lse = first_lse(0);
#pragma unroll
    for (int i = 0; i < few; ++i) {
      lse_[i] = negative_infinity();
      o_[i] = nullptr;
      if (i >= params_.states) continue;
      if (index == params_.view[v].states) {
        index = 0;
        o = first_row(++v);
        lse = first_lse(v);
      }
      o_[i] = o + index * params_.view[v].o_state_stride;
      const float own = is_row ? lse[index * params_.view[v].lse_state_stride] : negative_infinity();
      lse_[i] = own == -negative_infinity() ? negative_infinity() : own;
      ++index;
    }
  }

  JIT_DEVICE const Element* first_row(int v) const {
    return static_cast<const Element*>(params_.view[v].o) + place_(params_.view[v].o_strides);
  }
  JIT_DEVICE const float* first_lse(int v) const {
    return params_.view[v].lse + place_(params_.view[v].lse_strides);
  }

  /// Asks for the pieces of iterations `first` to `first + at_once`.
  JIT_DEVICE void load(int first, Words (&words)[at_once]) const {
#pragma unroll
    for (int iteration = 0; iteration < at_once; ++iteration) {
#pragma unroll
      for (int i = 0; i < few; ++i) {
        if (i < params_.states && has_piece(first + iteration))
          load_words<piece_bytes, row_alignment>(o_[i] + column(first + iteration),
                                                 words[iteration].of_state[i]);
      }
    }
  }

  JIT_DEVICE void add(const Words& words, const float (&weights)[few], float inverse, int iteration,
                      Output* row) const {
    float o[share.piece] = {};
#pragma unroll
    for (int i = 0; i < few; ++i) {
      if (i >= params_.states) continue;
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
    if (has_piece(iteration)) store_piece<Config::alignment>(row + column(iteration), o);
  }

  JIT_DEVICE int column(int iteration) const { return (iteration * share.lanes + lane_) * share.piece; }
  JIT_DEVICE bool has_piece(int iteration) const {
    return row_ < params_.rows && iteration * share.lanes + lane_ < share.pieces;
  }

  const MergeParams<Config::views>& params_;
  const int lane_;
  const unsigned row_;
  const RowPlace place_;
  const Element* o_[few];
  float lse_[few];
};

template <class Config>
JIT_DEVICE void merge_few_states(const MergeParams<Config::views>& params) {
  wait_on_dependent_grids();
  FewStates<Config>(params).merge();
  launch_dependent_grids();
}

}  // namespace jit
