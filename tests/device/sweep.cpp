#include "tests/device/sweep.h"

#include <cstdlib>

#include <fmt/format.h>

#include "tests/support/seed.h"

namespace jit::testing {
namespace {

int number_from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::atoi(text);
}

reference::Random random_of(std::uint64_t seed, int index, std::uint32_t use) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(index), use};
  return reference::Random(sequence);
}

}  // namespace

Sweep Sweep::wanted(int count) {
  const std::uint64_t seed = reference::test_seed();
  const int only = number_from_environment("JIT_ATTENTION_TEST_TRIPLE", -1);
  if (only >= 0) return {.seed = seed, .first = only, .last = only + 1};
  return {.seed = seed, .first = 0, .last = number_from_environment("JIT_ATTENTION_TEST_SWEEP", count)};
}

reference::Random Sweep::of_kernel(int triple) const {
  return random_of(seed, triple / shapes_per_kernel, 0);
}

reference::Random Sweep::of_case(int triple) const { return random_of(seed, triple, 1); }

std::string Sweep::failure(int triple, const std::string& what) const {
  return fmt::format("JIT_ATTENTION_TEST_SEED={} JIT_ATTENTION_TEST_TRIPLE={} runs it again:\n  {}", seed,
                     triple, what);
}

int random_length(reference::Random& random, int least, int most_tiles, int most) {
  switch (reference::draw(random, 0, 3)) {
    case 0:
      return reference::draw(random, least, 20);
    case 1:
      return 32 * reference::draw(random, 1, most_tiles);
    case 2:
      return reference::draw(random, 1, most / 2);
    default:
      return reference::draw(random, 1, most);
  }
}

}  // namespace jit::testing
