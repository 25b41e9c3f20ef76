#include "cache/eviction.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_directory.h"
#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class EvictionTest : public ::testing::Test {
 protected:
  EvictionTest() {
    DiskCache cache({.directory = folder_.path()});
    for (int i = 0; i < 3; ++i) {
      const Key key = key_of(std::to_string(i));
      cache.store(key, entry_of(key));
      paths_.push_back(path_of(folder_.path(), key));
      set_age(paths_.back(), 3600 * (3 - i));
    }
  }

  FreshFolder folder_;
  std::vector<std::string> paths_;  // the least recently used first
  OpenedDirectory opened_ = open_or_create_directory(real_file_system(), folder_.path());
  std::vector<StoredFile> scan() { return scan_entries(real_file_system(), opened_.file.get(), false); }
};

TEST_F(EvictionTest, ChargesWholeBlocks) {
  EXPECT_EQ(charged_bytes(0), 0u);
  EXPECT_EQ(charged_bytes(1), 4096u);
  EXPECT_EQ(charged_bytes(4096), 4096u);
  EXPECT_EQ(charged_bytes(4097), 8192u);
  EXPECT_EQ(usage_of(scan()).bytes, 3 * 4096u);
  EXPECT_EQ(usage_of(scan()).entries, 3u);
}

TEST_F(EvictionTest, RemovesTheOldestUntilBothTargetsAreMet) {
  EXPECT_EQ(evict(real_file_system(), opened_.file.get(), scan(), {3 * 4096, 3}).files, 0u);
  EXPECT_EQ(evict(real_file_system(), opened_.file.get(), scan(), {3 * 4096, 2}).files, 1u);
  EXPECT_FALSE(fs::exists(paths_[0]));
  EXPECT_EQ(evict(real_file_system(), opened_.file.get(), scan(), {2 * 4096 - 1, 3}).files, 1u);
  EXPECT_FALSE(fs::exists(paths_[1]));
  EXPECT_TRUE(fs::exists(paths_[2]));
}

TEST_F(EvictionTest, SparesWhatWasUsedOrReplacedSinceTheScan) {
  const std::vector<StoredFile> files = scan();
  set_age(paths_[0], 0);
  const std::string content = read_text(paths_[1]);
  fs::remove(paths_[1]);
  write_text(paths_[1], content);
  fs::last_write_time(paths_[1], fs::last_write_time(paths_[2]));
  EXPECT_EQ(evict(real_file_system(), opened_.file.get(), files, {0, 0}).files, 1u);
  EXPECT_TRUE(fs::exists(paths_[0]));
  EXPECT_TRUE(fs::exists(paths_[1]));
  EXPECT_FALSE(fs::exists(paths_[2]));
}

TEST_F(EvictionTest, FilesThatVanishedMeanwhileAreNoTrouble) {
  const std::vector<StoredFile> files = scan();
  fs::remove(paths_[1]);
  EXPECT_EQ(evict(real_file_system(), opened_.file.get(), files, {0, 0}).files, 2u);
}

}  // namespace
}  // namespace jit
