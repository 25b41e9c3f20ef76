#include <jit/key_exchange.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <cuda.h>
#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>

#include "generator/launch/ceil_div.h"
#include "generator/operations/key_exchange/plan.h"
#include "generator/operations/key_exchange/program.h"
#include "generator/tensors/tensor_checks.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

constexpr double longest_timeout = 1e9;  // seconds
// Two streams overlap the end of a copy and its flag with the next copy. Few copies use one stream, since
// events take host time.
constexpr std::size_t streams = 2, few_copies = 4;

CUdeviceptr at(CUdeviceptr buffer, std::int64_t offset) { return buffer + static_cast<CUdeviceptr>(offset); }
CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

void check_timeout(double seconds) {
  if (!(seconds > 0 && seconds <= longest_timeout))
    refuse("timeout", fmt::format("is {} seconds; it must be above 0, and at most 1e9", seconds));
}

void check_rank(const Placement& placement, const KeyExchangeRank& rank) {
  if (rank.rank < 0 || rank.rank >= placement.ranks())
    refuse("rank", fmt::format("is {}; ranks go from 0 to {}", rank.rank, placement.ranks() - 1));
  if (rank.buffers.size() != static_cast<std::size_t>(placement.ranks()))
    refuse("buffers",
           fmt::format("are {}; give one for each of the {} ranks", rank.buffers.size(), placement.ranks()));
  for (std::size_t i = 0; i < rank.buffers.size(); ++i) {
    const std::string name = fmt::format("buffers[{}]", i);
    if (rank.buffers[i] == nullptr) refuse(name, "is null");
    if (address_of(rank.buffers[i]) % 256 != 0) refuse(name, "must begin at a multiple of 256 bytes");
    for (std::size_t other = 0; other < i; ++other) {
      if (rank.buffers[i] == rank.buffers[other]) refuse(name, fmt::format("is that of rank {}, too", other));
    }
  }
  check_timeout(rank.timeout);
}

}  // namespace

struct KeyExchange::State {
  KeyExchangeSpec spec;
  Placement placement;
  int rank = 0;
  int device = 0;
  KeyExchangeLayout layout;
  std::vector<CUdeviceptr> buffers;
  std::vector<KeyCopy> received;
  int pieces = 0, own_granules = 0, granules = 0;
  std::vector<SentCopy> sent;  ///< copies with keys
  struct Words {
    CUdeviceptr first = 0;
    int count = 0;  ///< per call
  };
  std::vector<Words> words;  ///< by rank
  std::shared_ptr<const OperationState> kernel;
  KeyExchangeParams params = {};  ///< without a call's own values
  std::uint32_t calls = 0;
  bool is_counted_here = true;  ///< whether no graph advances the count of calls
  bool is_sending = false;      ///< between begin() and send()
  std::size_t copying_streams = 0;
  std::array<CUstream, streams> copying = {};
  std::array<CUevent, streams> copied = {};
  CUevent begun = nullptr, ended = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    const DriverApi& api = driver();
    for (CUstream stream : copying) {
      if (stream != nullptr) api.cuStreamDestroy(stream);
    }
    for (CUevent event : {copied[0], copied[1], begun, ended}) {
      if (event != nullptr) api.cuEventDestroy(event);
    }
  }

  /// The header before the first call.
  ArrivalHeader first_header() const {
    ArrivalHeader header{};
    header.pieces = pieces;
    header.words = static_cast<int>(received.size());
    header.peers = placement.ranks() - 1;
    header.granules_at = static_cast<int>(granules_row(pieces, header.words));
    header.own_granules = own_granules;
    header.granules = granules;
    return header;
  }
  CUdeviceptr own() const { return buffers[static_cast<std::size_t>(rank)]; }
  unsigned half() const { return calls % 2; }
  void check_rows(const TensorView& tensor, const char* name, int head_dim) const;
  void copy(const SentCopy& copy, CUstream stream) const;
};

void KeyExchange::State::check_rows(const TensorView& tensor, const char* name, int head_dim) const {
  const std::int64_t rows = placement.rows(rank);
  if (tensor.rank != 4 || tensor.dtype != spec.dtype || tensor.shape[0] != spec.batch ||
      tensor.shape[1] != rows || tensor.shape[2] != spec.heads_kv || tensor.shape[3] != head_dim) {
    refuse(name, fmt::format("is {}; it must be {} ({}, {}, {}, {})", tensor.to_string(),
                             to_string(spec.dtype), spec.batch, rows, spec.heads_kv, head_dim));
  }
  const std::int64_t row = spec.heads_kv * head_dim;
  const bool is_dense = (tensor.strides[3] == 1 || head_dim == 1) &&
                        (tensor.strides[2] == head_dim || spec.heads_kv == 1) &&
                        (tensor.strides[1] == row || rows == 1);
  if (!is_dense)
    refuse(name, fmt::format("is {}; rows of a batch entry must lie behind one another", tensor.to_string()));
  if (address_of(tensor.data) % 16 != 0 || tensor.strides[0] * size_of(spec.dtype) % 16 != 0)
    refuse(name, fmt::format("is {}; batch entries must begin at multiples of 16 bytes", tensor.to_string()));
}

// Copies keys and values from the rank's half to that of another rank, then sets its word to the call's
// number, which graphs read from the device.
void KeyExchange::State::copy(const SentCopy& copy, CUstream stream) const {
  const DriverApi& api = driver();
  const auto target = static_cast<std::size_t>(copy.target);
  const std::int64_t bytes = (copy.keys.end - copy.keys.begin) * layout.row_bytes();
  for (std::int64_t b = 0; b < spec.batch; ++b) {
    const std::int64_t offset = layout.row(half(), b * placement.work.seqlen + copy.keys.begin);
    check(api.cuMemcpyDtoDAsync(at(buffers[target], offset), at(own(), offset),
                                static_cast<std::size_t>(bytes), stream),
          "cuMemcpyDtoDAsync");
  }
  const auto [first, count] = words[target];
  const CUdeviceptr word =
      at(first, 4 * arrival_word(copy.word, count, placement.ranks() - 1, calls, half()));
  if (is_counted_here) {
    check(api.cuStreamWriteValue32(stream, word, calls, CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue32");
  } else {
    check(api.cuMemcpyDtoDAsync(word, at(own(), offsetof(ArrivalHeader, epoch)), 4, stream),
          "cuMemcpyDtoDAsync");
  }
}

KeyExchange::KeyExchange(const KeyExchangeSpec& spec, const Placement& placement, const KeyExchangeRank& rank,
                         const Context& context)
    : state_(std::make_unique<State>()) {
  State& own = *state_;
  own.layout = layout_of(spec, placement);
  check_rank(placement, rank);
  const DriverApi& api = driver();
  if (api.cuStreamWriteValue32 == nullptr)
    throw Error(ErrorCode::driver_unavailable, "driver", "cuStreamWriteValue32",
                "the CUDA driver lacks cuStreamWriteValue32, which exchanging keys needs");
  own.spec = spec;
  own.placement = placement;
  own.rank = rank.rank;
  for (void* buffer : rank.buffers) own.buffers.push_back(address_of(buffer));
  std::vector<ArrivalPiece> pieces;
  for (int other = 0; other < placement.ranks(); ++other) {
    std::vector<KeyCopy> copies = copies_to(spec, placement, other);
    std::vector<ArrivalPiece> of_other = pieces_of(placement, other, copies);
    own.words.push_back({at(own.buffers[static_cast<std::size_t>(other)],
                            words_offset(static_cast<std::int64_t>(of_other.size()))),
                         static_cast<int>(copies.size())});
    if (other != rank.rank) continue;
    own.received = std::move(copies);
    pieces = std::move(of_other);
    own.pieces = static_cast<int>(pieces.size());
    for (const ArrivalPiece& piece : pieces) {
      const int count = ceil_div(piece.end - piece.begin, arrival_granule);
      own.granules += count;
      if (piece.words == 0) own.own_granules += count;
    }
  }
  std::size_t begun = 0;
  for (const SentCopy& copy : copies_from(spec, placement, rank.rank)) {
    const CUdeviceptr first = own.words[static_cast<std::size_t>(copy.target)].first;
    if (copy.keys == IndexRange{}) {
      own.params.begun[begun++] = reinterpret_cast<unsigned*>(at(first, copy.word * 4));
    } else {
      own.sent.push_back(copy);
    }
  }
  own.copying_streams = own.sent.empty() ? 0 : own.sent.size() <= few_copies ? 1 : streams;
  KeyExchangeParams& params = own.params;
  params.table = rank.buffers[static_cast<std::size_t>(rank.rank)];
  params.whole_batch = placement.work.seqlen * own.layout.row_bytes();
  params.fault = rank.fault;
  params.key_bytes = static_cast<int>(own.layout.key_bytes);
  params.value_bytes = static_cast<int>(own.layout.value_bytes);
  params.rows = static_cast<int>(placement.rows(rank.rank));
  params.own_pieces = static_cast<int>(placement.runs(rank.rank).size());
  params.peers = placement.ranks() - 1;
  set_timeout(rank.timeout);
  const CurrentDevice device;
  own.device = device.ordinal();
  own.kernel = key_exchange_kernel(context);
  for (CUstream& stream : own.copying)
    check(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (CUevent* event : {&own.copied[0], &own.copied[1], &own.begun, &own.ended})
    check(api.cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const ArrivalHeader header = own.first_header();
  // Keeps words that peers have set already.
  check(api.cuMemcpyHtoD(own.own(), &header, sizeof header), "cuMemcpyHtoD");
  check(api.cuMemcpyHtoD(own.own() + sizeof header, pieces.data(), pieces.size() * sizeof(ArrivalPiece)),
        "cuMemcpyHtoD");
  const std::vector<ArrivalGranule> granules = granules_of(placement, pieces);
  check(api.cuMemcpyHtoD(at(own.own(), 16 * std::int64_t{header.granules_at}), granules.data(),
                         granules.size() * sizeof(ArrivalGranule)),
        "cuMemcpyHtoD");
}

KeyExchange::~KeyExchange() = default;
KeyExchange::KeyExchange(KeyExchange&& other) noexcept = default;
KeyExchange& KeyExchange::operator=(KeyExchange&& other) noexcept = default;

std::uint32_t KeyExchange::calls() const { return state_->calls; }

ArrivingKeys KeyExchange::begin(const TensorView& k, const TensorView& v, Stream stream) {
  State& own = *state_;
  const CurrentDevice device;
  own.check_rows(k, "k", own.spec.head_dim);
  own.check_rows(v, "v", own.spec.head_dim_v);
  const DriverApi& api = driver();
  const bool is_captured = is_capturing(stream);
  if (is_captured) {
    own.is_counted_here = false;
  } else {
    check(api.cuStreamWaitEvent(stream, own.ended, 0), "cuStreamWaitEvent");  // ended on another stream
  }
  if (++own.calls == 0) own.calls = 2;  // 0 is skipped, as in the kernel
  const KeyExchangeLayout& layout = own.layout;
  const auto bytes = [&](std::int64_t elements) { return elements * size_of(own.spec.dtype); };
  own.params.k = static_cast<const char*>(k.data);
  own.params.v = static_cast<const char*>(v.data);
  own.params.k_batch = bytes(k.strides[0]);
  own.params.v_batch = bytes(v.strides[0]);
  own.params.whole = reinterpret_cast<char*>(at(own.own(), layout.row(own.half(), 0)));
  own.params.half = own.half();
  begin_key_exchange(*own.kernel, own.params, own.spec.batch, own.device, stream);
  own.is_sending = own.copying_streams > 0;
  // Copies wait until the own rows are written, and all ranks have ended the previous call.
  if (own.is_sending) check(api.cuEventRecord(own.begun, stream), "cuEventRecord");
  const auto view = [&](std::int64_t offset, int head_dim) {
    TensorView rows =
        TensorView::dense(own.params.whole + offset, own.spec.dtype,
                          {own.spec.batch, own.placement.work.seqlen, own.spec.heads_kv, head_dim});
    rows.strides[1] = layout.row_bytes() / size_of(own.spec.dtype);
    rows.strides[0] = own.placement.work.seqlen * rows.strides[1];
    return rows;
  };
  return {.k = view(0, own.spec.head_dim),
          .v = view(layout.key_bytes, own.spec.head_dim_v),
          .arrivals = TensorView::dense(own.params.table, DType::int32, {layout.table_rows, 4})};
}

void KeyExchange::send() {
  State& own = *state_;
  if (!std::exchange(own.is_sending, false)) return;
  const CurrentDevice device;
  for (std::size_t i = 0; i < own.copying_streams; ++i)
    check(driver().cuStreamWaitEvent(own.copying[i], own.begun, 0), "cuStreamWaitEvent");
  for (std::size_t i = 0; i < own.sent.size(); ++i)
    own.copy(own.sent[i], own.copying[i % own.copying_streams]);
}

void KeyExchange::end(Stream stream) {
  send();
  const CurrentDevice device;
  const DriverApi& api = driver();
  for (std::size_t i = 0; i < state_->copying_streams; ++i) {
    check(api.cuEventRecord(state_->copied[i], state_->copying[i]), "cuEventRecord");
    check(api.cuStreamWaitEvent(stream, state_->copied[i], 0), "cuStreamWaitEvent");
  }
  if (!is_capturing(stream)) check(api.cuEventRecord(state_->ended, stream), "cuEventRecord");
}

void KeyExchange::set_timeout(double seconds) {
  check_timeout(seconds);
  state_->params.timeout = static_cast<unsigned long long>(seconds * 1e9);
}

std::string KeyExchangeFault::to_string() const {
  const std::string what = keys == IndexRange{} ? fmt::format("begun call {}", call)
                                                : fmt::format("delivered keys {} to {} of call {}",
                                                              keys.begin, keys.end - 1, call);
  return fmt::format("rank {} has not {} in time; {}", peer, what,
                     call_seen == 0 ? std::string("nothing of it was seen in this half of the buffer")
                                    : fmt::format("the last call of it that was seen was {}", call_seen));
}

std::optional<KeyExchangeFault> KeyExchange::fault(Stream stream) const {
  const State& own = *state_;
  ArrivalHeader header{};
  const CurrentDevice device;
  check(driver().cuMemcpyDtoHAsync(&header, own.own(), sizeof header, stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (header.broken == 0) return std::nullopt;
  const KeyCopy& copy = own.received.at(static_cast<std::size_t>(header.fault_word));
  return KeyExchangeFault{
      .peer = copy.source, .call = header.broken, .call_seen = header.fault_seen, .keys = copy.keys};
}

void KeyExchange::reset(Stream stream) {
  State& own = *state_;
  const CurrentDevice device;
  const DriverApi& api = driver();
  for (CUstream copying : own.copying) check(api.cuStreamSynchronize(copying), "cuStreamSynchronize");
  check(api.cuStreamSynchronize(stream), "cuStreamSynchronize");
  const auto [first, words] = own.words[static_cast<std::size_t>(own.rank)];
  const ArrivalHeader header = own.first_header();
  check(api.cuMemcpyHtoD(own.own(), &header, sizeof header), "cuMemcpyHtoD");
  if (words > 0)
    check(api.cuMemsetD32Async(first, 0, static_cast<std::size_t>(2 * words), stream), "cuMemsetD32Async");
  check(api.cuStreamSynchronize(stream), "cuStreamSynchronize");
  own.calls = 0;
}

}  // namespace jit
