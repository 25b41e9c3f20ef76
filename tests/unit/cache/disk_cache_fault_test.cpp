// Every system call of the caches fails once, or from some point on, with every error that file systems give.
#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cache/disk_cache.h"
#include "cache/tuning_store.h"
#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;

const std::vector<int> errors = {EEXIST, ENOENT, EBUSY,  ESTALE, EACCES, ENOSPC,
                                 EIO,    EROFS,  EINVAL, ENOLCK, EMFILE};

// Whatever fails, a kernel that is found must be the right one.
void expect_right_or_absent(const DiskCache& cache, const Key& key) {
  const std::optional<Entry> found = cache.load(key);
  if (found) {
    EXPECT_EQ(*found, entry_of(key));
  }
}

// The life of a process: look, lock, look again, store, come back later; with caps so low that it evicts,
// too.
void use_disk_cache(const std::string& directory, FileSystem& file_system, Warnings& warnings) {
  DiskCache cache({.directory = directory,
                   .max_bytes = 2 * 4096,
                   .observer = warnings.observer(),
                   .file_system = &file_system});
  for (const char* name : {"a", "b", "c"}) {
    const Key key = key_of(name);
    expect_right_or_absent(cache, key);
    const FileLock lock = cache.lock(key, std::chrono::milliseconds(0));
    expect_right_or_absent(cache, key);
    cache.store(key, entry_of(key));
    expect_right_or_absent(cache, key);
  }
}

void use_tuning_store(const std::string& directory, FileSystem& file_system, Warnings& warnings) {
  TuningStore store(directory, &file_system, warnings.observer());
  const Key environment = key_of("machine");
  for (const char* name : {"a", "b"}) {
    store.store(environment, key_of(name), name);
    const auto found = store.load(environment, key_of(name));
    EXPECT_EQ(found.value_or(name), name);
  }
}

// Runs `scenario` with call 0, 1, 2... failing until the scenario makes fewer calls than that.
template <class Scenario, class Check>
void fail_every_call(bool lasting, Scenario scenario, Check check) {
  for (const int error : errors) {
    int call = 0;
    for (bool reached = true; reached; ++call) {
      SCOPED_TRACE("errno " + std::to_string(error) + " at call " + std::to_string(call));
      const FreshFolder folder;
      FaultyFileSystem faulty(error, call, lasting);
      Warnings warnings;
      ASSERT_NO_THROW(scenario(folder / "cache", faulty, warnings));
      ASSERT_LE(warnings.count(), 1u) << ::testing::PrintToString(warnings.messages());
      check(folder / "cache");
      reached = faulty.reached();
    }
    ASSERT_GT(call, 20) << "the scenario makes too few calls to test anything";
  }
}

void expect_whole_disk_cache(const std::string& directory) {
  Warnings warnings;
  DiskCache cache({.directory = directory, .observer = warnings.observer()});
  for (const char* name : {"a", "b", "c"}) expect_right_or_absent(cache, key_of(name));
  EXPECT_TRUE(cache.verify().empty());
  EXPECT_EQ(warnings.count(), 0u);
}

void expect_whole_tuning_store(const std::string& directory) {
  Warnings warnings;
  TuningStore store(directory, nullptr, warnings.observer());
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(store.load(key_of("machine"), key_of(name)).value_or(name), name);
  }
  EXPECT_EQ(warnings.count(), 0u);
}

TEST(DiskCacheFault, AnySingleCallMayFail) {
  fail_every_call(false, use_disk_cache, expect_whole_disk_cache);
}

TEST(DiskCacheFault, AllCallsFromAnyPointOnMayFail) {
  fail_every_call(true, use_disk_cache, expect_whole_disk_cache);
}

TEST(TuningStoreFault, AnySingleCallMayFail) {
  fail_every_call(false, use_tuning_store, expect_whole_tuning_store);
}

TEST(TuningStoreFault, AllCallsFromAnyPointOnMayFail) {
  fail_every_call(true, use_tuning_store, expect_whole_tuning_store);
}

TEST(DiskCacheFault, AReadOnlyPlaceForTheFolderIsCalledThat) {
  const FreshFolder folder;
  ReadOnlyFileSystem read_only;
  DiskCache cache({.directory = folder / "a/b/cache", .file_system = &read_only});
  EXPECT_EQ(cache.refusal(), (folder / "a/b/cache") + ": mkdir: Read-only file system");
}

TEST(DiskCacheFault, ALockIsAskedForAgainAfterASignal) {
  struct : FileSystem {
    int interruptions = 3;
    int flock(int file, int operation) override {
      if (interruptions-- > 0) return errno = EINTR, -1;
      return FileSystem::flock(file, operation);
    }
  } interrupted;
  const FreshFolder folder;
  const DiskCache cache({.directory = folder.path(), .file_system = &interrupted});
  EXPECT_TRUE(cache.lock(key_of("kernel"), std::chrono::milliseconds(2000)).held());
}

TEST(DiskCacheFault, ShortReadsAndWritesAreContinued) {
  const FreshFolder folder;
  ShortFileSystem small_steps(7);
  Warnings warnings;
  DiskCache cache({.directory = folder.path(), .observer = warnings.observer(), .file_system = &small_steps});
  const Key key = key_of("kernel");
  cache.store(key, entry_of(key, 2000));
  EXPECT_EQ(cache.load(key), entry_of(key, 2000));
  EXPECT_EQ(warnings.count(), 0u);
}

TEST(DiskCacheFault, WritesThatMakeNoProgressEnd) {
  const FreshFolder folder;
  ShortFileSystem stuck(0);
  Warnings warnings;
  DiskCache cache({.directory = folder.path(), .observer = warnings.observer(), .file_system = &stuck});
  cache.store(key_of("kernel"), entry_of(key_of("kernel")));
  EXPECT_EQ(warnings.count(), 1u);
  EXPECT_TRUE(cache.list().empty());
}

TEST(DiskCacheFault, FailedStoresLeaveNoTemporaryFiles) {
  for (const char* call : {"write", "fsync", "rename"}) {
    struct FailingFileSystem : FileSystem {
      std::string failing;
      bool is(const char* name) const { return failing == name && (errno = ENOSPC) != 0; }
      ssize_t write(int file, const void* bytes, std::size_t size) override {
        return is("write") ? -1 : FileSystem::write(file, bytes, size);
      }
      int fsync(int file) override { return is("fsync") ? -1 : FileSystem::fsync(file); }
      int renameat(int from_directory, const char* from, int to_directory, const char* to) override {
        return is("rename") ? -1 : FileSystem::renameat(from_directory, from, to_directory, to);
      }
    } failing;
    failing.failing = call;
    const FreshFolder folder;
    Warnings warnings;
    DiskCache cache({.directory = folder.path(), .observer = warnings.observer(), .file_system = &failing});
    cache.store(key_of("kernel"), entry_of(key_of("kernel")));
    ASSERT_EQ(warnings.count(), 1u);
    EXPECT_NE(warnings.messages()[0].find(std::string(call) + ": No space left"), std::string::npos);
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder.path())) {
      EXPECT_FALSE(item.is_regular_file()) << item.path();
    }
  }
}

}  // namespace
}  // namespace jit
