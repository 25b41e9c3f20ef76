#include "templates/base/varlen_tiles.cuh"

#include <random>

#include <gtest/gtest.h>

#include "templates/base/gradient_params.cuh"
#include "tests/support/seed.h"

namespace jit {
namespace {

// Each sequence has room for its tiles before the next one's, and the last one before the end of the list.
TEST(VarlenTiles, HaveRoom) {
  std::mt19937_64 random(reference::test_seed());
  for (int repeat = 0; repeat < 200; ++repeat) {
    const int batch = 1 + static_cast<int>(random() % 20), rows = 1 + static_cast<int>(random() % 130);
    int begin = static_cast<int>(random() % 50);  // rows of nobody
    long long end_of_last = 0, end_of_numbers = 0;
    for (int b = 0; b < batch; ++b) {
      const int length = random() % 4 == 0 ? 0 : static_cast<int>(random() % 300);
      const long long first = first_varlen_tile(b, begin, rows), number = first_varlen_statistic(b, begin);
      EXPECT_GE(first, end_of_last);
      EXPECT_GE(number, end_of_numbers);
      EXPECT_EQ(number % statistic_chunk, 0);
      end_of_last = first + (length + rows - 1) / rows;
      end_of_numbers = number + statistic_rows(length);
      begin += length + static_cast<int>(random() % 3);
    }
    const int total = begin + static_cast<int>(random() % 50);
    EXPECT_LE(end_of_last, varlen_tiles(batch, total, rows));
    EXPECT_LE(end_of_numbers, varlen_statistic_rows(batch, total));
    EXPECT_LE(varlen_tiles(batch, total, rows), total / rows + batch);
  }
}

}  // namespace
}  // namespace jit
