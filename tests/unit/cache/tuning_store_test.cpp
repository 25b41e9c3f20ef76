#include "cache/tuning_store.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <jit/error.h>

#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
namespace fs = std::filesystem;

const Key machine{{"gpu", "H200"}, {"sm_count", "132"}};
const Key other_machine{{"gpu", "H100"}, {"sm_count", "132"}};
const Key operation{{"head_dim", "128"}, {"bucket", "4096"}};
const Key other_operation{{"head_dim", "64"}, {"bucket", "4096"}};
const std::string record = "{\"tile_q\": 128, \"stages\": 2}\nline 2";

std::string path_of(const std::string& directory, const Key& environment, const Key& op) {
  return directory + "/tuning/v1/" + environment.digest().hex() + "/" + op.digest().hex() + ".txt";
}

class TuningStoreTest : public ::testing::Test {
 protected:
  FreshFolder folder_;
  Warnings warnings_;
  TuningStore store_{folder_ / "cache", nullptr, warnings_.observer()};
};

TEST_F(TuningStoreTest, FindsARecordUnderExactlyItsKeys) {
  EXPECT_FALSE(store_.load(machine, operation));
  store_.store(machine, operation, record);
  EXPECT_EQ(store_.load(machine, operation), record);
  EXPECT_FALSE(store_.load(other_machine, operation));
  EXPECT_FALSE(store_.load(machine, other_operation));
  EXPECT_FALSE(store_.load(operation, machine));
  EXPECT_EQ(TuningStore(folder_ / "cache").load(machine, operation), record);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(TuningStoreTest, LastWriteWins) {
  store_.store(machine, operation, "old");
  store_.store(machine, operation, record);
  EXPECT_EQ(store_.load(machine, operation), record);
}

TEST_F(TuningStoreTest, FilesCanBeReadByPeople) {
  store_.store(machine, operation, record);
  const std::string text = read_text(path_of(folder_ / "cache", machine, operation));
  EXPECT_NE(text.find("gpu 4\nH200\n"), std::string::npos);
  EXPECT_NE(text.find(record), std::string::npos);
}

TEST_F(TuningStoreTest, EveryDamageIsAMissWithOneWarning) {
  store_.store(machine, operation, record);
  const std::string path = path_of(folder_ / "cache", machine, operation);
  const std::string whole = read_text(path);
  std::size_t warned = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    for (const std::string& text : {changed, whole.substr(0, i)}) {
      write_text(path, text);
      ASSERT_FALSE(store_.load(machine, operation)) << i;
      ASSERT_EQ(warnings_.count(), ++warned);
    }
  }
  store_.store(machine, operation, record);
  EXPECT_EQ(store_.load(machine, operation), record);
}

TEST_F(TuningStoreTest, RecordUnderAForeignNameIsAMiss) {
  store_.store(machine, operation, record);
  fs::copy_file(path_of(folder_ / "cache", machine, operation),
                path_of(folder_ / "cache", machine, other_operation));
  EXPECT_FALSE(store_.load(machine, other_operation));
}

TEST_F(TuningStoreTest, ListsAndClears) {
  store_.store(machine, operation, record);
  store_.store(machine, other_operation, "second");
  store_.store(other_machine, operation, "third");
  const std::vector<TuningRecord> records = store_.list();
  ASSERT_EQ(records.size(), 3u);
  const TuningRecord expected{machine.text(), operation.text(), record,
                              path_of(folder_ / "cache", machine, operation)};
  EXPECT_NE(std::find(records.begin(), records.end(), expected), records.end());
  EXPECT_EQ(store_.clear(), 3u);
  EXPECT_TRUE(store_.list().empty());
  EXPECT_FALSE(store_.load(machine, operation));
}

TEST_F(TuningStoreTest, WhatCannotBeRemovedIsAnError) {
  store_.store(machine, operation, record);
  ReadOnlyFileSystem read_only;
  TuningStore store(folder_ / "cache", &read_only);
  try {
    store.clear();
    ADD_FAILURE() << "a read-only file system lost a record";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    EXPECT_EQ(error.message(), (folder_ / "cache") +
                                   ": some tuning records cannot be removed: unlink: Read-only file "
                                   "system; 0 others were removed");
  }
  EXPECT_EQ(store_.list().size(), 1u);
}

TEST_F(TuningStoreTest, ExportsAndImports) {
  store_.store(machine, operation, record);
  store_.store(machine, other_operation, "second");
  const std::string text = store_.export_records();
  TuningStore other(folder_ / "other");
  const ImportReport report = other.import_records(text);
  EXPECT_EQ(report.imported, 2u);
  EXPECT_TRUE(report.damaged.empty());
  EXPECT_EQ(other.load(machine, operation), record);
  EXPECT_EQ(other.export_records(), text);
}

TEST_F(TuningStoreTest, ImportSkipsWhatIsDamaged) {
  store_.store(machine, operation, record);
  store_.store(machine, other_operation, "second");
  std::string text = store_.export_records();
  text.replace(text.find("tile_q"), 6, "tile_k");
  TuningStore other(folder_ / "other");
  const ImportReport report = other.import_records(text);
  EXPECT_EQ(report.imported, 1u);
  EXPECT_EQ(report.damaged.size(), 1u);
  EXPECT_FALSE(other.load(machine, operation));
  EXPECT_EQ(other.load(machine, other_operation), "second");
  EXPECT_EQ(other.import_records("garbage").damaged.size(), 1u);
  EXPECT_EQ(other.import_records("").imported, 0u);
}

TEST_F(TuningStoreTest, WorksWithoutAFolder) {
  TuningStore nowhere("", nullptr, warnings_.observer());
  nowhere.store(machine, operation, record);
  EXPECT_FALSE(nowhere.load(machine, operation));
  EXPECT_TRUE(nowhere.list().empty());
  EXPECT_EQ(nowhere.clear(), 0u);
  EXPECT_EQ(warnings_.count(), 0u);
  EXPECT_THROW(nowhere.import_records(""), Error);
}

TEST_F(TuningStoreTest, RefusesHostileFolders) {
  fs::create_directory(folder_ / "shared");
  ASSERT_EQ(chmod((folder_ / "shared").c_str(), 0777), 0);
  TuningStore store(folder_ / "shared", nullptr, warnings_.observer());
  EXPECT_FALSE(store.writable());
  store.store(machine, operation, record);
  EXPECT_TRUE(fs::is_empty(folder_ / "shared"));
  EXPECT_EQ(warnings_.count(), 1u);
}

TEST_F(TuningStoreTest, AbandonedTemporaryFilesGoWithTheNextStore) {
  store_.store(machine, operation, record);
  const std::string place = fs::path(path_of(folder_ / "cache", machine, operation)).parent_path();
  write_text(place + "/.tmp-" + std::string(32, 'a'), "half of a record");
  set_age(place + "/.tmp-" + std::string(32, 'a'), 2 * 3600);
  write_text(place + "/.tmp-" + std::string(32, 'b'), "half of a record");
  EXPECT_EQ(store_.list().size(), 1u);
  store_.store(machine, other_operation, record);
  EXPECT_FALSE(fs::exists(place + "/.tmp-" + std::string(32, 'a')));
  EXPECT_TRUE(fs::exists(place + "/.tmp-" + std::string(32, 'b')));
}

TEST_F(TuningStoreTest, ThreadsMayReadAndWriteTogether) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        store_.store(machine, operation, record);
        if (store_.load(machine, operation) != record) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(warnings_.count(), 0u);
}

}  // namespace
}  // namespace jit
