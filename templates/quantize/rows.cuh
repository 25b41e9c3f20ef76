// The rows of a piece of work: they are copied to shared memory while the piece before is computed, then read one by one and
// rotated or centered before they are rounded.
#pragma once

#include "base/prelude.cuh"
#include "base/rotary.cuh"
#include "base/row_lanes.cuh"
#include "base/row_norm.cuh"
#include "base/row_pieces.cuh"
#include "ptx/cp_async.cuh"
#include "quantize/hadamard.cuh"
#include "quantize/plan.cuh"
#include "quantize/sequences.cuh"
#include "quantize/work.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// `quantize_steps` rows of one head, `rows_apart`, of which a lane has some pieces. Each thread copies and reads places of
/// its own in `buffer`, which has Plan::buffer_bytes, so that no barrier stands between. Where rows are resident
/// others have copied the buffer, whose rows lie one behind another, and a thread stands for several: `thread` says
/// for which one.
template <class Config, QkvTensor tensor>
class QuantizeRows {
  using Element = typename Config::Element;
  using Plan = QuantizePlan<Config, tensor>;

 public:
  static constexpr RowLanes share = Plan::share;
  static constexpr int rows_apart = Plan::threads / share.lanes;
  using Row = float[share.iterations][share.piece];

  JIT_DEVICE QuantizeRows(const QuantizeParams& params, const QuantizeWork& work, char* buffer,
                          int thread = 0)
      : params_(params),
        buffer_(buffer),
        thread_(thread),
        lane_(this->thread() % share.lanes),
        batch_(work.unit / params.heads_kv),
        kv_head_(work.unit % params.heads_kv),
        head_(kv_head_ * own().heads + work.item % own().heads),
        first_(work.item / own().heads * Plan::chunk + place(0)),
        sequences_(own(), batch_) {}

  JIT_DEVICE const QuantizeTensor& own() const { return Plan::of(params_); }
  JIT_DEVICE int lane() const { return lane_; }
  JIT_DEVICE int batch() const { return batch_; }
  JIT_DEVICE int kv_head() const { return kv_head_; }
  JIT_DEVICE int head() const { return head_; }
  JIT_DEVICE int token(int step) const { return first_ + step * rows_apart; }
  /// The first token of the piece of work, and how far a row is behind it.
  JIT_DEVICE int chunk_begin() const { return first_ - place(0); }
  JIT_DEVICE int place(int step) const { return thread() / share.lanes + step * rows_apart; }
  /// Whether it belongs to a sequence.
  JIT_DEVICE bool has_row(int step) const {
    if constexpr (has_lengths) return (found_ >> step & 1) != 0;
    return sequences_.has(token(step));
  }
  JIT_DEVICE const SequenceRows<Plan::sequences>& sequences() const { return sequences_; }

  /// Starts all copies; rows of no sequence become zeros.
  JIT_DEVICE void start() {
    if constexpr (has_lengths) {
      // No copy for each step: eight searches at once would take more registers than all that follows.
#pragma unroll 1
      for (int step = 0; step < quantize_steps; ++step)
        found_ |= static_cast<unsigned>(sequences_.has(token(step))) << step;
      *found_place() = found_;
    }
#pragma unroll
    for (int step = 0; step < quantize_steps; ++step) {
      const bool is_there = has_row(step);
      for_pieces([&](int iteration, int column) {
        constexpr int access = minimum(minimum(piece_bytes, Config::alignment), chunk_bytes);
        const Element* const from = source(step) + column;
        if constexpr (access >= 4) {
#pragma unroll
          for (int at = 0; at < piece_bytes; at += access)
            cp_async_zfill<access>(smem_address(place_of(step, iteration) + at),
                                   reinterpret_cast<const char*>(from) + at, is_there);
        } else {  // no such copies
          unsigned words[piece_words] = {};
          if (is_there) load_words<piece_bytes, access>(from, words);
          store_words<4 * piece_words, 4 * piece_words>(place_of(step, iteration), words);
        }
      });
    }
  }

  /// Behind the wait for the copies.
  JIT_DEVICE void arrive() {
    if constexpr (has_lengths) found_ = *found_place();
  }

  /// A row as it is to be rounded, but for a mean; zeros where there is none. By whole warps.
  JIT_DEVICE void take(int step, Row& row) const {
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
      unsigned words[piece_words] = {};
      const int piece = iteration * share.lanes + lane_;
      if (share.pieces == share.iterations * share.lanes || piece < share.pieces)
        load_words<place_bytes, place_bytes>(place_of(step, iteration), words);
      upcast_words<Element>(words, row[iteration]);
    }
    if constexpr (Plan::is_normalized || Plan::has_rotary) embed(step, row);
    if constexpr (Plan::is_rotated) rotate_row<share>(row, params_.signs, lane_);
  }

  /// The whole buffer, for anything else, when all threads have taken their rows.
  JIT_DEVICE void* scratch() const {
    __syncthreads();
    return buffer_;
  }

  /// Calls `act` with iteration and first column of each piece that the lane has.
  template <class Act>
  JIT_DEVICE void for_pieces(const Act& act) const {
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
      const int piece = iteration * share.lanes + lane_;
      if (share.pieces == share.iterations * share.lanes || piece < share.pieces)
        act(iteration, piece * share.piece);
    }
  }

  JIT_DEVICE long long offset(const TensorStrides& strides) const {
    return batch_ * strides.batch + head_ * strides.head;
  }

 private:
  JIT_DEVICE const Element* source(int step) const {
    return static_cast<const Element*>(own().from) + offset(own().from_strides) +
           token(step) * own().from_strides.seq;
  }

  /// RMS norm and rotary embedding. The pairs' other halves are other lanes', and read once more. A row whose position is
  /// none of the table's becomes NaN.
  JIT_DEVICE void embed(int step, Row& row) const {
    const float factor = row_norm_factor<Config, share.lanes>(row, params_.norm_eps);
    if (!has_row(step)) return;
    const Rotation<Config> rotation(own().rotary, batch_ * own().seqlen + token(step), token(step), lane_,
                                    share.lanes);
    for_pieces([&](int iteration, int column) {
      normalize_piece<Config>(row[iteration], column, factor, own().norm_weight);
      if constexpr (Plan::has_rotary) {
        if (!rotation.is_possible()) {
#pragma unroll
          for (int i = 0; i < share.piece; ++i) row[iteration][i] = __int_as_float(0x7fffffff);
        }
        if (column >= Config::rotary_dim || !rotation.is_possible()) return;
        float partners[share.piece] = {};
        if constexpr (!Config::rotary_interleaved) {
          load_piece<Config::alignment>(source(step) + rotation.partner(column), partners);
          normalize_piece<Config>(partners, rotation.partner(column), factor, own().norm_weight);
        }
        rotation.rotate(row[iteration], partners, column, iteration);
      }
    });
  }

  static constexpr bool has_lengths = Plan::sequences != SequenceKind::dense;
  static constexpr int piece_bytes = share.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;

  // Bytes of a piece in the buffer.
  static constexpr int place_bytes = Config::keeps_rows ? piece_bytes : 4 * piece_words;

  /// Read anew where it is threadIdx.x, which takes no register.
  JIT_DEVICE int thread() const { return Config::keeps_rows ? thread_ : static_cast<int>(threadIdx.x); }
  JIT_DEVICE char* place_of(int step, int iteration) const {
    if constexpr (Config::keeps_rows)
      return buffer_ + (place(step) * share.pieces + iteration * share.lanes + lane_) * place_bytes;
    return buffer_ + ((step * share.iterations + iteration) * Plan::threads + thread()) * place_bytes;
  }
  JIT_DEVICE unsigned* found_place() const {
    return reinterpret_cast<unsigned*>(buffer_ + Plan::row_bytes) + threadIdx.x;
  }

  const QuantizeParams& params_;
  char* buffer_;
  int thread_, lane_, batch_, kv_head_, head_, first_;
  SequenceRows<Plan::sequences> sequences_;
  // With lengths, a bit for each step: the rows of a sequence. That is one register, and to compare each time takes more.
  unsigned found_ = 0;
};

}  // namespace jit
