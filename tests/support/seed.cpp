#include "tests/support/seed.h"

#include <cstdio>
#include <cstdlib>
#include <random>

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

}  // namespace jit::reference
