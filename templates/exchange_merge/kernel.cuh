// Exchanges partial attention states of disjoint sets of keys between devices, and merges them, as merge/kernel.cuh has it:
//
//   M = max lseᵢ,  wᵢ = exp(lseᵢ − M),  o = Σ wᵢ oᵢ / Σ wᵢ,  lse = M + log Σ wᵢ
//
// in fp32, in the order of ranks, so that all ranks that receive a row get the same bits. Rows travel by tiles. A
// block first stores its tiles to the buffers of those that receive them, a flag behind each, and only then waits for flags:
// all blocks run at the same time, and none waits before it has sent, so that ranks cannot wait for each other in a circle.
//
// Flags hold the epoch, a count of calls on the device that the last block of a call increments, so that graphs can be replayed.
// Calls alternate between the halves of the buffers. Before a rank stores to a half again, it has ended the call between, for
// which it acquired a flag of each peer; the peer stored that flag after its own call before, which read the half.
#pragma once

#include "base/prelude.cuh"
#include "base/row_lanes.cuh"
#include "base/row_pieces.cuh"
#include "exchange_merge/params.cuh"
#include "pipeline/dependent_launch.cuh"
#include "ptx/atomic.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "ptx/system.cuh"

namespace jit {

template <class Config>
class Exchange {
  using Element = typename Config::Element;
  using Output = typename Config::OutputElement;
  static constexpr int ranks = Config::ranks;
  static constexpr RowLanes share =
      row_lanes(Config::head_dim_v, Config::head_dim_v, maximum<int>(sizeof(Element), sizeof(Output)));
  static constexpr int piece_bytes = share.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;
  static constexpr int row_alignment = maximum(Config::alignment, static_cast<int>(sizeof(Element)));
  static constexpr int tile_rows = Config::threads / share.lanes;
  using Buffer = ExchangeBuffer<Config::head_dim_v* static_cast<int>(sizeof(Element)), tile_rows, ranks>;
  static constexpr unsigned broken_rows = 0xffffffffu;

 public:
  JIT_DEVICE explicit Exchange(const ExchangeMergeParams& params)
      : params_(params), lane_(threadIdx.x % share.lanes), header_(*header_of(params.buffers[params.rank])) {
    epoch_ = header_.epoch + 1 == 0 ? 2 : header_.epoch + 1;  // 0 is no epoch: flags begin so
    // A call that fails now goes on sending, so that all threads of a block do the same.
    const unsigned broken = load_relaxed(&header_.broken);
    is_broken_ = broken != 0 && broken != epoch_;
    half_ = epoch_ % 2;
  }

  JIT_DEVICE void run() {
    send();
    receive();
    end();
  }

 private:
  /// The rows of `rank`: `tokens` from `first_token` on of `heads` heads from `first_head` on.
  struct Rows {
    unsigned first_token, tokens, first_head, heads;

    JIT_DEVICE unsigned count() const { return tokens * heads; }
    /// One for no rows: each rank tells every other one of each call.
    JIT_DEVICE unsigned tiles() const { return maximum(1u, (count() + tile_rows - 1) / tile_rows); }
  };
  struct Row {
    unsigned token, head;  ///< of all
  };
  struct Pieces {
    unsigned words[share.iterations][piece_words];
  };
  /// The lane's part of a row of this rank.
  struct Own {
    Pieces pieces;
    float lse;  ///< −inf for rows without keys, of which some kernels write +inf
  };

  static JIT_DEVICE ExchangeHeader* header_of(char* buffer) {
    return reinterpret_cast<ExchangeHeader*>(buffer);
  }

  JIT_DEVICE Rows rows_of(unsigned rank) const {
    const auto first = [&](unsigned all, unsigned of) {
      return static_cast<unsigned>(static_cast<unsigned long long>(all) * of / ranks);
    };
    Rows rows{0, params_.tokens, 0, params_.heads};
    if constexpr (Config::share_heads) {
      rows.first_head = first(params_.heads, rank);
      rows.heads = first(params_.heads, rank + 1) - rows.first_head;
    } else if constexpr (Config::share_tokens) {
      rows.first_token = first(params_.tokens, rank);
      rows.tokens = first(params_.tokens, rank + 1) - rows.first_token;
    }
    return rows;
  }

  JIT_DEVICE Row row_at(const Rows& rows, unsigned index) const {
    return {rows.first_token + index / rows.heads, rows.first_head + index % rows.heads};
  }

  // Places in the buffer of a rank: the flag of a tile, and the row and lse of what `source` has sent.
  JIT_DEVICE unsigned long long* flag(char* buffer, unsigned tile, unsigned source) const {
    return reinterpret_cast<unsigned long long*>(buffer + exchange_header_bytes) +
           (half_ * params_.tiles + tile) * ranks + source;  // mutate: ExchangeHalfOfFlags
  }
  JIT_DEVICE unsigned long long slot(unsigned source, unsigned index) const {
    // mutate: ExchangeHalf
    return static_cast<unsigned long long>(half_ * ranks + source) * params_.tiles * tile_rows + index;
  }
  JIT_DEVICE char* row_slot(char* buffer, unsigned source, unsigned index) const {
    return buffer + exchange_header_bytes + Buffer::flag_bytes * params_.tiles +
           slot(source, index) * Buffer::pitch;
  }
  JIT_DEVICE float* lse_slot(char* buffer, unsigned source, unsigned index) const {
    return reinterpret_cast<float*>(row_slot(buffer, 0, 0) - slot(0, 0) * Buffer::pitch +
                                    2ull * ranks * params_.tiles * tile_rows * Buffer::pitch) +
           slot(source, index);
  }
  /// A flag of this call: how many rows it has, and its epoch.
  JIT_DEVICE unsigned long long flag_of(unsigned rows) const {
    return static_cast<unsigned long long>(rows) << 32 | epoch_;
  }

  JIT_DEVICE int column(int iteration) const { return (iteration * share.lanes + lane_) * share.piece; }
  JIT_DEVICE bool has_piece(int iteration) const { return iteration * share.lanes + lane_ < share.pieces; }

  template <int alignment>
  JIT_DEVICE void load(const Element* row, Pieces& pieces) const {
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
      if (has_piece(iteration))
        load_words<piece_bytes, alignment>(row + column(iteration), pieces.words[iteration]);
    }
  }

  JIT_DEVICE Own load_own(const Row& row) const {
    Own own;
    load<row_alignment>(static_cast<const Element*>(params_.o) + row.token * params_.o_strides.seq +
                            row.head * params_.o_strides.head,
                        own.pieces);
    const float lse = params_.lse[row.token * params_.lse_strides.seq + row.head * params_.lse_strides.head];
    own.lse = lse == -negative_infinity() ? negative_infinity() : lse;
    return own;
  }

  JIT_DEVICE void send() const {
    if constexpr (!Config::share_heads && !Config::share_tokens) {
      const Rows rows = rows_of(params_.rank);
      for (unsigned tile = blockIdx.x; tile < rows.tiles(); tile += gridDim.x)
        send_tile(rows, tile, 1, ranks);
    } else {
      // The next rank's tiles first, and each in turn: no device is stored to by all at once.
      unsigned begin = 0;
      for (unsigned distance = 1; distance < ranks; ++distance) {
        const Rows rows = rows_of((params_.rank + distance) % ranks);
        const unsigned end = begin + rows.tiles();
        for (unsigned item = blockIdx.x; item < end; item += gridDim.x) {
          if (item >= begin) send_tile(rows, item - begin, distance, distance + 1);
        }
        begin = end;
      }
    }
  }

  /// To the ranks that stand between two distances behind this one.
  JIT_DEVICE void send_tile(const Rows& rows, unsigned tile, unsigned first_distance,
                            unsigned end_distance) const {
    const unsigned index = tile * tile_rows + threadIdx.x / share.lanes;
    if (index < rows.count()) {
      const Own own = load_own(row_at(rows, index));  // on the way at the same time as the epoch
      for (unsigned distance = first_distance; distance < end_distance && !is_broken_; ++distance) {
        char* const buffer = params_.buffers[(params_.rank + distance) % ranks];
        Element* const to = reinterpret_cast<Element*>(row_slot(buffer, params_.rank, index));
#pragma unroll
        for (int iteration = 0; iteration < share.iterations; ++iteration) {
          if (has_piece(iteration))
            store_words<piece_bytes, 16>(to + column(iteration), own.pieces.words[iteration]);
        }
        if (lane_ == 0) *lse_slot(buffer, params_.rank, index) = own.lse;
      }
    }
    __syncthreads();  // mutate: ExchangeFlagBeforeData
    const unsigned distance = first_distance + threadIdx.x;
    if (distance < end_distance) {
      store_release_sys(flag(params_.buffers[(params_.rank + distance) % ranks], tile, params_.rank),
                        flag_of(is_broken_ ? broken_rows : params_.tokens * params_.heads));
    }
  }

  JIT_DEVICE void receive() const {
    const Rows rows = rows_of(params_.rank);
    for (unsigned tile = blockIdx.x; tile < rows.tiles(); tile += gridDim.x) {
      const unsigned index = tile * tile_rows + threadIdx.x / share.lanes;
      Own own = {};
      if (index < rows.count()) own = load_own(row_at(rows, index));
      bool is_here = !is_broken_;
      if (is_here && threadIdx.x < ranks && threadIdx.x != params_.rank) is_here = wait(tile, threadIdx.x);
      is_here = __syncthreads_and(is_here);  // mutate: ExchangeReadsBeforeTheFlag
      if (index >= rows.count()) continue;
      if (is_here) {
        merge(rows, index, own);
      } else {
        poison(rows, index);
      }
    }
  }

  /// Whether the rows of a tile have come from `peer` before the deadline.
  JIT_DEVICE bool wait(unsigned tile, unsigned peer) const {
    const unsigned long long* const word = flag(params_.buffers[params_.rank], tile, peer);
    const unsigned long long wanted = flag_of(params_.tokens * params_.heads);
    unsigned long long begin = 0;
    while (true) {
      const unsigned long long seen = load_acquire_sys(word);
      if (seen == wanted) return true;  // mutate: ExchangeAnyEpoch
      if (static_cast<unsigned>(seen) == epoch_ || seen >> 32 == broken_rows) return fail(peer, seen);
      if (load_relaxed(&header_.broken) != 0)
        return false;  // a wait for other rows of this call has timed out
      const unsigned long long now = global_timer();
      if (begin == 0) begin = now;
      if (now - begin > params_.timeout) return fail(peer, seen);
    }
  }

  JIT_DEVICE bool fail(unsigned peer, unsigned long long seen) const {
    if (atomic_cas_relaxed(reinterpret_cast<int*>(&header_.broken), 0, static_cast<int>(epoch_)) == 0) {
      header_.fault = {1,
                       peer,
                       epoch_,
                       params_.tokens * params_.heads,
                       static_cast<unsigned>(seen),
                       static_cast<unsigned>(seen >> 32)};
    }
    return false;
  }

  JIT_DEVICE void merge(const Rows& rows, unsigned index, const Own& own) const {
    char* const buffer = params_.buffers[params_.rank];
    Pieces pieces[ranks];
    float lse[ranks];
    float largest = negative_infinity();
#pragma unroll
    for (unsigned source = 0; source < ranks; ++source) {
      if (source == params_.rank) {  // mutate: ExchangeOwnRowTwice
        lse[source] = own.lse;
        pieces[source] = own.pieces;
      } else {
        lse[source] = *lse_slot(buffer, source, index);
        load<16>(reinterpret_cast<const Element*>(row_slot(buffer, source, index)), pieces[source]);
      }
      largest = max_nan(largest, lse[source]);
    }
    float sum = 0, o[share.iterations][share.piece] = {};
#pragma unroll
    for (unsigned source = 0; source < ranks; ++source) {
      const float weight = largest == negative_infinity() ? 0.0f : ex2((lse[source] - largest) * log2_e);
      sum += weight;
      // A state without weight does not count, whatever it holds: 0 times that may not be 0.
      if (weight == 0) continue;
#pragma unroll
      for (int iteration = 0; iteration < share.iterations; ++iteration) {
        float values[share.piece];
        upcast_words<Element>(pieces[source].words[iteration], values);
#pragma unroll
        for (int d = 0; d < share.piece; ++d) o[iteration][d] = fmaf(weight, values[d], o[iteration][d]);
      }
    }
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
#pragma unroll
      for (int d = 0; d < share.piece; ++d) o[iteration][d] *= inverse;
    }
    write(rows, index, o, sum == 0 ? negative_infinity() : largest + ln_2 * lg2(sum));
  }

  JIT_DEVICE void poison(const Rows& rows, unsigned index) const {
    const float nan = __int_as_float(0x7fffffff);
    float o[share.iterations][share.piece];
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
#pragma unroll
      for (int d = 0; d < share.piece; ++d) o[iteration][d] = nan;
    }
    write(rows, index, o, nan);
  }

  /// Row `index` of what this rank receives.
  JIT_DEVICE void write(const Rows& rows, unsigned index, const float (&o)[share.iterations][share.piece],
                        float lse) const {
    const unsigned token = index / rows.heads, head = index % rows.heads;
    Output* const to =
        static_cast<Output*>(params_.out) + token * params_.out_strides.seq + head * params_.out_strides.head;
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
      if (has_piece(iteration)) store_piece<Config::alignment>(to + column(iteration), o[iteration]);
    }
    if (lane_ == 0 && params_.out_lse != nullptr)
      params_.out_lse[token * params_.out_lse_strides.seq + head * params_.out_lse_strides.head] = lse;
  }

  /// The last block puts the epoch up, when all have read it.
  JIT_DEVICE void end() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    // mutate: ExchangeEpochStays
    if (atomic_inc_acq_rel(&header_.blocks, gridDim.x - 1) == gridDim.x - 1) header_.epoch = epoch_;
  }

  const ExchangeMergeParams& params_;
  const int lane_;
  ExchangeHeader& header_;
  bool is_broken_;
  unsigned epoch_, half_;
};

template <class Config>
JIT_DEVICE void exchange_merge(const ExchangeMergeParams& params) {
  wait_on_dependent_grids();  // mutate: ExchangeBeforeGridsInFront
  launch_dependent_grids();  // its blocks take their places while these wait for the peers, and wait themselves
  Exchange<Config>(params).run();
}

}  // namespace jit
