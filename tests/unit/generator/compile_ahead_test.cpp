#include "generator/tuning/compile_ahead.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

bool always(std::size_t) { return true; }

void wait_for(CompileAhead& ahead, std::size_t job) { EXPECT_EQ(ahead.wait({{job}}), job); }

TEST(CompileAhead, DoesEveryJobOnce) {
  std::vector<std::atomic<int>> runs(100);
  CompileAhead ahead(
      runs.size(), [&](std::size_t i) { ++runs[i]; }, always);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    wait_for(ahead, i);
    EXPECT_EQ(runs[i], 1);
  }
}

TEST(CompileAhead, BeginsInOrder) {
  std::mutex mutex;
  std::map<std::thread::id, std::vector<std::size_t>> orders;
  {
    CompileAhead ahead(
        50, [](std::size_t) {},
        [&](std::size_t i) {
          const std::lock_guard lock(mutex);
          orders[std::this_thread::get_id()].push_back(i);
          return true;
        });
    wait_for(ahead, 49);
  }
  // Threads that took their jobs at once may write them down in another order, but none goes back.
  for (const auto& [thread, order] : orders) EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(CompileAhead, PassesOverWhatIsNotWantedAnyMore) {
  std::vector<std::atomic<bool>> ran(10);
  CompileAhead ahead(
      ran.size(), [&](std::size_t i) { ran[i] = true; }, [](std::size_t i) { return i % 2 == 0; });
  for (std::size_t i = 0; i < ran.size(); ++i) {
    wait_for(ahead, i);
    EXPECT_EQ(ran[i], i % 2 == 0);
  }
}

TEST(CompileAhead, StopsWithItsOwner) {
  std::atomic<int> begun = 0, ended = 0;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  {
    CompileAhead ahead(
        100000,
        [&](std::size_t) {
          ++begun;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++ended;
        },
        always);
    wait_for(ahead, 0);
  }
  EXPECT_EQ(begun, ended) << "no thread is left";
  EXPECT_LT(begun, 100000 / 2) << cores;
}

// A slow job does not keep its owner from those behind it.
TEST(CompileAhead, TellsWhichJobIsDone) {
  std::promise<void> slow;
  const std::shared_future<void> is_over = slow.get_future().share();
  CompileAhead ahead(
      3,
      [&](std::size_t i) {
        if (i == 0) is_over.wait();
      },
      [](std::size_t i) { return i != 1; });
  const std::vector<std::size_t> all = {0, 1, 2}, first = {0};
  if (std::thread::hardware_concurrency() > 1) {
    EXPECT_EQ(ahead.wait(all), 1u);
    EXPECT_EQ(ahead.wait(std::vector<std::size_t>{0, 2}), 2u);
  }
  slow.set_value();
  EXPECT_EQ(ahead.wait(first), 0u);
  EXPECT_EQ(ahead.wait(all), 0u);
}

TEST(CompileAhead, MayHaveNothingToDo) {
  const CompileAhead ahead(
      0, [](std::size_t) {}, always);
}

}  // namespace
}  // namespace jit
