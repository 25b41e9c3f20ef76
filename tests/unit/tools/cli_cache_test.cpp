// jit-attention cache, on kernels that were put there by hand.
#include <sys/stat.h>

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/disk_cache.h"
#include "cache/tuning_store.h"
#include "tests/support/cache_entries.h"
#include "tests/support/cli_testing.h"
#include "tests/support/process_limits.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class CliCache : public ::testing::Test {
 protected:
  void SetUp() override {
    DiskCache disk({.directory = tool_.cache()});
    for (const char* name : {"one", "two", "three"}) disk.store(key_of(name), entry_of(key_of(name)));
    TuningStore(tool_.cache())
        .store(Key{{"gpu", "G"}}, Key{{"head_dim", "128"}}, R"({"config":"tile_q=64"})");
  }

  void damage(const std::string& name) {
    const std::string path = path_of(tool_.cache(), key_of(name));
    std::string text = read_text(path);
    text[text.size() / 2] ^= 1;
    write_text(path, text);
  }

  ToolResult cache(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    return tool_.run(arguments);
  }
  std::size_t kernels() const { return cache({"list", "--json"}).json()["kernels"].size(); }

  Tool tool_;
};

TEST_F(CliCache, ListsKernelsAndRecords) {
  const ToolResult text = cache({"list"});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr(key_of("one").digest().hex()));
  EXPECT_THAT(text.out, HasSubstr("3 kernels"));
  EXPECT_THAT(text.out, HasSubstr("1 tuning record\n"));
  const nlohmann::json list = cache({"list", "--json"}).json();
  EXPECT_EQ(list["directory"], tool_.cache());
  ASSERT_EQ(list["kernels"].size(), 3u);
  EXPECT_EQ(list["kernels"][0]["kernel"]["registers"], 168);
  ASSERT_EQ(list["tuning"].size(), 1u);
  EXPECT_EQ(list["tuning"][0]["operation"]["head_dim"], "128");
  EXPECT_EQ(list["tuning"][0]["record"]["config"], "tile_q=64");
}

TEST_F(CliCache, ListsWhateverMetadataSay) {
  DiskCache disk({.directory = tool_.cache()});
  for (const std::string metadata : {"", "[]", "{\"arch\":5}", "\xff\xfe", "\"text\""}) {
    const Key key = key_of("odd" + metadata);
    disk.store(key, {.key_text = {}, .metadata = metadata, .code = bytes_of(10, 1)});
    EXPECT_EQ(cache({"show", key.digest().hex()}).status, 0) << metadata;
    EXPECT_TRUE(cache({"show", key.digest().hex(), "--json"}).json().is_object()) << metadata;
  }
  EXPECT_EQ(cache({"list"}).status, 0);
  EXPECT_EQ(kernels(), 8u);
}

TEST_F(CliCache, ShowsOneByThePrefixOfItsKey) {
  const std::string key = key_of("two").digest().hex();
  const ToolResult text = cache({"show", key.substr(0, 12)});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("source: two"));
  const nlohmann::json shown = cache({"show", key, "--json"}).json();
  EXPECT_EQ(shown["key"], key);
  EXPECT_EQ(shown["inputs"]["arch"], "sm_90a");
  EXPECT_EQ(shown["code_bytes"], 300);

  const bool has_0 = key.starts_with("00000000");
  ASSERT_FALSE(has_0);
  expect_bad_input(cache({"show", "00000000"}), "00000000");
  expect_bad_input(cache({"show", "xyz"}), "'xyz'");
  expect_bad_input(cache({"show", ""}), "hexadecimal");
}

TEST_F(CliCache, VerifyFindsTheDamagedOne) {
  EXPECT_EQ(cache({"verify"}).status, 0);
  damage("two");
  const ToolResult text = cache({"verify"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("damaged: " + path_of(tool_.cache(), key_of("two"))));
  const ToolResult json = cache({"verify", "--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(json.json()["damaged"], nlohmann::json::array({path_of(tool_.cache(), key_of("two"))}));
  EXPECT_THAT(cache({"list"}).out, HasSubstr("damaged"));
}

TEST_F(CliCache, VerifyTellsTheUnreadableFromTheDamaged) {
  const std::string path = path_of(tool_.cache(), key_of("two"));
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  without_privileges([&] {
    const ToolResult text = cache({"verify"});
    EXPECT_EQ(text.status, 1);
    EXPECT_EQ(text.out,
              "unreadable: " + path + " (open: Permission denied)\n3 kernels, 0 damaged, 1 unreadable\n");
    const nlohmann::json json = cache({"verify", "--json"}).json();
    EXPECT_EQ(json.value("damaged", nlohmann::json()), nlohmann::json::array());
    EXPECT_EQ(json.value("unreadable", nlohmann::json()),
              nlohmann::json::array({{{"path", path}, {"why", "open: Permission denied"}}}));
    EXPECT_THAT(cache({"list"}).out, HasSubstr("unreadable: open: Permission denied"));
    EXPECT_EQ(cache({"prune", "--max-bytes", "1000000", "--json"}).json()["removed"], 0);
  });
}

TEST_F(CliCache, PrunesAndClears) {
  damage("one");
  const ToolResult pruned = cache({"prune", "--max-bytes", "4096", "--json"});
  EXPECT_EQ(pruned.status, 0);
  EXPECT_EQ(pruned.json()["removed"], 2);
  EXPECT_EQ(kernels(), 1u);
  const nlohmann::json cleared = cache({"clear", "--json"}).json();
  EXPECT_EQ(cleared["removed"], 1);
  EXPECT_EQ(cleared["removed_tuning"], 1);
  EXPECT_EQ(kernels(), 0u);
}

TEST_F(CliCache, WhatCannotBeRemovedIsAFailure) {
  const std::string read_only =
      fmt::format("mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}'", tool_.cache());
  damage("one");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"clear"}, {"clear", "--json"}, {"prune", "--max-bytes", "1000000"}}) {
    std::vector<std::string> command = {"cache"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ToolResult result = tool_.run_mounted(read_only, command);
    if (result.status == status_not_mounted) GTEST_SKIP() << "this process may not mount";
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err,
              "jit-attention: " + tool_.cache() +
                  ": some kernels cannot be removed: unlink: Read-only file system; 0 others were removed\n");
  }
  EXPECT_EQ(kernels(), 3u);
}

TEST_F(CliCache, AFullStandardOutputIsOneSentence) {
  DiskCache disk({.directory = tool_.cache()});
  for (int i = 0; i < 40; ++i) {  // more than a buffer of lines
    const Key key = key_of(fmt::format("kernel {}", i));
    disk.store(key, entry_of(key));
  }
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"cache", "list"}, {"cache", "list", "--json"}, {"cache", "--help"}}) {
    const ToolResult result = tool_.run_redirected(">/dev/full", arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, "jit-attention: standard output cannot be written\n");
  }
}

TEST_F(CliCache, ExportsAndImports) {
  const std::string archive = tool_.folder / "archive";
  EXPECT_EQ(cache({"export", archive, "--json"}).json()["exported"], 3);
  EXPECT_EQ(cache({"clear"}).status, 0);
  EXPECT_EQ(cache({"import", archive, "--json"}).json()["imported"], 3);
  EXPECT_EQ(kernels(), 3u);
  EXPECT_EQ(cache({"verify"}).status, 0);
}

TEST_F(CliCache, ExportsIntoPipesAndBehindLinks) {
  const std::string archive = tool_.folder / "archive", pipe = tool_.folder / "pipe",
                    link = tool_.folder / "link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  const ToolResult result = cache({"export", pipe});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string arrived = read_to_end(reader);
  close(reader);
  EXPECT_GT(arrived.size(), 1000u);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::create_symlink("archive", link);
  for (int i = 0; i < 2; ++i) {  // a link to no file yet, and to one
    ASSERT_EQ(cache({"export", link}).status, 0);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(read_text(archive), arrived);
  }
}

TEST_F(CliCache, ExportsToStandardOutput) {
  const std::string archive = tool_.folder / "archive";
  ASSERT_EQ(cache({"export", archive}).status, 0);
  const ToolResult result = cache({"export", "/dev/stdout"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with(read_text(archive)));
}

TEST_F(CliCache, AFileThatMayNotBeSoLargeIsAnErrorAndLeavesTheOldOne) {
  const std::string archive = tool_.folder / "archive";
  write_text(archive, "old");
  const FileSizeLimit limit(200);
  const ToolResult result = cache({"export", archive});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "jit-attention: " + archive + " cannot be written: write: File too large\n");
  EXPECT_EQ(read_text(archive), "old");
}

TEST_F(CliCache, ImportSkipsWhatIsDamaged) {
  const std::string archive = tool_.folder / "archive";
  ASSERT_EQ(cache({"export", archive}).status, 0);
  std::string text = read_text(archive);
  text[100] ^= 1;
  write_text(archive, text);
  ASSERT_EQ(cache({"clear"}).status, 0);
  const ToolResult result = cache({"import", archive});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("offset 0"));
  EXPECT_EQ(kernels(), 2u);
  write_text(archive, "no archive");
  expect_bad_input(cache({"import", archive}), "holds no kernel");
  expect_bad_input(cache({"import", "/nonexistent"}), "/nonexistent");
}

TEST_F(CliCache, WithoutAFolderThereIsNothingToChange) {
  tool_.environment = {"JIT_ATTENTION_NO_DISK_CACHE=1"};
  EXPECT_THAT(cache({"list"}).out, HasSubstr("in memory only"));
  const ToolResult result = cache({"clear"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("switched off"));
}

}  // namespace
}  // namespace jit::testing
