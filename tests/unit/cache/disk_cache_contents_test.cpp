// Listing, checking, pruning, archives and eviction of the disk cache.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <jit/error.h>

#include "cache/disk_cache.h"
#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class DiskCacheContentsTest : public ::testing::Test {
 protected:
  DiskCache open(const std::string& name) {
    return DiskCache({.directory = folder_ / name, .observer = warnings_.observer(), .file_system = &hasty_});
  }
  // Stores `count` kernels; kernel i was last used (count - i) hours ago.
  std::vector<Key> fill(DiskCache& cache, const std::string& name, int count) {
    std::vector<Key> keys;
    for (int i = 0; i < count; ++i) {
      keys.push_back(key_of("kernel " + std::to_string(i)));
      cache.store(keys.back(), entry_of(keys.back()));
      set_age(path_of(folder_ / name, keys.back()), (count - i) * 3600);
    }
    return keys;
  }

  FreshFolder folder_;
  Warnings warnings_;
  HastyFileSystem hasty_;
};

TEST_F(DiskCacheContentsTest, ListsWhatIsThere) {
  DiskCache cache = open("cache");
  const std::vector<Key> keys = fill(cache, "cache", 5);
  write_text(folder_ / "cache/v1/stranger", "not ours");
  const std::vector<EntryInfo> infos = cache.list();
  ASSERT_EQ(infos.size(), 5u);
  for (std::size_t i = 1; i < infos.size(); ++i) EXPECT_LT(infos[i - 1].digest, infos[i].digest);
  for (const EntryInfo& info : infos) {
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& candidate) {
      return candidate.digest().hex() == info.digest;
    });
    ASSERT_NE(key, keys.end());
    EXPECT_EQ(info.path, path_of(folder_ / "cache", *key));
    EXPECT_EQ(info.bytes, fs::file_size(info.path));
    EXPECT_EQ(info.metadata, entry_of(*key).metadata);
    EXPECT_EQ(info.layer, folder_ / "cache");
    EXPECT_FALSE(info.damaged);
    const auto age = std::chrono::system_clock::now() - info.last_used;
    EXPECT_NEAR(std::chrono::duration<double>(age).count(), 3600.0 * static_cast<double>(keys.end() - key),
                60);
  }
}

TEST_F(DiskCacheContentsTest, VerifyNamesTheDamagedAndPruneRemovesThem) {
  DiskCache cache = open("cache");
  const std::vector<Key> keys = fill(cache, "cache", 4);
  EXPECT_TRUE(cache.verify().empty());
  write_text(path_of(folder_ / "cache", keys[1]), "damaged");
  fs::resize_file(path_of(folder_ / "cache", keys[2]), 50);
  const std::vector<EntryInfo> damaged = cache.verify();
  ASSERT_EQ(damaged.size(), 2u);
  for (const EntryInfo& info : damaged) EXPECT_TRUE(info.damaged);
  EXPECT_EQ(cache.prune(1 << 30), 2u);
  EXPECT_TRUE(cache.verify().empty());
  EXPECT_EQ(cache.list().size(), 2u);
}

// As a process does that evicts between the look at the folder and the look at the entry.
TEST_F(DiskCacheContentsTest, AnEntryThatGoesMeanwhileIsNoDamage) {
  DiskCache cache = open("cache");
  fill(cache, "cache", 3);
  struct : EntryFileSystem {
    bool fails(int directory, const char* path) override {
      FileSystem::unlinkat(directory, path, 0);
      return false;
    }
  } evicting;
  DiskCache beside({.directory = folder_ / "cache", .file_system = &evicting});
  EXPECT_TRUE(beside.list().empty());
  EXPECT_TRUE(cache.list().empty());
}

TEST_F(DiskCacheContentsTest, AnEntryThatCannotBeReadIsNoDamage) {
  DiskCache cache = open("cache");
  fill(cache, "cache", 3);
  struct : EntryFileSystem {
    bool fails(int, const char*) override { return (errno = EMFILE) != 0; }
  } busy;
  DiskCache unable({.directory = folder_ / "cache", .file_system = &busy});
  const std::vector<EntryInfo> infos = unable.list();
  ASSERT_EQ(infos.size(), 3u);
  for (const EntryInfo& info : infos) {
    EXPECT_FALSE(info.damaged);
    EXPECT_EQ(info.unreadable, "open: Too many open files");
    EXPECT_EQ(info.metadata, "");
  }
  EXPECT_TRUE(unable.verify().empty());
  EXPECT_EQ(unable.prune(1 << 30), 0u);
  EXPECT_EQ(cache.list().size(), 3u);
  EXPECT_EQ(cache.list()[0].unreadable, "");
}

TEST_F(DiskCacheContentsTest, PruneRemovesTheLeastRecentlyUsed) {
  DiskCache cache = open("cache");
  const std::vector<Key> keys = fill(cache, "cache", 4);
  EXPECT_TRUE(cache.load(keys[0]));  // now the most recently used
  EXPECT_EQ(cache.prune(2 * 4096), 2u);
  EXPECT_TRUE(cache.load(keys[0]));
  EXPECT_FALSE(cache.load(keys[1]));
  EXPECT_FALSE(cache.load(keys[2]));
  EXPECT_TRUE(cache.load(keys[3]));
}

TEST_F(DiskCacheContentsTest, ClearRemovesEntriesAndLeavesStrangers) {
  DiskCache cache = open("cache");
  fill(cache, "cache", 3);
  const std::string stranger = fs::path(cache.list()[0].path).parent_path() / "notes.txt";
  write_text(stranger, "not ours");
  EXPECT_EQ(cache.clear(), 3u);
  EXPECT_TRUE(cache.list().empty());
  EXPECT_TRUE(fs::exists(stranger));
}

TEST_F(DiskCacheContentsTest, FindsByPrefixOfTheDigest) {
  DiskCache cache = open("cache");
  const std::vector<Key> keys = fill(cache, "cache", 40);
  std::string hex = keys[7].digest().hex();
  EXPECT_EQ(cache.load_by_digest(hex), entry_of(keys[7]));
  EXPECT_EQ(cache.load_by_digest(hex.substr(0, 20)), entry_of(keys[7]));
  std::transform(hex.begin(), hex.end(), hex.begin(), [](unsigned char c) { return std::toupper(c); });
  EXPECT_EQ(cache.load_by_digest(hex.substr(0, 20)), entry_of(keys[7]));
  EXPECT_FALSE(cache.load_by_digest("not hex"));
  EXPECT_FALSE(cache.load_by_digest(hex + "0"));
  EXPECT_THROW(cache.load_by_digest(""), Error);  // 40 match
}

TEST_F(DiskCacheContentsTest, ArchivesMoveEntries) {
  DiskCache first = open("first");
  const std::vector<Key> keys = fill(first, "first", 6);
  write_text(path_of(folder_ / "first", keys[0]), "damaged");
  EXPECT_EQ(first.export_to(folder_ / "archive"), 5u);
  DiskCache second = open("second");
  const ImportReport report = second.import_from(folder_ / "archive");
  EXPECT_EQ(report.imported, 5u);
  EXPECT_TRUE(report.damaged.empty());
  EXPECT_FALSE(second.load(keys[0]));
  for (std::size_t i = 1; i < keys.size(); ++i) EXPECT_EQ(second.load(keys[i]), entry_of(keys[i]));
  EXPECT_EQ(second.export_to(folder_ / "again"), 5u);
  EXPECT_EQ(read_text(folder_ / "again"), read_text(folder_ / "archive"));
}

TEST_F(DiskCacheContentsTest, DamageInAnArchiveCostsOnlyTheEntriesThatItHits) {
  DiskCache first = open("first");
  const std::vector<Key> keys = fill(first, "first", 3);
  first.export_to(folder_ / "archive");
  const std::string whole = read_text(folder_ / "archive");
  for (std::size_t i = 0; i < whole.size(); i += 17) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    write_text(folder_ / "archive", bytes);
    DiskCache second = open("second");
    const ImportReport report = second.import_from(folder_ / "archive");
    EXPECT_EQ(report.imported, 2u) << i;
    EXPECT_EQ(report.damaged.size(), 1u) << i;
    EXPECT_TRUE(second.verify().empty());
    second.clear();
  }
  write_text(folder_ / "archive", whole.substr(0, whole.size() - 5));
  const ImportReport truncated = open("second").import_from(folder_ / "archive");
  EXPECT_EQ(truncated.imported, 2u);
  EXPECT_EQ(truncated.damaged.size(), 1u);
  write_text(folder_ / "archive", std::string(100'000, 'x'));
  EXPECT_EQ(open("second").import_from(folder_ / "archive").damaged.size(), 1u);
}

TEST_F(DiskCacheContentsTest, ArchivesThatCannotBeReadOrWrittenAreErrors) {
  DiskCache cache = open("cache");
  const auto code_of = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::invalid_spec;
  };
  EXPECT_EQ(code_of([&] { cache.import_from(folder_ / "missing"); }), ErrorCode::io_error);
  EXPECT_EQ(code_of([&] { cache.import_from(folder_.path()); }), ErrorCode::io_error);
  EXPECT_EQ(code_of([&] { cache.export_to(folder_ / "missing/archive"); }), ErrorCode::io_error);
  EXPECT_EQ(code_of([&] { cache.export_to(folder_.path() + "/"); }), ErrorCode::io_error);
  write_text(folder_ / "archive", "");
  DiskCache nowhere({.observer = warnings_.observer()});
  EXPECT_EQ(code_of([&] { nowhere.import_from(folder_ / "archive"); }), ErrorCode::io_error);
}

TEST_F(DiskCacheContentsTest, TenThousandInsertsStayBelowTheCap) {
  constexpr std::uint64_t cap = 10 << 20;
  DiskCache cache({.directory = folder_ / "cache",
                   .max_bytes = cap,
                   .observer = warnings_.observer(),
                   .file_system = &hasty_});
  std::uintmax_t most = 0;
  const std::vector<std::byte> cubin = bytes_of(5000, 1);
  for (int i = 0; i < 10'000; ++i) {
    cache.store(key_of(std::to_string(i)), {"", "", cubin});
    if (i % 1000 == 999) most = std::max(most, size_of_folder(folder_ / "cache"));
  }
  EXPECT_LE(most, cap * 11 / 10);
  EXPECT_GE(most, cap * 8 / 10);
  EXPECT_TRUE(cache.load(key_of("9999")));
  EXPECT_FALSE(cache.load(key_of("0")));
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(DiskCacheContentsTest, SeveralWritersStayBelowTheCapTogether) {
  constexpr std::uint64_t cap = 1 << 20;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&, writer] {
      DiskCache cache({.directory = folder_ / "cache", .max_bytes = cap, .file_system = &hasty_});
      for (int i = 0; i < 200; ++i) {
        const Key key = key_of(std::to_string(writer) + " " + std::to_string(i));
        cache.store(key, entry_of(key));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_LE(size_of_folder(folder_ / "cache"), cap * 11 / 10);
}

TEST_F(DiskCacheContentsTest, NumberOfEntriesIsCappedToo) {
  DiskCache cache({.directory = folder_ / "cache", .max_entries = 50, .file_system = &hasty_});
  for (int i = 0; i < 300; ++i) {
    const Key key = key_of(std::to_string(i));
    cache.store(key, entry_of(key));
  }
  EXPECT_LE(cache.list().size(), 50u);
  EXPECT_GE(cache.list().size(), 40u);
}

TEST_F(DiskCacheContentsTest, AbandonedTemporaryFilesGoAndFreshOnesStay) {
  DiskCache cache = open("cache");
  const std::vector<Key> keys = fill(cache, "cache", 1);
  const std::string place = fs::path(path_of(folder_ / "cache", keys[0])).parent_path();
  write_text(place + "/.tmp-" + std::string(32, 'a'), "half of an entry");
  set_age(place + "/.tmp-" + std::string(32, 'a'), 2 * 3600);
  write_text(place + "/.tmp-" + std::string(32, 'b'), "half of an entry");
  EXPECT_EQ(cache.list().size(), 1u);
  cache.prune(1 << 30);
  EXPECT_FALSE(fs::exists(place + "/.tmp-" + std::string(32, 'a')));
  EXPECT_TRUE(fs::exists(place + "/.tmp-" + std::string(32, 'b')));
}

}  // namespace
}  // namespace jit
