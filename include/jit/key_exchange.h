/// @file
/// Exchange of the keys and values of a sequence that is sharded over devices: copy engines bring them to the devices
/// whose queries need them, while the kernel there already computes with its own.
///
/// @code
/// // One rank here; a rank of several gives the buffers of all, mapped into its address space.
/// const jit::Placement placement = jit::place(jit::work_of_mask(jit::mask::causal(), 128), 1);
/// const jit::KeyExchangeSpec exchanged{.heads_kv = 4};
/// const jit::DeviceBuffer buffer(0, jit::key_exchange_bytes(exchanged, placement));
/// buffer.fill(0, stream);  // on every rank, before any rank makes its KeyExchange
/// void* const buffers[] = {buffer.data()};
/// jit::KeyExchange exchange(exchanged, placement, {.rank = 0, .buffers = buffers, .timeout = 30});
///
/// exchange.set_timeout(10);  // from the next call on
/// const jit::TensorView k = allocate(jit::DType::bf16, {1, 128, 4, 128}), v = allocate(jit::DType::bf16, {1, 128, 4, 128});
/// const jit::ArrivingKeys keys = exchange.begin(k, v, stream);
/// exchange.send();
/// // Then attention of the rank's queries, with spec.key_arrivals and spec.q_positions:
/// // {.k = keys.k, .v = keys.v, .tensors = {{"key_arrivals", keys.arrivals}, {"q_positions", …}, …}}
/// exchange.end(stream);
/// if (const auto fault = exchange.fault(stream)) throw std::runtime_error(fault->to_string());
/// assert(exchange.calls() == 1);
/// exchange.reset(stream);
/// @endcode
///
/// A small kernel copies the rank's rows to their positions in its buffer. Copy engines then copy the rows that other
/// ranks need into the buffers of these, in chunks, and write a flag word after each chunk. The attention kernel visits
/// its own rows first, then chunks in a fixed order, each after its flag: equal inputs give bitwise identical results.
/// Keys that miss the deadline count as NaN, so that every row that sees them is NaN, or 0 in int8 o, and fault() names
/// the rank. The CUDA context stays usable.
///
/// All ranks make the same sequence of calls, with equal specs and placements, each on one stream, and launch the kernel of
/// every call. Calls use the halves of the buffers in turn.
///
/// Calls are counted on the device, so that begin() to end() may be captured into a CUDA graph, kernel included. A
/// replay is a call like any other in the sequence that all ranks share; the caller orders replays and other calls one
/// after another. A call that uses the same half as the previous one, as replays of one captured call do, waits until
/// all ranks have begun it. Graphs use the exchange's buffers but do not keep them alive; reset() also resets their
/// replays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/placement.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The keys and values that travel. All ranks have the same.
struct KeyExchangeSpec {
  DType dtype = DType::bf16;           ///< of keys and values: bf16 or fp16
  std::int64_t batch = 1;              ///< batch entries, all of the placement's length
  std::int64_t heads_kv = 1;           ///< heads of keys and values
  int head_dim = 128;                  ///< elements of a key: a multiple of 8
  int head_dim_v = 128;                ///< elements of a value: the same
  std::int64_t chunk_bytes = 4 << 20;  ///< approximate bytes before the first flag; later chunks are larger

  bool operator==(const KeyExchangeSpec&) const = default;  ///< member by member
};

/// Bytes of a rank's buffer, the same on every rank. Throws Error invalid_argument for sizes below 1, a granule that is
/// no multiple of 128, more than 128 ranks, and a rank without rows.
std::size_t key_exchange_bytes(const KeyExchangeSpec& spec, const Placement& placement);

/// One rank's place in an exchange.
struct KeyExchangeRank {
  int rank = 0;  ///< from 0 to the placement's ranks − 1
  /// The buffers of all ranks, in the order of ranks, as addresses in this device's address space that are multiples of
  /// 256. Filled with 0 on all ranks before any rank makes its KeyExchange; owned by the caller, for as long as any
  /// rank's calls run.
  std::span<void* const> buffers;
  double timeout = 30;  ///< longest wait of a kernel for a copy, in seconds: above 0, at most 1e9
  /// Optional: a word, initially 0, that device and host can access, such as pinned memory. The first failing call
  /// writes its number there, so that the host sees a fault without waiting. Owned by the caller as buffers are.
  std::uint32_t* fault = nullptr;
};

/// The tensors of a call of attention with spec.key_arrivals; they lie in the rank's buffer.
struct ArrivingKeys {
  /// (batch, seqlen, heads_kv, head_dim), of the whole sequence; contents of rows that are not needed are undefined.
  /// The rows of k and v are interleaved in memory.
  TensorView k;
  TensorView v;         ///< (batch, seqlen, heads_kv, head_dim_v), likewise
  TensorView arrivals;  ///< int32 (rows, 4), the call's tensor "key_arrivals"
};

/// A copy that a kernel has waited for until its deadline.
struct KeyExchangeFault {
  int peer = 0;            ///< the rank that should have delivered
  std::uint32_t call = 0;  ///< counted from 1, replays included
  std::uint32_t call_seen =
      0;  ///< the last call of the peer that has delivered there, among every other one; 0: none
  IndexRange keys = {};  ///< positions of what is missing; empty: the peer has not begun the call

  /// "rank 1 has not delivered keys 1024 to 2047 of call 17 in time; …": what was seen, as a sentence.
  std::string to_string() const;
};

/// The exchange of one rank, on the device that is current when it is made. Use from one thread at a time. Movable.
class KeyExchange {
 public:
  /// Writes the rank's table into its buffer, and loads the kernel that begins calls. Throws Error invalid_argument as
  /// key_exchange_bytes does, and for a rank, a buffer or a time-out out of range; driver_error; driver_unavailable where the
  /// driver lacks cuStreamWriteValue32; and what exchange_merge() throws.
  KeyExchange(const KeyExchangeSpec& spec, const Placement& placement, const KeyExchangeRank& rank,
              const Context& context = default_context());
  ~KeyExchange();
  /// Takes over the streams of `other`, which may only be destroyed afterwards.
  KeyExchange(KeyExchange&& other) noexcept;
  /// Ends the own exchange, and takes over that of `other`.
  KeyExchange& operator=(KeyExchange&& other) noexcept;

  /// Begins a call: copies the rank's rows (batch, rows, heads_kv, …) of `k` and `v` into its own buffer, on `stream`,
  /// and records them for send(). Batch entries have free strides and are aligned to 16 bytes; otherwise tensors are
  /// dense. Throws Error invalid_argument, before anything is launched, for other shapes, strides and addresses;
  /// launch_failed.
  ArrivingKeys begin(const TensorView& k, const TensorView& v, Stream stream);
  /// Copies the rank's rows into the buffers of others, on streams of its own, after the work that the stream of
  /// begin() had then. Call it before a kernel that may have to be compiled, so that other ranks do not wait for the
  /// compiler; otherwise end() does it, after the launch.
  void send();
  /// Sends, unless send() has, and orders the work that `stream` gets from now on after the copies.
  void end(Stream stream);

  /// Sets how many seconds kernels of later calls wait for a copy; graphs keep what they were captured with. Throws Error
  /// invalid_argument for what is not above 0.
  void set_timeout(double seconds);

  /// The first fault since the buffer was filled with 0; nothing: none. Waits for `stream`.
  std::optional<KeyExchangeFault> fault(Stream stream) const;
  /// Restarts with call 1 and without a fault. All ranks call it, between two barriers, while no rank has a call in
  /// progress.
  void reset(Stream stream);

  /// Number of calls of begin(); replays are not known here.
  std::uint32_t calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jit
