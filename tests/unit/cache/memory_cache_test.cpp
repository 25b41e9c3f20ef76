#include "cache/memory_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace jit {
namespace {

using std::chrono::milliseconds;

const Digest first_key{1, 2};
const Digest second_key{3, 4};

TEST(SingleFlight, ComputesOnceForManyThreads) {
  SingleFlight<std::string> flights;
  std::atomic<int> computed = 0;
  std::latch start(8);
  std::vector<std::shared_ptr<const std::string>> results(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      results[i] = flights.get(first_key, [&] {
        std::this_thread::sleep_for(milliseconds(30));
        ++computed;
        return std::string("result");
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(computed, 1);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(*results[0], "result");
}

TEST(SingleFlight, AllWaitersGetTheFailureAndTheNextCallTriesAgain) {
  SingleFlight<int> flights;
  std::atomic<int> attempts = 0;
  std::atomic<int> failures = 0;
  std::atomic<int> asking = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ++asking;
      try {
        flights.get(first_key, [&]() -> int {
          ++attempts;
          while (asking < 4) std::this_thread::yield();
          std::this_thread::sleep_for(milliseconds(200));
          throw std::runtime_error("no compiler");
        });
      } catch (const std::runtime_error& error) {
        if (std::string(error.what()) == "no compiler") ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 4);
  EXPECT_EQ(attempts, 1);
  EXPECT_EQ(flights.find(first_key), nullptr);
  EXPECT_EQ(*flights.get(first_key, [] { return 5; }), 5);
}

TEST(SingleFlight, DifferentKeysRunTogether) {
  SingleFlight<int> flights;
  std::latch both(2);
  std::thread other([&] {
    flights.get(second_key, [&] {
      both.arrive_and_wait();
      return 2;
    });
  });
  // Would wait for ever if the second computation could not begin during the first.
  EXPECT_EQ(*flights.get(first_key,
                         [&] {
                           both.arrive_and_wait();
                           return 1;
                         }),
            1);
  other.join();
}

TEST(SingleFlight, FindsOnlyWhatIsReady) {
  SingleFlight<int> flights;
  EXPECT_EQ(flights.find(first_key), nullptr);
  flights.get(first_key, [&] {
    EXPECT_EQ(flights.find(first_key), nullptr);
    return 1;
  });
  ASSERT_NE(flights.find(first_key), nullptr);
  EXPECT_EQ(*flights.find(first_key), 1);
}

TEST(SingleFlight, ErasedResultsAreComputedAgainAndLiveOnWithTheirHolders) {
  SingleFlight<int> flights;
  const auto old = flights.get(first_key, [] { return 1; });
  flights.erase(first_key);
  EXPECT_EQ(*flights.get(first_key, [] { return 2; }), 2);
  EXPECT_EQ(*old, 1);
}

TEST(SingleFlight, FailureDoesNotEndALaterFlight) {
  SingleFlight<int> flights;
  EXPECT_THROW(flights.get(first_key,
                           [&]() -> int {
                             flights.erase(first_key);
                             flights.get(first_key, [] { return 2; });
                             throw std::runtime_error("late");
                           }),
               std::runtime_error);
  ASSERT_NE(flights.find(first_key), nullptr);
  EXPECT_EQ(*flights.find(first_key), 2);
}

TEST(SingleFlight, ChildForkedDuringAComputationDoesNotHang) {
  SingleFlight<int> flights;
  std::latch computing(2);
  std::atomic<bool> done = false;
  std::thread worker([&] {
    flights.get(first_key, [&] {
      computing.arrive_and_wait();
      while (!done) std::this_thread::yield();
      return 1;
    });
  });
  computing.arrive_and_wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    const bool right = *flights.get(first_key, [] { return 7; }) == 7;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  done = true;
  worker.join();
  EXPECT_EQ(*flights.find(first_key), 1);
}

}  // namespace
}  // namespace jit
