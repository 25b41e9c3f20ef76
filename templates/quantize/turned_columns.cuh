// Elements of a piece of work that leave token after token: a lane has a run of tokens of some columns, and the runs of a
// column come together in shared memory, from where they go out side by side.
#pragma once

#include "base/row_pieces.cuh"
#include "quantize/rows.cuh"

namespace jit {

/// A run is what a lane has of a column: `quantize_steps` tokens of a byte each.
template <class Config, QkvTensor tensor>
class TurnedColumns {
  using Plan = QuantizePlan<Config, tensor>;
  using Rows = QuantizeRows<Config, tensor>;
  static constexpr RowLanes share = Plan::share;
  static constexpr int run_words = quantize_steps / 4;
  static constexpr int runs = Plan::chunk / quantize_steps;  // of a column
  static_assert(quantize_steps == 8 && (runs & (runs - 1)) == 0);

 public:
  /// Two neighbouring columns of a row, from `i` on of the lane's piece of turn `turn`.
  __device__ __forceinline__ void take(int turn, int i, int step, unsigned pair) {
    const int shift = step % 4 * 8;
    words_[turn][i][step / 4] |= (pair & 0xff) << shift;
    // mutate: TheSecondColumnOfAPairIsLost
    if (i + 1 < share.piece) words_[turn][i + 1][step / 4] |= (pair >> 8 & 0xff) << shift;
  }

  /// Stores all columns of the piece of work. By all threads of a block, once.
  __device__ __forceinline__ void store(const Rows& rows) {
    void* const memory = rows.scratch();
    leave(rows, memory);
    __syncthreads();  // mutate: RunsAreReadBeforeTheyAreThere
    send(rows, memory, static_cast<int>(threadIdx.x), Plan::threads);
  }

  /// Both halves of it, between which all threads must meet: puts the lane's runs into `memory`, of a byte for each element
  /// of the piece of work,
  __device__ __forceinline__ void leave(const Rows& rows, void* memory) const {
    static_assert(Plan::chunk * Plan::columns <= Plan::row_bytes);
    rows.for_pieces([&](int turn, int column) {
#pragma unroll
      for (int i = 0; i < share.piece; ++i)
        *run(memory, column + i, rows.place(0) / quantize_steps) =
            make_uint2(words_[turn][i][0], words_[turn][i][1]);
    });
  }

  /// and stores those of all, by `threads` threads, of which this is `thread`.
  static __device__ __forceinline__ void send(const Rows& rows, void* memory, int thread, int threads) {
    using Stored = typename Config::StoredElement;
    constexpr int alignment = Config::alignment / static_cast<int>(sizeof(typename Config::Element));
    const QuantizeTensor& own = rows.own();
    Stored* const to = static_cast<Stored*>(own.to) + rows.offset(own.to_strides);
    for (int at = thread; at < Plan::columns * runs; at += threads) {
      const int column = at / runs, token = rows.chunk_begin() + at % runs * quantize_steps;
      const uint2 found = *run(memory, column, at % runs);
      const unsigned words[run_words] = {found.x, found.y};
      Stored* const target = to + column * own.to_strides.seq + token;
      if (token + quantize_steps <= own.seqlen) {
        store_words<quantize_steps, maximum(alignment, 1)>(target, words);
      } else {
        // As one number: an array that is indexed by `i` would lie in memory.
        unsigned long long rest = static_cast<unsigned long long>(found.y) << 32 | found.x;
        for (int i = 0; token + i < own.seqlen; ++i, rest >>= 8)  // mutate: TheLastRunIsLost
          target[i].bits = static_cast<unsigned char>(rest);
      }
    }
  }

 private:
  // Lanes of a row store runs of columns that lie a multiple of all banks apart; so the place of a run depends on the lane.
  static __device__ __forceinline__ uint2* run(void* memory, int column, int at) {
    const int lane = column / share.piece % share.lanes;
    return reinterpret_cast<uint2*>(static_cast<char*>(memory) +
                                    // mutate: RunsOfAllLanesInOnePlace
                                    (column * runs + (at ^ lane % runs)) * quantize_steps);
  }

  unsigned words_[share.turns][share.piece][run_words] = {};
};

}  // namespace jit
