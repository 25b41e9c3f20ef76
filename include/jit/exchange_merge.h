/// @file
/// Exchange and merge of partial attention results between devices: each rank has attended to its share of the keys, and
/// receives the result over all of them, as decoding over sharded caches (decode context parallelism) needs it.
///
/// @code
/// // One process and one rank here; a rank of several gives the buffers of all, mapped into its address space.
/// const jit::ExchangeMergeSpec spec{.dtype = jit::DType::bf16, .ranks = 1, .share = jit::ExchangeShare::heads};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::DeviceBuffer buffer(0, jit::exchange_merge_bytes(spec, 64, 4));  // for 64 tokens of 4 heads at most
/// buffer.fill(0, stream);  // on every rank, before any rank's first call
/// void* const buffers[] = {buffer.data()};
/// const jit::TensorView out = allocate(jit::DType::bf16, {64, 4, 128});
/// const jit::ExchangeMergeArguments arguments{.o = allocate(jit::DType::bf16, {64, 4, 128}),
///                                             .lse = allocate(jit::DType::fp32, {4, 64}),
///                                             .out = out,
///                                             .buffers = buffers,
///                                             .buffer_bytes = buffer.size(),
///                                             .rank = 0};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::ExchangeMerge exchange_merge = jit::exchange_merge(spec);
/// exchange_merge.prepare();  // loads the kernel on the current device, ahead of a capture
/// exchange_merge(arguments, stream);
/// if (const auto fault = jit::exchange_fault(buffer.data(), stream))  // waits for the stream
///   throw std::runtime_error(fault->to_string());
/// assert(exchange_merge.spec() == spec && !exchange_merge.source().empty());
/// @endcode
///
/// A rank stores o and LSE of its rows, and then a flag, in the buffers of the ranks that receive them. It waits for
/// the flags of its peers, and merges in fp32, in the order of ranks. Equal inputs give bitwise identical results, on
/// all ranks that receive a row. One kernel does all that, without the host and without a collective.
///
/// All ranks make the same sequence of calls, with equal specs, tokens and heads, each on one stream. Calls are counted on
/// the device, so that CUDA graphs replay; all ranks must replay them alike.
///
/// A rank that misses the deadline, or makes another call, causes a fault: rows that wait for it become NaN, and
/// exchange_fault() names it. The CUDA context stays usable. Every later call over these buffers makes its rows NaN,
/// too, and tells its peers, until all ranks have stopped and filled their buffers with 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The rows that a rank receives.
enum class ExchangeShare {
  all,     ///< every rank all of them
  heads,   ///< rank r of n: heads from floor(heads · r / n) to floor(heads · (r + 1) / n)
  tokens,  ///< rank r of n: tokens from floor(tokens · r / n) to floor(tokens · (r + 1) / n)
};

/// The problem that a kernel is specialized for. All ranks have the same.
struct ExchangeMergeSpec {
  DType dtype = DType::fp32;      ///< of the partial o, which travel as they are: bf16, fp16 or fp32
  DType out_dtype = DType::bf16;  ///< of the result: the same choice
  int head_dim_v = 128;           ///< elements of a row of o: 1 to 1024
  int alignment = 16;             ///< bytes that every row of o and out is aligned to: 16, 8, 4 or 2
  int ranks = 2;                  ///< 1 to 16
  ExchangeShare share = ExchangeShare::all;  ///< what each rank receives

  bool operator==(const ExchangeMergeSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const ExchangeMergeSpec& spec);

/// Bytes of a buffer for calls of at most so many tokens and heads: the same on every rank. Throws Error invalid_spec, or
/// invalid_argument for negative sizes and more than 2^31 rows.
std::size_t exchange_merge_bytes(const ExchangeMergeSpec& spec, std::int64_t tokens, std::int64_t heads);

/// The tensors of one call of one rank.
struct ExchangeMergeArguments {
  /// (tokens, heads, head_dim_v), of the rank's share of the keys; any strides whose last is 1.
  TensorView o;
  /// fp32 (heads, tokens): natural logarithm, any strides. −inf, or +inf, means that the share has no keys for the row:
  /// its o is ignored there. Sinks count once: they belong to the LSE of one rank alone.
  TensorView lse;
  /// (tokens, heads, head_dim_v) of the rows that the rank receives, written; 0 where no rank has keys. It shares no byte
  /// with o or lse.
  TensorView out;
  /// Optional: fp32 (heads, tokens) of the same rows, written; −inf where no rank has keys.
  TensorView out_lse = {};
  /// The buffers of all ranks, in the order of ranks, as addresses in this device's address space that are multiples of
  /// 16. All 0 before the first call; owned by the caller, for as long as any rank's calls run.
  std::span<void* const> buffers;
  std::size_t buffer_bytes = 0;  ///< of each buffer, equal on all ranks: exchange_merge_bytes() or more
  int rank = 0;                  ///< of the caller: from 0 to ranks − 1
  double timeout = 30;           ///< longest wait of a row for a peer, in seconds: above 0, at most 1e9
};

/// Checks the arguments of a call for `spec`, as the call itself does. It needs no device and reads no tensor. Throws
/// Error invalid_argument, whose field is the argument's name, such as "buffers[1]".
void check_arguments(const ExchangeMergeSpec& spec, const ExchangeMergeArguments& arguments);

/// Why rows of a call became NaN.
struct ExchangeFault {
  int peer = 0;            ///< the rank that was waited for
  std::uint32_t call = 0;  ///< of this rank, counted from 1
  std::uint32_t call_seen =
      0;  ///< of the peer: its last one that has delivered here, among every other one; 0: none
  std::int64_t rows = 0;       ///< tokens · heads of this rank's call
  std::int64_t rows_seen = 0;  ///< of the peer's call that was seen; −1: the peer itself had a fault before

  /// "rank 1 has not delivered call 17 in time; …": what was seen, as a sentence.
  std::string to_string() const;
};

/// The fault of the first call that failed over the rank's own buffer; nothing where none has. Waits for `stream`. Throws
/// Error driver_error.
std::optional<ExchangeFault> exchange_fault(const void* buffer, Stream stream = nullptr);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class ExchangeMerge {
 public:
  /// Exchanges and merges on `stream`, on the device of the current context. The first call on a device, or `prepare`,
  /// loads the kernel there. Later calls only launch: they do not compile, allocate, lock, synchronize or read device
  /// memory. Without rows nothing is launched or counted. Throws Error invalid_argument, whose field is the
  /// argument's name, before anything is launched; not_prepared under capture if no kernel is loaded; launch_failed.
  void operator()(const ExchangeMergeArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device, also while some stream is being captured. Throws what exchange_merge() throws.
  void prepare() const;

  /// The spec that it was made for.
  const ExchangeMergeSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  ExchangeMerge(const ExchangeMergeSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  ExchangeMergeSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. A second call with the
/// same spec is a look-up without locks, which loads nothing. Thread safe. Throws Error invalid_spec before anything
/// else; unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
ExchangeMerge exchange_merge(const ExchangeMergeSpec& spec, const Context& context = default_context());

}  // namespace jit
