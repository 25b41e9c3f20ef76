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

#include "generator/operations/key_exchange/plan.h"
#include "generator/tensors/tensor_checks.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

constexpr double longest_timeout = 1e9;  // seconds
// While a copy of one stream ends and its word is written, that of the other one goes on.
constexpr std::size_t streams = 2;

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
  KeyExchangeLayout layout;
  std::vector<CUdeviceptr> buffers;
  std::vector<KeyCopy> received;
  std::vector<SentCopy> sent;
  /// For each rank bytes from its buffer to its words of even epochs, and how many words it has.
  std::vector<std::pair<std::int64_t, std::int64_t>> words;
  std::vector<IndexRange> runs;
  std::uint32_t epoch = 0;
  TensorView k = {}, v = {};  ///< that are still to be sent
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

  CUdeviceptr own() const { return buffers[static_cast<std::size_t>(rank)]; }
  void check_rows(const TensorView& tensor, const char* name, int head_dim) const;
  void copy(const TensorView& tensor, std::int64_t row_bytes, CUdeviceptr to, const IndexRange& keys,
            CUstream stream) const;
  void write_word(CUdeviceptr word, CUstream stream) const {
    check(driver().cuStreamWriteValue32(stream, word, epoch, CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue32");
  }
  std::int64_t row_of(std::int64_t position) const;
  // Puts further copies of all streams behind those of the first one.
  void order_copies() const {
    check(driver().cuEventRecord(copied[0], copying[0]), "cuEventRecord");
    check(driver().cuStreamWaitEvent(copying[1], copied[0], 0), "cuStreamWaitEvent");
  }
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
}

// The row of the rank's shard that stands at a position of it.
std::int64_t KeyExchange::State::row_of(std::int64_t position) const {
  std::int64_t row = 0;
  for (const IndexRange& run : runs) {
    if (position < run.end) return row + position - run.begin;
    row += run.end - run.begin;
  }
  return row;
}

// Rows of one of the rank's runs to where the whole begins.
void KeyExchange::State::copy(const TensorView& tensor, std::int64_t row_bytes, CUdeviceptr to,
                              const IndexRange& keys, CUstream stream) const {
  const std::int64_t first = row_of(keys.begin);
  for (std::int64_t b = 0; b < spec.batch; ++b) {
    const CUdeviceptr from =
        address_of(tensor.data) +
        static_cast<CUdeviceptr>(b * tensor.strides[0] * size_of(spec.dtype) + first * row_bytes);
    const CUdeviceptr target =
        to + static_cast<CUdeviceptr>((b * placement.work.seqlen + keys.begin) * row_bytes);
    check(driver().cuMemcpyDtoDAsync(target, from,
                                     static_cast<std::size_t>((keys.end - keys.begin) * row_bytes), stream),
          "cuMemcpyDtoDAsync");
  }
}

KeyExchange::KeyExchange(const KeyExchangeSpec& spec, const Placement& placement, const KeyExchangeRank& rank)
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
  own.runs = placement.runs(rank.rank);
  own.sent = copies_from(spec, placement, rank.rank);
  std::vector<ArrivalPiece> pieces;
  for (int other = 0; other < placement.ranks(); ++other) {
    std::vector<KeyCopy> copies = copies_to(spec, placement, other);
    std::vector<ArrivalPiece> of_other = pieces_of(placement, other, copies);
    const auto words = static_cast<std::int64_t>(copies.size());
    own.words.emplace_back(word_offset(static_cast<std::int64_t>(of_other.size()), words, 0, 0), words);
    if (other != rank.rank) continue;
    own.received = std::move(copies);
    pieces = std::move(of_other);
  }
  const CurrentDevice device;
  for (CUstream& stream : own.copying)
    check(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (CUevent* event : {&own.copied[0], &own.copied[1], &own.begun, &own.ended})
    check(api.cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const ArrivalHeader header{.epoch = 0,
                             .pieces = static_cast<int>(pieces.size()),
                             .words = static_cast<int>(own.received.size()),
                             .broken = 0,
                             .timeout = static_cast<unsigned long long>(rank.timeout * 1e9),
                             .fault_word = 0,
                             .fault_seen = 0};
  // Words may have come already.
  check(api.cuMemcpyHtoD(own.own(), &header, sizeof header), "cuMemcpyHtoD");
  check(api.cuMemcpyHtoD(own.own() + sizeof header, pieces.data(), pieces.size() * sizeof(ArrivalPiece)),
        "cuMemcpyHtoD");
}

KeyExchange::~KeyExchange() = default;
KeyExchange::KeyExchange(KeyExchange&& other) noexcept = default;
KeyExchange& KeyExchange::operator=(KeyExchange&& other) noexcept = default;

std::uint32_t KeyExchange::calls() const { return state_->epoch; }

ArrivingKeys KeyExchange::begin(const TensorView& k, const TensorView& v, Stream stream) {
  State& own = *state_;
  const CurrentDevice device;
  own.check_rows(k, "k", own.spec.head_dim);
  own.check_rows(v, "v", own.spec.head_dim_v);
  if (is_capturing(stream))
    refuse("stream", "is being captured; exchanges of keys count calls on the host, and cannot be replayed");
  const DriverApi& api = driver();
  if (++own.epoch == 0) own.epoch = 2;  // 0 is no epoch: words begin so
  const KeyExchangeLayout& layout = own.layout;
  const auto at = [](CUdeviceptr buffer, std::int64_t offset) {
    return buffer + static_cast<CUdeviceptr>(offset);
  };

  check(api.cuStreamWaitEvent(stream, own.ended, 0), "cuStreamWaitEvent");  // of another stream
  // Behind the kernel of the call before, which had waited until all ranks had begun that call, and so ended the one before
  // it: nobody reads the half to which this call copies.
  check(api.cuEventRecord(own.begun, stream), "cuEventRecord");
  for (const IndexRange& run : own.runs) {
    own.copy(k, layout.key_bytes, at(own.own(), layout.keys(own.epoch)), run, stream);
    own.copy(v, layout.value_bytes, at(own.own(), layout.values(own.epoch)), run, stream);
  }
  own.write_word(own.own() + offsetof(ArrivalHeader, epoch), stream);
  own.k = k;
  own.v = v;
  const auto view = [&](std::int64_t offset, std::int64_t heads, std::int64_t head_dim) {
    return TensorView::dense(reinterpret_cast<void*>(at(own.own(), offset)), own.spec.dtype,
                             {own.spec.batch, own.placement.work.seqlen, heads, head_dim});
  };
  return {.k = view(layout.keys(own.epoch), own.spec.heads_kv, own.spec.head_dim),
          .v = view(layout.values(own.epoch), own.spec.heads_kv, own.spec.head_dim_v),
          .arrivals =
              TensorView::dense(reinterpret_cast<void*>(own.own()), DType::int32, {layout.table_rows, 4})};
}

void KeyExchange::send() {
  State& own = *state_;
  if (!own.k.is_present()) return;
  const CurrentDevice device;
  const KeyExchangeLayout& layout = own.layout;
  // Here, since a kernel may be launched ahead of it. Other streams wait for this one.
  check(driver().cuStreamWaitEvent(own.copying[0], own.begun, 0), "cuStreamWaitEvent");
  for (std::size_t i = 0; i < own.sent.size(); ++i) {
    const SentCopy& copy = own.sent[i];
    const auto target = static_cast<std::size_t>(copy.target);
    const bool is_first = i + 1 < own.words.size();  // the words alone
    CUstream const copying = own.copying[is_first ? 0 : i % streams];
    if (copy.keys != IndexRange{}) {
      own.copy(own.k, layout.key_bytes, at(own.buffers[target], layout.keys(own.epoch)), copy.keys, copying);
      own.copy(own.v, layout.value_bytes, at(own.buffers[target], layout.values(own.epoch)), copy.keys,
               copying);
    }
    const auto [first, words] = own.words[target];
    own.write_word(at(own.buffers[target], first + ((own.epoch % 2) * words + copy.word) * 4), copying);
    // Whoever is overtaken sees that the call has begun before its keys are overwritten.
    if (i + 1 == own.words.size() - 1) own.order_copies();
  }
  own.k = own.v = {};
}

void KeyExchange::end(Stream stream) {
  send();
  const CurrentDevice device;
  const DriverApi& api = driver();
  for (std::size_t i = 0; i < streams; ++i) {
    check(api.cuEventRecord(state_->copied[i], state_->copying[i]), "cuEventRecord");
    check(api.cuStreamWaitEvent(stream, state_->copied[i], 0), "cuStreamWaitEvent");
  }
  check(api.cuEventRecord(state_->ended, stream), "cuEventRecord");
}

void KeyExchange::set_timeout(double seconds, Stream stream) const {
  check_timeout(seconds);
  const CurrentDevice device;
  const auto nanoseconds = static_cast<std::uint64_t>(seconds * 1e9);
  const CUdeviceptr address = state_->own() + offsetof(ArrivalHeader, timeout);
  for (const int word : {0, 1}) {
    check(driver().cuStreamWriteValue32(stream, address + static_cast<CUdeviceptr>(word) * 4,
                                        static_cast<cuuint32_t>(nanoseconds >> 32 * word),
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue32");
  }
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

void KeyExchange::copy_fault(std::uint32_t* call, Stream stream) const {
  const CurrentDevice device;
  check(
      driver().cuMemcpyDtoHAsync(call, state_->own() + offsetof(ArrivalHeader, broken), sizeof *call, stream),
      "cuMemcpyDtoHAsync");
}

void KeyExchange::reset(Stream stream) {
  State& own = *state_;
  const CurrentDevice device;
  const DriverApi& api = driver();
  for (CUstream copying : own.copying) check(api.cuStreamSynchronize(copying), "cuStreamSynchronize");
  const auto [first, words] = own.words[static_cast<std::size_t>(own.rank)];
  const std::uint32_t none = 0;
  check(api.cuStreamSynchronize(stream), "cuStreamSynchronize");
  check(api.cuMemcpyHtoD(own.own() + offsetof(ArrivalHeader, broken), &none, sizeof none), "cuMemcpyHtoD");
  if (words > 0)
    check(api.cuMemsetD32Async(own.own() + static_cast<CUdeviceptr>(first), 0,
                               static_cast<std::size_t>(2 * words), stream),
          "cuMemsetD32Async");
  check(api.cuStreamSynchronize(stream), "cuStreamSynchronize");
  own.epoch = 0;
}

}  // namespace jit
