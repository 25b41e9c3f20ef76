// Merges partial attention states of disjoint sets of keys into one:
//
//   M = max lseᵢ,  wᵢ = exp(lseᵢ − M),  o = Σ wᵢ oᵢ / Σ wᵢ,  lse = M + log Σ wᵢ
//
// in fp32, summed in the order of the states. A group of lanes of a warp has a row of o, a piece each, and reads the lse of as
// many states at a time, a lane each. The pieces of the first states are loaded together with their lse, and those of the next
// ones while a few are summed: with few states a row takes one memory latency, not two.
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
class MergeRow {
  using Element = typename Config::Element;
  using Output = typename Config::OutputElement;
  static constexpr RowLanes share =
      row_lanes(Config::head_dim_v, Config::head_dim_v, maximum<int>(sizeof(Element), sizeof(Output)));
  /// States whose pieces a lane asks for at once; those of as many more are on the way.
  static constexpr int ahead = share.iterations == 1 ? Config::ahead : 1;
  static constexpr int piece_bytes = share.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;
  static constexpr int row_alignment = maximum(Config::alignment, static_cast<int>(sizeof(Element)));

 public:
  JIT_DEVICE explicit MergeRow(const MergeParams<Config::views>& params)
      : params_(params),
        lane_(threadIdx.x % share.lanes),
        row_(blockIdx.x * (blockDim.x / share.lanes) + threadIdx.x / share.lanes),
        place_(params, row_) {}

  JIT_DEVICE void merge() {
    State own = state(lane_);
    Pieces pieces = load(own, 0), next = load(own, ahead);
    float own_lse = state_lse(own);
    const float largest = largest_lse(own_lse);
    float sum = 0, o[share.iterations][share.piece] = {};
    for (unsigned first = 0; first < params_.states; first += share.lanes) {
      if (first > 0) {
        own = state(first + lane_);
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
    if (is_row()) write(o, largest, sum);
  }

 private:
  /// Where one state has this row; null when there is none.
  struct State {
    const Element* o;
    const float* lse;
  };
  /// The lane's pieces of a few states, as they lie in memory.
  struct Pieces {
    unsigned words[ahead][share.iterations][piece_words];
  };

  JIT_DEVICE State state(unsigned index) const {
    State found{nullptr, nullptr};
    if (!is_row()) return found;
    long long left = index;
#pragma unroll 1
    for (int v = 0; v < Config::views; ++v) {
      const MergeView& view = params_.view[v];
      if (left < view.states) {
        found.o = static_cast<const Element*>(view.o) + left * view.o_state_stride + place_(view.o_strides);
        found.lse = view.lse + left * view.lse_state_stride + place_(view.lse_strides);
        break;
      }
      left -= view.states;
    }
    return found;
  }

  /// −inf where there is no state; +inf, which some kernels write for rows without keys, is taken for it.
  static JIT_DEVICE float state_lse(const State& state) {
    if (state.lse == nullptr) return negative_infinity();
    const float lse = *state.lse;
    return lse == -negative_infinity() ? negative_infinity() : lse;
  }

  /// The largest LSE of all states; `own_lse` is that of the one with the lane's number.
  JIT_DEVICE float largest_lse(float own_lse) const {
    float largest = own_lse;
    for (unsigned index = share.lanes + lane_; index < params_.states; index += share.lanes)
      largest = max_nan(largest, state_lse(state(index)));
#pragma unroll
    for (int offset = share.lanes / 2; offset > 0; offset /= 2)
      largest = max_nan(largest, __shfl_xor_sync(full_warp, largest, offset));
    return largest;
  }

  /// Asks for the pieces of states `begin` to `begin + ahead` of those that the lanes have; zeros where there is none.
  JIT_DEVICE Pieces load(const State& own, int begin) const {
    Pieces pieces = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const unsigned long long theirs = __shfl_sync(full_warp, reinterpret_cast<unsigned long long>(own.o),
                                                    (begin + i) % share.lanes, share.lanes);
      const auto row = reinterpret_cast<const Element*>(theirs);
      if (row == nullptr || begin + i >= share.lanes) continue;
#pragma unroll
      for (int iteration = 0; iteration < share.iterations; ++iteration) {
        if (has_piece(iteration))
          load_words<piece_bytes, row_alignment>(row + column(iteration), pieces.words[i][iteration]);
      }
    }
    return pieces;
  }

  /// Adds the pieces of states `begin` to `begin + ahead`. What a state without weight holds does not count: 0 times it
  /// may not be 0.
  JIT_DEVICE void add(const Pieces& pieces, float own_weight, int begin, float& sum,
                      float (&o)[share.iterations][share.piece]) const {
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const float theirs = __shfl_sync(full_warp, own_weight, (begin + i) % share.lanes, share.lanes);
      const float weight = begin + i < share.lanes ? theirs : 0.0f;
      sum += weight;
      if (weight == 0) continue;
#pragma unroll
      for (int iteration = 0; iteration < share.iterations; ++iteration) {
        float values[share.piece];
        upcast_words<Element>(pieces.words[i][iteration], values);
#pragma unroll
        for (int d = 0; d < share.piece; ++d) o[iteration][d] = fmaf(weight, values[d], o[iteration][d]);
      }
    }
  }

  JIT_DEVICE void write(float (&o)[share.iterations][share.piece], float largest, float sum) const {
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    Output* row = static_cast<Output*>(params_.o) + place_(params_.o_strides);
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
#pragma unroll
      for (int d = 0; d < share.piece; ++d) o[iteration][d] *= inverse;
      if (has_piece(iteration)) store_piece<Config::alignment>(row + column(iteration), o[iteration]);
    }
    if (lane_ == 0 && params_.lse != nullptr)
      params_.lse[place_(params_.lse_strides)] = sum == 0 ? negative_infinity() : largest + ln_2 * lg2(sum);
  }

  JIT_DEVICE bool is_row() const { return row_ < params_.rows; }
  JIT_DEVICE int column(int iteration) const { return (iteration * share.lanes + lane_) * share.piece; }
  JIT_DEVICE bool has_piece(int iteration) const { return iteration * share.lanes + lane_ < share.pieces; }

  const MergeParams<Config::views>& params_;
  int lane_;
  unsigned row_;
  RowPlace place_;
};

template <class Config>
JIT_DEVICE void merge_states(const MergeParams<Config::views>& params) {
  wait_on_dependent_grids();
  MergeRow<Config>(params).merge();
  launch_dependent_grids();
}

}  // namespace jit
