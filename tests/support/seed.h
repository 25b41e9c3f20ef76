// Where random tests start, and what a run leaves out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jit::reference {

/// The seed of this run: JIT_ATTENTION_TEST_SEED when it is set, else a new one at every run. The first call
/// prints it.
std::uint64_t test_seed();

/// That of the next problem of this run: problems of a test have other numbers each.
std::uint64_t next_seed();

/// Of what would take too long in each run every `count`-th, from where the seed falls on: a few runs take all. With
/// JIT_ATTENTION_TEST_ALL=1 each one does.
bool is_in_this_run(std::uint64_t index, std::uint64_t count);

/// The same for whole tests, by other digits of the seed: a test would else go through the same share of its own
/// whenever its turn is.
bool is_turn(std::uint64_t index, std::uint64_t count);

/// Those of `all` that are in this run.
template <class T>
std::vector<T> some_of(const std::vector<T>& all, std::uint64_t count) {
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_in_this_run(i, count)) some.push_back(all[i]);
  }
  return some;
}

}  // namespace jit::reference
