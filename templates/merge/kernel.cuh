// Merges partial attention states of disjoint sets of keys into one:
//
//   M = max lseᵢ,  wᵢ = exp(lseᵢ − M),  o = Σ wᵢ oᵢ / Σ wᵢ,  lse = M + log Σ wᵢ
//
// in fp32, summed in the order of the states. A few lanes of a warp have a row of o: they look at the lse of as many
// states at a time, a lane each, then read o of those that have keys, a piece each.
#pragma once

#include "base/dependent_launch.cuh"
#include "base/prelude.cuh"
#include "base/row_lanes.cuh"
#include "base/row_pieces.cuh"
#include "merge/params.cuh"
#include "ptx/math.cuh"

namespace jit {

/// lse of a state; +inf, which some kernels write for rows without keys, is taken for −inf.
__device__ __forceinline__ float state_lse(const float* lse) {
  return *lse == -negative_infinity() ? negative_infinity() : *lse;
}

template <class Config>
class MergeRow {
  using Element = typename Config::Element;
  using Output = typename Config::OutputElement;
  static constexpr RowLanes share =
      row_lanes(Config::head_dim_v, Config::head_dim_v, maximum<int>(sizeof(Element), sizeof(Output)));
  /// States whose pieces are on the way at once.
  static constexpr int ahead = maximum(1, 4 / share.turns);

 public:
  __device__ __forceinline__ explicit MergeRow(const MergeParams<Config::views>& params)
      : params_(params), lane_(threadIdx.x % share.lanes) {
    const unsigned row = blockIdx.x * (blockDim.x / share.lanes) + threadIdx.x / share.lanes;
    is_row_ = row < params.rows;
    head_ = row % params.heads;
    seq_ = row / params.heads % params.seqlen;
    batch_ = row / params.heads / params.seqlen;
  }

  __device__ __forceinline__ void merge() {
    const float largest = largest_lse();
    float sum = 0, o[share.turns][share.piece] = {};
    for (unsigned first = 0; first < params_.states; first += share.lanes) {
      const State own = state(first + lane_);
      const float own_weight = own.lse == nullptr || largest == negative_infinity()
                                   ? 0.0f
                                   : ex2((state_lse(own.lse) - largest) * log2_e);
      const int count = minimum<unsigned>(share.lanes, params_.states - first);
      for (int begin = 0; begin < count; begin += ahead) add_states(own, own_weight, begin, count, sum, o);
    }
    __syncwarp();  // o and lse may lie over those of a state
    if (is_row_) write(o, largest, sum);
  }

 private:
  /// Where one state has this row; null when there is none.
  struct State {
    const Element* o;
    const float* lse;
  };

  __device__ __forceinline__ State state(unsigned index) const {
    State found{nullptr, nullptr};
    if (!is_row_) return found;
    long long left = index;
#pragma unroll
    for (int v = 0; v < Config::views; ++v) {
      const MergeView& view = params_.view[v];
      if (left >= 0 && left < view.states) {
        found.o = static_cast<const Element*>(view.o) + left * view.o_state_stride + place(view.o_strides);
        found.lse = view.lse + left * view.lse_state_stride + place(view.lse_strides);
      }
      left -= view.states;
    }
    return found;
  }

  __device__ __forceinline__ float largest_lse() const {
    float largest = negative_infinity();
    for (unsigned index = lane_; index < params_.states; index += share.lanes) {
      const State own = state(index);
      if (own.lse != nullptr) largest = max_nan(largest, state_lse(own.lse));
    }
#pragma unroll
    for (int offset = share.lanes / 2; offset > 0; offset /= 2)
      largest = max_nan(largest, __shfl_xor_sync(full_warp, largest, offset));
    return largest;
  }

  /// States `begin` to `begin + ahead` of those that the lanes have; their weights and places come from there.
  /// What a state without weight holds is not looked at.
  __device__ __forceinline__ void add_states(const State& own, float own_weight, int begin, int count,
                                             float& sum, float (&o)[share.turns][share.piece]) const {
    float weight[ahead], values[ahead][share.turns][share.piece] = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int lane = begin + i < count ? begin + i : 0;
      const float others = __shfl_sync(full_warp, own_weight, lane, share.lanes);
      const auto row = reinterpret_cast<const Element*>(
          __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own.o), lane, share.lanes));
      weight[i] = begin + i < count ? others : 0.0f;
      if (weight[i] == 0) continue;
#pragma unroll
      for (int turn = 0; turn < share.turns; ++turn) {
        if (has_piece(turn)) load_piece<Config::alignment>(row + column(turn), values[i][turn]);
      }
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      sum += weight[i];
#pragma unroll
      for (int turn = 0; turn < share.turns; ++turn) {
#pragma unroll
        for (int d = 0; d < share.piece; ++d) o[turn][d] = fmaf(weight[i], values[i][turn][d], o[turn][d]);
      }
    }
  }

  __device__ __forceinline__ void write(float (&o)[share.turns][share.piece], float largest,
                                        float sum) const {
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    Output* row = static_cast<Output*>(params_.o) + place(params_.o_strides);
#pragma unroll
    for (int turn = 0; turn < share.turns; ++turn) {
#pragma unroll
      for (int d = 0; d < share.piece; ++d) o[turn][d] *= inverse;
      if (has_piece(turn)) store_piece<Config::alignment>(row + column(turn), o[turn]);
    }
    if (lane_ == 0 && params_.lse != nullptr)
      params_.lse[place(params_.lse_strides)] = sum == 0 ? negative_infinity() : largest + ln_2 * lg2(sum);
  }

  __device__ __forceinline__ int column(int turn) const { return (turn * share.lanes + lane_) * share.piece; }
  __device__ __forceinline__ bool has_piece(int turn) const {
    return turn * share.lanes + lane_ < share.pieces;
  }
  __device__ __forceinline__ long long place(const TensorStrides& strides) const {
    return batch_ * strides.batch + seq_ * strides.seq + head_ * strides.head;
  }

  const MergeParams<Config::views>& params_;
  int lane_;
  bool is_row_;
  unsigned head_, seq_, batch_;
};

template <class Config>
__device__ __forceinline__ void merge_states(const MergeParams<Config::views>& params) {
  wait_for_grids_before();
  MergeRow<Config>(params).merge();
  let_next_grid_start();
}

}  // namespace jit
