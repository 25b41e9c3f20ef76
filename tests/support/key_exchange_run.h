// Attention of a sequence whose rows are spread over ranks in one process, keys arriving while kernels compute, and what comes of
// it in double precision.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <jit/attention.h>
#include <jit/key_exchange.h>

#include "tests/support/device_tensor.h"
#include "tests/support/host_dropout.h"
#include "tests/support/host_functors.h"
#include "tests/support/test_stream.h"

namespace jit::testing {

struct KeyExchangeCase {
  Mask mask = mask::causal();  ///< documents and trees are random, the same of queries as of keys
  int seqlen = 512, ranks = 2, batch = 1;
  int heads_q = 2, heads_kv = 1, head_dim = 64;
  int granule = 128;
  DType dtype = DType::bf16;
  PlacementOptions placement = {};
  std::int64_t chunk_bytes = 1;  ///< the fewest keys
  double timeout = 30;
  double magnitude = 1;  ///< of queries
  bool sinks = false;
  bool deterministic = false;  ///< gradients
  float dropout_p = 0;
  /// The sequence is twice as long: granules of two hosts take turns in it, and queries of the first see keys of the second.
  bool of_other_host = false;
};

/// Ranks take turns on the devices, which see each other, each with a stream of its own.
class KeyExchangeRun {
 public:
  KeyExchangeRun(const KeyExchangeCase& problem, std::uint64_t seed, const Context& context);
  /// Waits for what is left, whatever is wrong with it.
  ~KeyExchangeRun();
  KeyExchangeRun(const KeyExchangeRun&) = delete;
  KeyExchangeRun& operator=(const KeyExchangeRun&) = delete;

  const AttentionSpec& spec() const { return spec_; }
  const Placement& placement() const { return placement_; }
  int ranks() const { return problem_.ranks; }
  int device_of(int rank) const;
  const TestStream& stream(int rank) const { return *ranks_[index(rank)].stream; }
  KeyExchange& exchange(int rank) { return *ranks_[index(rank)].exchange; }

  /// Fresh random numbers; poisons the results.
  void fill();
  /// The call of one rank, on its stream, or on another one.
  void call(int rank, const Attention& kernel, CUstream on = nullptr);
  /// Calls of all, in an order that differs each time, and waits for them.
  void call_all(const Attention& kernel);
  void synchronize() const;
  void reset();
  /// The word in which a kernel reports its fault.
  std::uint32_t noted_fault(int rank);
  /// Calls that the device has counted.
  std::uint32_t counted(int rank);

  /// Gradients of one rank's last call, which is checked and of which o and LSE are read: its queries', and what these add to
  /// those of all keys that they need.
  void backward(int rank, const Attention& kernel);
  void backward_all(const Attention& kernel);
  /// Compiles and loads what backward() launches.
  void prepare_backward(int rank, const Attention& kernel);
  std::string check_gradients(int rank);
  std::string check_all_gradients();
  /// Whether all numbers of its queries' are NaN, and some of its keys'.
  bool has_poisoned_gradients(int rank);

  /// The mistakes in the results of a rank; empty: none.
  std::string check(int rank);
  std::string check_all();
  /// Rows of a rank's o whose numbers are NaN, all of them.
  std::vector<bool> poisoned(int rank);
  std::vector<std::uint8_t> bytes(int rank);
  /// Bytes of the gradients of its queries, and of its own keys, which it needs.
  std::vector<std::uint8_t> gradient_bytes(int rank);

 private:
  struct Rank {
    std::unique_ptr<TestStream> stream;
    std::unique_ptr<DeviceTensor> q, k, v, o, lse, positions, k_positions, lengths, d_o, dq, dk, dv, sinks,
        rng_state;
    std::vector<std::pair<std::string, std::unique_ptr<DeviceTensor>>> of_mask;
    std::unique_ptr<DeviceBuffer> buffer, fault;
    std::unique_ptr<KeyExchange> exchange;
    std::vector<std::int64_t> at;  // position of each row
  };
  PlacementWork work() const;
  /// The position in the sequence of a query, and of a key, by its place among those of its host.
  int query_at(std::int64_t place) const { return at_of_host(place, 0); }
  int key_at(std::int64_t place) const { return at_of_host(place, 1); }
  int at_of_host(std::int64_t place, int host) const;
  std::unique_ptr<DeviceTensor> positions_of(const std::vector<IndexRange>& runs, int host) const;
  std::vector<int> shuffled_ranks();
  BackwardArguments gradients_of(int rank, const ArrivingKeys& keys, const NamedTensors& tensors);
  NamedTensors tensors_of(int rank, const ArrivingKeys& keys);
  std::uint32_t word_of(int rank, const DeviceBuffer& buffer);
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  KeyExchangeCase problem_;
  AttentionSpec spec_;
  std::mt19937_64 random_;
  std::shared_ptr<const reference::FunctorProblem> whole_;
  std::vector<float> sinks_;
  reference::Dropout dropout_;
  Placement placement_;
  std::vector<Rank> ranks_;
};

}  // namespace jit::testing
