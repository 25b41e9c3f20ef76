// The disk cache among several processes: killed writers, stopped lock holders, one computation for all.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/disk_cache.h"
#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Runs `work` in a child process, whose exit status is 0 when it returns true.
pid_t start_process(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(60);
  _exit(work() ? 0 : 1);
}

bool ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void kill_process(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// A child that holds the lock of `key` and then sleeps, or stops itself.
pid_t start_lock_holder(const std::string& directory, const Key& key, bool stopped) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = start_process([&] {
    DiskCache cache({.directory = directory});
    const FileLock lock = cache.lock(key);
    const char held = lock.held() ? 'y' : 'n';
    if (write(ready[1], &held, 1) != 1) return false;
    if (stopped) raise(SIGSTOP);
    while (true) pause();
  });
  close(ready[1]);
  char held = 'n';
  const bool answered = read(ready[0], &held, 1) == 1;
  close(ready[0]);
  if (answered && held == 'y') return child;
  kill_process(child);
  return -1;
}

TEST(DiskCacheProcess, KilledWritersLeaveNothingUnreadable) {
  const FreshFolder folder;
  const int kills = slow_build ? 60 : 400;
  std::mt19937 random(7);
  for (int round = 0; round < kills; ++round) {
    const pid_t child = start_process([&] {
      DiskCache cache({.directory = folder.path()});
      for (int i = 0;; ++i) {
        const Key key = key_of(std::to_string(i % 10));
        cache.store(key, entry_of(key, 40'000));
      }
      return true;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    kill_process(child);
  }
  Warnings warnings;
  DiskCache cache({.directory = folder.path(), .observer = warnings.observer()});
  EXPECT_TRUE(cache.verify().empty());
  EXPECT_GT(cache.list().size(), 0u);
  for (int i = 0; i < 10; ++i) {
    const Key key = key_of(std::to_string(i));
    const auto found = cache.load(key);
    EXPECT_TRUE(!found || *found == entry_of(key, 40'000));
  }
  EXPECT_EQ(warnings.count(), 0u);
}

TEST(DiskCacheProcess, HitsDoNotWaitForTheLock) {
  const FreshFolder folder;
  DiskCache cache({.directory = folder.path()});
  const Key key = key_of("kernel");
  cache.store(key, entry_of(key));
  const pid_t holder = start_lock_holder(folder.path(), key, false);
  ASSERT_GT(holder, 0);
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(cache.load(key));
  EXPECT_LT(Clock::now() - begin, milliseconds(1000));
  EXPECT_FALSE(cache.lock(key, milliseconds(0)).held());
  kill_process(holder);
  EXPECT_TRUE(cache.lock(key, milliseconds(1000)).held());  // death releases it
}

TEST(DiskCacheProcess, StoppedLockHolderIsNotWaitedForLongerThanAsked) {
  const FreshFolder folder;
  DiskCache cache({.directory = folder.path()});
  const Key key = key_of("kernel");
  const pid_t holder = start_lock_holder(folder.path(), key, true);
  ASSERT_GT(holder, 0);
  const auto begin = Clock::now();
  EXPECT_FALSE(cache.lock(key, milliseconds(200)).held());
  const auto waited = Clock::now() - begin;
  EXPECT_GE(waited, milliseconds(200));
  EXPECT_LT(waited, milliseconds(2000));
  cache.store(key, entry_of(key));
  EXPECT_EQ(cache.load(key), entry_of(key));
  kill_process(holder);
}

// From now on every flock of this process is interrupted; false where a process cannot do that to itself.
bool interrupt_every_lock() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINTR),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(DiskCacheProcess, ALockThatIsInterruptedForEverIsNotWaitedForLongerThanAsked) {
  const FreshFolder folder;
  const Key key = key_of("kernel");
  const auto begin = Clock::now();
  EXPECT_TRUE(ended_well(start_process([&] {
    if (!interrupt_every_lock()) return true;
    alarm(10);
    return !DiskCache({.directory = folder.path()}).lock(key, milliseconds(200)).held();
  })));
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
}

TEST(DiskCacheProcess, EightProcessesComputeAColdKeyOnce) {
  const FreshFolder folder;
  const Key key = key_of("kernel");
  const std::string counter = folder / "computations";
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(start_process([&] {
      DiskCache cache({.directory = folder / "cache"});
      if (cache.load(key)) return true;
      const FileLock lock = cache.lock(key);
      if (const auto found = cache.load(key)) return *found == entry_of(key);
      const int file = open(counter.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      if (write(file, "x", 1) != 1) return false;
      std::this_thread::sleep_for(milliseconds(200));
      cache.store(key, entry_of(key));
      return true;
    }));
  }
  for (const pid_t child : children) EXPECT_TRUE(ended_well(child));
  EXPECT_EQ(read_text(counter), "x");
}

TEST(DiskCacheProcess, ReadersSeeWholeEntriesWhileAnotherProcessReplacesAndEvicts) {
  const FreshFolder folder;
  const Key key = key_of("kernel");
  const pid_t writer = start_process([&] {
    HastyFileSystem hasty;
    DiskCache cache({.directory = folder.path(), .file_system = &hasty});
    while (true) {
      for (int i = 0; i < 20; ++i) cache.store(key, entry_of(key, 40'000));
      cache.clear();
    }
    return true;
  });
  Warnings warnings;
  DiskCache cache({.directory = folder.path(), .observer = warnings.observer()});
  int hits = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(500);) {
    const auto found = cache.load(key);
    if (found) {
      ++hits;
      ASSERT_EQ(*found, entry_of(key, 40'000));
    }
  }
  kill_process(writer);
  EXPECT_GT(hits, 0);
  EXPECT_EQ(warnings.messages(), std::vector<std::string>{});
}

}  // namespace
}  // namespace jit
