#include "tests/support/seed.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

namespace jit::reference {

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("JIT_ATTENTION_TEST_SEED");
    const std::uint64_t value =
        given != nullptr && *given != 0 ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::printf("JIT_ATTENTION_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

std::uint64_t next_seed() {
  static std::uint64_t next = test_seed();
  return next++;
}

namespace {

bool takes_all() {
  const char* all = std::getenv("JIT_ATTENTION_TEST_ALL");
  return all != nullptr && std::string_view(all) == "1";
}

}  // namespace

bool is_in_this_run(std::uint64_t index, std::uint64_t count) {
  return takes_all() || (test_seed() + index) % count == 0;
}

bool is_turn(std::uint64_t index, std::uint64_t count) {
  constexpr std::uint64_t golden =
      0x9e3779b97f4a7c15;  // upper digits of its products depend on all of the seed's
  return takes_all() || ((test_seed() * golden >> 40) + index) % count == 0;
}

}  // namespace jit::reference
