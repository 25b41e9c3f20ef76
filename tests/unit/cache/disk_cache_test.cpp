#include "cache/disk_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <jit/error.h>

#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
namespace fs = std::filesystem;

DiskCache open_cache(const std::string& directory, Warnings& warnings, FileSystem* file_system = nullptr) {
  return DiskCache({.directory = directory, .observer = warnings.observer(), .file_system = file_system});
}

// Puts other bytes into a file without changing who may write it.
void damage(const std::string& path, const std::string& text) { write_text(path, text); }

class DiskCacheTest : public ::testing::Test {
 protected:
  FreshFolder folder_;
  Warnings warnings_;
  const Key key_ = key_of("kernel");
  const Entry entry_ = entry_of(key_);
};

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  DiskCache cache = open_cache(folder_ / "cache", warnings_);
  EXPECT_TRUE(cache.writable());
  EXPECT_FALSE(cache.load(key_));
  cache.store(key_, entry_);
  EXPECT_EQ(cache.load(key_), entry_);
  EXPECT_FALSE(cache.load(key_of("another kernel")));
  EXPECT_EQ(open_cache(folder_ / "cache", warnings_).load(key_), entry_);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(DiskCacheTest, LaysFilesOutAsDocumentedForTheUserAlone) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  cache.store(key_, entry_);
  const std::string path = path_of(folder_.path(), key_);
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(fs::path(path).parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
}

TEST_F(DiskCacheTest, StoresTheTextOfTheKeyAndReplacesOlderEntries) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  cache.store(key_, {"some other text", "old", bytes_of(10, 1)});
  EXPECT_EQ(cache.load(key_)->key_text, key_.text());
  cache.store(key_, entry_);
  EXPECT_EQ(cache.load(key_), entry_);
}

TEST_F(DiskCacheTest, EveryDamageIsAMissWithOneWarningAndIsRepaired) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  cache.store(key_, entry_);
  const std::string path = path_of(folder_.path(), key_);
  const std::string whole = read_text(path);
  std::vector<std::string> variants = {"", "x", whole + "x", std::string(5000, '\0')};
  for (std::size_t i = 0; i < whole.size(); i += 3) {
    variants.push_back(whole);
    variants.back()[i] = static_cast<char>(variants.back()[i] ^ 1);
    variants.push_back(whole.substr(0, i));
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    damage(path, variants[i]);
    ASSERT_FALSE(cache.load(key_)) << i;
    ASSERT_FALSE(cache.load_again(key_)) << i;
    ASSERT_EQ(warnings_.count(), i + 1);
  }
  cache.store(key_, entry_);
  EXPECT_EQ(cache.load(key_), entry_);
}

TEST_F(DiskCacheTest, CollisionOfDigestsIsAMiss) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  const Key other = key_of("other");
  cache.store(other, entry_of(other));
  fs::create_directories(fs::path(path_of(folder_.path(), key_)).parent_path());
  fs::copy_file(path_of(folder_.path(), other), path_of(folder_.path(), key_));
  EXPECT_FALSE(cache.load(key_));
  EXPECT_EQ(cache.verify().size(), 1u);
}

TEST_F(DiskCacheTest, UsesOnlyPrivateRegularFiles) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  cache.store(key_, entry_);
  const std::string path = path_of(folder_.path(), key_);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(cache.load(key_));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(cache.load(key_));

  fs::rename(path, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", path);
  EXPECT_FALSE(cache.load(key_));
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(cache.load(key_));  // and does not wait for a writer
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(cache.load(key_));
  EXPECT_EQ(warnings_.count(), 4u);
}

TEST_F(DiskCacheTest, RefusesHostileFoldersAndWorksWithoutThem) {
  fs::create_directories(folder_ / "shared");
  ASSERT_EQ(chmod((folder_ / "shared").c_str(), 0777), 0);
  fs::create_directory_symlink(folder_.path(), folder_ / "link");
  for (const std::string& path : {folder_ / "shared", folder_ / "shared/cache", folder_ / "link",
                                  std::string("relative-cache-folder"), std::string("/dev/null/cache")}) {
    Warnings warnings;
    DiskCache cache = open_cache(path, warnings);
    EXPECT_FALSE(cache.writable()) << path;
    EXPECT_NE(cache.refusal(), "") << path;
    cache.store(key_, entry_);
    EXPECT_FALSE(cache.load(key_)) << path;
    EXPECT_FALSE(cache.lock(key_).held()) << path;
    EXPECT_EQ(cache.clear(), 0u);
    EXPECT_EQ(warnings.count(), 1u) << path;
  }
  EXPECT_FALSE(fs::exists("relative-cache-folder"));
  EXPECT_TRUE(fs::is_empty(folder_ / "shared"));
}

TEST_F(DiskCacheTest, WorksWithoutAnyFolder) {
  DiskCache cache = open_cache("", warnings_);
  cache.store(key_, entry_);
  EXPECT_FALSE(cache.load(key_));
  EXPECT_FALSE(cache.writable());
  EXPECT_EQ(cache.refusal(), "");
  EXPECT_TRUE(cache.list().empty());
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(DiskCacheTest, ComesBackAfterItsFolderWasRemoved) {
  DiskCache cache = open_cache(folder_ / "cache", warnings_);
  cache.store(key_, entry_);
  fs::remove_all(folder_ / "cache");
  EXPECT_FALSE(cache.load(key_));
  EXPECT_TRUE(cache.lock(key_).held());
  cache.store(key_, entry_);
  EXPECT_EQ(cache.load(key_), entry_);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(DiskCacheTest, HitsOnAReadOnlyMountAndWarnsOnceAboutStores) {
  open_cache(folder_.path(), warnings_).store(key_, entry_);
  set_age(path_of(folder_.path(), key_), 3600);
  ReadOnlyFileSystem read_only;
  DiskCache cache = open_cache(folder_.path(), warnings_, &read_only);
  EXPECT_EQ(cache.load(key_), entry_);
  EXPECT_EQ(warnings_.count(), 0u);
  for (int i = 0; i < 3; ++i) cache.store(key_of("new" + std::to_string(i)), entry_);
  EXPECT_FALSE(cache.lock(key_).held());
  EXPECT_EQ(warnings_.count(), 1u);
}

TEST_F(DiskCacheTest, ReadOnlyLayersAreAskedInOrderAndNeverWritten) {
  const Key second = key_of("second");
  const Key both = key_of("both");
  open_cache(folder_ / "layer1", warnings_).store(both, {"", "from layer 1", bytes_of(9, 1)});
  open_cache(folder_ / "layer2", warnings_).store(both, {"", "from layer 2", bytes_of(9, 2)});
  open_cache(folder_ / "layer2", warnings_).store(second, entry_of(second));
  set_age(path_of(folder_ / "layer1", both), 3600);
  const auto used_before = fs::last_write_time(path_of(folder_ / "layer1", both));

  DiskCache cache({.directory = folder_ / "own",
                   .readonly_layers = {folder_ / "layer1", folder_ / "layer2"},
                   .observer = warnings_.observer()});
  EXPECT_EQ(cache.load(second), entry_of(second));
  EXPECT_EQ(cache.load(both)->metadata, "from layer 1");
  EXPECT_EQ(fs::last_write_time(path_of(folder_ / "layer1", both)), used_before);
  EXPECT_EQ(cache.list().size(), 3u);
  EXPECT_EQ(cache.clear(), 0u);

  // A newly compiled kernel must win over a layer, or a bad pre-built kernel could never be replaced.
  cache.store(both, {"", "own", bytes_of(9, 3)});
  EXPECT_EQ(cache.load(both)->metadata, "own");
  EXPECT_EQ(cache.clear(), 1u);
  EXPECT_EQ(cache.load(both)->metadata, "from layer 1");
  damage(path_of(folder_ / "layer1", both), "damaged");
  EXPECT_EQ(cache.load(both)->metadata, "from layer 2");
  EXPECT_EQ(warnings_.count(), 1u);
}

TEST_F(DiskCacheTest, LayersNeedNoFolderOfTheirOwnAndReadOnlyOnesWork) {
  open_cache(folder_ / "layer", warnings_).store(key_, entry_);
  ReadOnlyFileSystem read_only;
  DiskCache cache(
      {.readonly_layers = {folder_ / "layer"}, .observer = warnings_.observer(), .file_system = &read_only});
  EXPECT_EQ(cache.load(key_), entry_);
  cache.store(key_, entry_);
  EXPECT_EQ(read_only.changes(), 0);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(DiskCacheTest, UnusableLayersAreNamedAndLeftOut) {
  fs::create_directory(folder_ / "shared");
  ASSERT_EQ(chmod((folder_ / "shared").c_str(), 0777), 0);
  DiskCache cache({.directory = folder_ / "own",
                   .readonly_layers = {folder_ / "missing", folder_ / "shared", "relative"},
                   .observer = warnings_.observer()});
  EXPECT_EQ(warnings_.count(), 3u);
  cache.store(key_, entry_);
  EXPECT_EQ(cache.load(key_), entry_);
}

TEST_F(DiskCacheTest, HitsRefreshTheTimeOfUseButNotEveryTime) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  cache.store(key_, entry_);
  const std::string path = path_of(folder_.path(), key_);
  set_age(path, 60);
  const auto recent = fs::last_write_time(path);
  EXPECT_TRUE(cache.load(key_));
  EXPECT_EQ(fs::last_write_time(path), recent);
  set_age(path, 3600);
  EXPECT_TRUE(cache.load(key_));
  EXPECT_GT(fs::last_write_time(path), recent);
}

TEST_F(DiskCacheTest, RefusesToStoreWhatIsNoKernelOrTooLarge) {
  DiskCache cache({.directory = folder_.path(), .max_bytes = 4096, .observer = warnings_.observer()});
  cache.store(key_, {"", "metadata", {}});
  EXPECT_EQ(warnings_.count(), 0u);
  cache.store(key_, entry_of(key_, 5000));
  EXPECT_EQ(warnings_.count(), 1u);
  EXPECT_TRUE(cache.list().empty());
}

TEST_F(DiskCacheTest, LocksExcludeOneAnotherAndDoNotStopHits) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  cache.store(key_, entry_);
  {
    const FileLock held = cache.lock(key_);
    EXPECT_TRUE(held.held());
    EXPECT_FALSE(cache.lock(key_, std::chrono::milliseconds(20)).held());
    EXPECT_TRUE(cache.load(key_));
  }
  EXPECT_TRUE(cache.lock(key_, std::chrono::milliseconds(0)).held());
}

TEST_F(DiskCacheTest, KernelsThatAreCompiledAtTheSameTimeHardlyEverShareALock) {
  const DiskCache cache = open_cache(folder_.path(), warnings_);
  int refused = 0;
  for (int tuning = 0; tuning < 100; ++tuning) {
    std::vector<FileLock> held;
    for (int kernel = 0; kernel < 9; ++kernel) {
      held.push_back(
          cache.lock(key_of(fmt::format("{} of {}", kernel, tuning)), std::chrono::milliseconds(0)));
      refused += !held.back().held();
    }
  }
  EXPECT_LT(refused, 8);  // about 1 in 100; with 64 locks, about 50
}

// Machines and their file systems differ by a factor of ten: the yardstick is what reading the bytes costs.
TEST_F(DiskCacheTest, HitOfATypicalKernelIsFast) {
  DiskCache cache = open_cache(folder_.path(), warnings_);
  const Key key = key_of(std::string(30'000, 's'));
  cache.store(key, entry_of(key, 64'000));
  const std::string file = path_of(folder_.path(), key);
  double hit = 1e9, plain = 1e9;
  for (int i = 0; i < 300; ++i) {
    const double begin = cpu_microseconds();
    ASSERT_TRUE(cache.load(key));
    const double middle = cpu_microseconds();
    ASSERT_GT(read_text(file).size(), 94'000u);
    hit = std::min(hit, middle - begin);
    plain = std::min(plain, cpu_microseconds() - middle);
  }
  RecordProperty("hit_microseconds", std::to_string(hit));
  RecordProperty("plain_microseconds", std::to_string(plain));
  EXPECT_LE(hit, slow_build ? 5000 : 2 * plain);
}

TEST_F(DiskCacheTest, ThreadsMixHitsMissesAndEviction) {
  HastyFileSystem hasty;
  DiskCache cache({.directory = folder_.path(),
                   .max_bytes = 40 * 4096,
                   .observer = warnings_.observer(),
                   .file_system = &hasty});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 60; ++i) {
        const Key key = key_of(std::to_string((i * 7 + thread * 5) % 60));
        const auto found = cache.load(key);
        if (found && *found != entry_of(key)) ++wrong;
        if (!found) cache.store(key, entry_of(key));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(warnings_.messages(), std::vector<std::string>{});
  EXPECT_LE(cache.list().size(), 44u);
  EXPECT_TRUE(cache.verify().empty());
}

}  // namespace
}  // namespace jit
