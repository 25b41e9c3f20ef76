// Shared by random sweeps: the triples that a run computes, and the generators that a triple is drawn from.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/host_functors.h"

namespace jit::testing {

/// Triples of spec, config and shape, of which each depends on the seed and its own number alone. JIT_ATTENTION_TEST_SWEEP
/// says how many, JIT_ATTENTION_TEST_SEED where to start, JIT_ATTENTION_TEST_TRIPLE runs one triple of a sweep again.
struct Sweep {
  /// Triples that share one kernel: compiling takes longer than running.
  static constexpr int shapes_per_kernel = 5;

  std::uint64_t seed;
  int first;
  int last;  ///< behind the last one

  /// `count` triples, unless the environment says otherwise.
  static Sweep wanted(int count);

  /// The generator that the spec and the config of a triple are drawn from.
  reference::Random of_kernel(int triple) const;
  /// The generator that the rest of a triple is drawn from.
  reference::Random of_case(int triple) const;

  int count() const { return last - first; }
  /// The line that runs a triple again, with what failed.
  std::string failure(int triple, const std::string& what) const;
};

/// A length from `least` on: a few rows, whole tiles up to `most_tiles` of 32, or anything up to `most`.
int random_length(reference::Random& random, int least, int most_tiles, int most);

}  // namespace jit::testing
