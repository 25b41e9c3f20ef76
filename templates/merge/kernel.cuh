// Merges partial attention states of disjoint sets of keys into one:
//
//   M = max lseᵢ,  wᵢ = exp(lseᵢ − M),  o = Σ wᵢ oᵢ / Σ wᵢ,  lse = M + log Σ wᵢ
//
// in fp32, summed in the order of the states. A few lanes of a warp have a row of o, a piece each. They look at the lse
// of as many states at a time, a lane each. The pieces of the first states are on the way at the same time as their lse,
// and those of the next ones while a few are summed: a row takes one trip to memory, not two, where there are few states.
#pragma once

#include "base/dependent_launch.cuh"
#include "base/prelude.cuh"
#include "base/row_lanes.cuh"
#include "base/row_pieces.cuh"
#include "base/touch_lines.cuh"
#include "merge/params.cuh"
#include "ptx/math.cuh"

namespace jit {

/// How lanes merge rows. A row is asked for while the one before it is merged.
template <class Config>
class RowMerger {
  using Element = typename Config::Element;
  using Output = typename Config::OutputElement;
  static constexpr RowLanes share =
      row_lanes(Config::head_dim_v, Config::head_dim_v, maximum<int>(sizeof(Element), sizeof(Output)));
  /// States whose pieces a lane asks for at once; those of as many more are on the way.
  static constexpr int ahead = share.turns == 1 ? 2 : 1;
  static constexpr int piece_bytes = share.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;
  static constexpr int row_alignment = maximum(Config::alignment, static_cast<int>(sizeof(Element)));

  /// Where one state has a row; null when there is none.
  struct State {
    const Element* o;
    const float* lse;
  };
  /// A lane's pieces of a few states, as they lie in memory.
  struct Pieces {
    unsigned words[ahead][share.turns][piece_words];
  };

 public:
  static constexpr int lanes = share.lanes;

  /// A row that was asked for: its state of the lane's number, that one's lse, and the pieces of the first states.
  struct Row {
    unsigned index;
    bool exists;
    State own;
    float own_lse;
    Pieces pieces;
  };

  __device__ __forceinline__ explicit RowMerger(const MergeParams<Config::views>& params)
      : params_(params), lane_(threadIdx.x % share.lanes) {}

  __device__ __forceinline__ Row ask(unsigned index) const {
    Row row{index, index < params_.rows};
    row.own = state(row, lane_);
    row.pieces = load(row.own, 0);
    row.own_lse = state_lse(row.own);
    return row;
  }

  __device__ __forceinline__ void merge(const Row& row) const {
    State own = row.own;
    float own_lse = row.own_lse;
    Pieces pieces = row.pieces, next = load(own, ahead);
    const float largest = largest_lse(row);
    float sum = 0, o[share.turns][share.piece] = {};
    for (unsigned first = 0; first < params_.states; first += share.lanes) {
      if (first > 0) {
        own = state(row, first + lane_);
        pieces = load(own, 0);
        next = load(own, ahead);
        own_lse = state_lse(own);
      }
      const float own_weight = largest == negative_infinity() ? 0.0f : ex2((own_lse - largest) * log2_e);
      const int count = minimum<unsigned>(share.lanes, params_.states - first);
      for (int begin = 0; begin < count; begin += ahead) {
        add(pieces, own_weight, begin, sum, o);
        pieces = next;
        next = load(own, begin + 2 * ahead);
      }
    }
    __syncwarp();  // o and lse may lie over those of a state
    if (row.exists) write(row, o, largest, sum);
  }

 private:
  __device__ __forceinline__ State state(const Row& row, unsigned index) const {
    State found{nullptr, nullptr};
    if (!row.exists) return found;
    long long left = index;
#pragma unroll
    for (int v = 0; v < Config::views; ++v) {
      const MergeView& view = params_.view[v];
      if (left >= 0 && left < view.states) {
        found.o =
            static_cast<const Element*>(view.o) + left * view.o_state_stride + place(row, view.o_strides);
        found.lse = view.lse + left * view.lse_state_stride + place(row, view.lse_strides);
      }
      left -= view.states;
    }
    return found;
  }

  /// −inf where there is no state; +inf, which some kernels write for rows without keys, is taken for it.
  static __device__ __forceinline__ float state_lse(const State& state) {
    if (state.lse == nullptr) return negative_infinity();
    const float lse = *state.lse;
    return lse == -negative_infinity() ? negative_infinity() : lse;
  }

  /// Of all states of a row.
  __device__ __forceinline__ float largest_lse(const Row& row) const {
    float largest = row.own_lse;
    for (unsigned index = share.lanes + lane_; index < params_.states; index += share.lanes)
      largest = max_nan(largest, state_lse(state(row, index)));
#pragma unroll
    for (int offset = share.lanes / 2; offset > 0; offset /= 2)
      largest = max_nan(largest, __shfl_xor_sync(full_warp, largest, offset));
    return largest;
  }

  /// Asks for the pieces of states `begin` to `begin + ahead` of those that the lanes have; zeros where there is none.
  __device__ __forceinline__ Pieces load(const State& own, int begin) const {
    Pieces pieces = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const unsigned long long theirs = __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own.o),
                                                    (begin + i) % share.lanes, share.lanes);
      const auto row = reinterpret_cast<const Element*>(theirs);
      if (row == nullptr || begin + i >= share.lanes) continue;
#pragma unroll
      for (int turn = 0; turn < share.turns; ++turn) {
        if (has_piece(turn))
          load_words<piece_bytes, row_alignment>(row + column(turn), pieces.words[i][turn]);
      }
    }
    return pieces;
  }

  /// Adds the pieces of states `begin` to `begin + ahead`. What a state without weight holds does not count: 0 times it
  /// may not be 0.
  __device__ __forceinline__ void add(const Pieces& pieces, float own_weight, int begin, float& sum,
                                      float (&o)[share.turns][share.piece]) const {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const float theirs = __shfl_sync(full_warp, own_weight, (begin + i) % share.lanes, share.lanes);
      const float weight = begin + i < share.lanes ? theirs : 0.0f;
      sum += weight;
      if (weight == 0) continue;
#pragma unroll
      for (int turn = 0; turn < share.turns; ++turn) {
        float values[share.piece];
        widen_words<Element>(pieces.words[i][turn], values);
#pragma unroll
        for (int d = 0; d < share.piece; ++d) o[turn][d] = fmaf(weight, values[d], o[turn][d]);
      }
    }
  }

  __device__ __forceinline__ void write(const Row& row, float (&o)[share.turns][share.piece], float largest,
                                        float sum) const {
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    Output* target = static_cast<Output*>(params_.o) + place(row, params_.o_strides);
#pragma unroll
    for (int turn = 0; turn < share.turns; ++turn) {
#pragma unroll
      for (int d = 0; d < share.piece; ++d) o[turn][d] *= inverse;
      if (has_piece(turn)) store_piece<Config::alignment>(target + column(turn), o[turn]);
    }
    if (lane_ == 0 && params_.lse != nullptr)
      params_.lse[place(row, params_.lse_strides)] =
          sum == 0 ? negative_infinity() : largest + ln_2 * lg2(sum);
  }

  __device__ __forceinline__ int column(int turn) const { return (turn * share.lanes + lane_) * share.piece; }
  __device__ __forceinline__ bool has_piece(int turn) const {
    return turn * share.lanes + lane_ < share.pieces;
  }
  __device__ __forceinline__ long long place(const Row& row, const TensorStrides& strides) const {
    const unsigned token = row.index / params_.heads, batch = token / params_.seqlen;
    return batch * strides.batch + (token - batch * params_.seqlen) * strides.seq +
           (row.index - token * params_.heads) * strides.head;
  }

  const MergeParams<Config::views>& params_;
  int lane_;
};

/// A block has `rows_per_lane` times as many rows as it merges at once.
template <class Config>
__device__ __forceinline__ void merge_states(const MergeParams<Config::views>& params) {
  touch_lines(params);
  wait_for_grids_before();
  const RowMerger<Config> merger(params);
  const unsigned step = blockDim.x / RowMerger<Config>::lanes;
  auto row = merger.ask(blockIdx.x * step * params.rows_per_lane + threadIdx.x / RowMerger<Config>::lanes);
#pragma unroll 1
  for (unsigned left = params.rows_per_lane; left > 0; --left) {
    const auto next = merger.ask(left > 1 ? row.index + step : params.rows);
    merger.merge(row);
    row = next;
  }
  let_next_grid_start();
}

}  // namespace jit
