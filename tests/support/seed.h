// Where random tests start, and what a run leaves out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jit::reference {

/// The seed of this run: JIT_ATTENTION_TEST_SEED when it is set, else a new one at every run. The first call
/// prints it.
std::uint64_t test_seed();

/// The seed of the next problem of this run: the problems of a test have different numbers.
std::uint64_t next_seed();

/// Whether case `index` is in this run: every `count`-th is, from one on that the seed chooses, so that a few
/// runs take all. With JIT_ATTENTION_TEST_ALL=1 each one is.
bool is_in_this_run(std::uint64_t index, std::uint64_t count);

/// Whether a whole test is in this run, by other digits of the seed: a test would else go through one share of its own
/// cases whenever its turn is.
bool is_turn(std::uint64_t index, std::uint64_t count);

/// The elements of `all` that are in this run.
template <class T>
std::vector<T> some_of(const std::vector<T>& all, std::uint64_t count) {
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_in_this_run(i, count)) some.push_back(all[i]);
  }
  return some;
}

}  // namespace jit::reference
