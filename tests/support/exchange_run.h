// An exchange and merge between ranks in one process, and what comes of it in double precision.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <jit/exchange_merge.h>

#include "tests/support/device_tensor.h"
#include "tests/support/test_stream.h"

namespace jit::testing {

struct ExchangeCase {
  ExchangeMergeSpec spec = {.head_dim_v = 64};
  int tokens = 3, heads = 4;
  int room = 0;  ///< tokens that buffers have room for; 0: those of the case
  double timeout = 30;
  TensorLayout o_layout = {}, lse_layout = {};
};

/// Ranks take turns on the devices, which see each other, each with a stream of its own.
class ExchangeRun {
 public:
  ExchangeRun(const ExchangeCase& problem, std::uint64_t seed);
  /// Waits for what is left, whatever is wrong with it.
  ~ExchangeRun();
  ExchangeRun(const ExchangeRun&) = delete;
  ExchangeRun& operator=(const ExchangeRun&) = delete;

  const ExchangeCase& problem() const { return problem_; }
  int ranks() const { return problem_.spec.ranks; }
  int device_of(int rank) const;
  const TestStream& stream(int rank) const { return *ranks_[index(rank)].stream; }

  /// Fresh random states: some without keys, whose o stays NaN; row 0 has none anywhere. Poisons the results.
  void fill();
  ExchangeMergeArguments arguments(int rank) const;
  /// The call of one rank.
  void call(int rank, const ExchangeMerge& kernel) const;
  /// Calls of all, in an order that differs each time, and waits for them.
  void call_all(const ExchangeMerge& kernel);
  void synchronize() const;
  /// Fills all buffers with 0.
  void reset() const;
  std::optional<ExchangeFault> fault(int rank) const;

  /// The mistakes in the results of a rank; empty: none.
  std::string check(int rank);
  std::string check_all();
  /// Whether each number of o and lse of a rank is NaN.
  bool is_poisoned(int rank);
  /// The memory of o and lse of a rank, as of the last check.
  std::vector<std::uint8_t> bytes(int rank) const;

 private:
  struct Rank {
    std::unique_ptr<TestStream> stream;
    std::unique_ptr<DeviceTensor> o, lse, out, out_lse;
    std::unique_ptr<DeviceBuffer> buffer;
  };
  struct Range {
    std::int64_t first, end;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Range part(ExchangeShare share, std::int64_t all, int rank) const;
  double lse_of(int rank, std::int64_t token, std::int64_t head) const;

  ExchangeCase problem_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<void*> buffers_;
};

}  // namespace jit::testing
