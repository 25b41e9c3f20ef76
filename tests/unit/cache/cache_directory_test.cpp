#include "cache/cache_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "cache_testing.h"

namespace jit {
namespace {

using testing::FreshFolder;
namespace fs = std::filesystem;

CacheDirectory choose(const std::map<std::string, std::string>& variables,
                      const std::string& explicit_path = "", const std::string& home = "") {
  const Environment environment = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  return choose_cache_directory(explicit_path, environment, [&] { return home; });
}

TEST(ChooseCacheDirectory, AsksInOrder) {
  std::map<std::string, std::string> variables = {
      {"JIT_ATTENTION_CACHE_DIR", "/own"}, {"XDG_CACHE_HOME", "/xdg"}, {"HOME", "/home/me"}};
  EXPECT_EQ(choose(variables, "/given", "/pw").path, "/given");
  EXPECT_EQ(choose(variables, "", "/pw").path, "/own");
  variables.erase("JIT_ATTENTION_CACHE_DIR");
  EXPECT_EQ(choose(variables, "", "/pw").path, "/xdg/jit-attention");
  variables.erase("XDG_CACHE_HOME");
  EXPECT_EQ(choose(variables, "", "/pw").path, "/home/me/.cache/jit-attention");
  variables.erase("HOME");
  EXPECT_EQ(choose(variables, "", "/pw").path, "/pw/.cache/jit-attention");
}

TEST(ChooseCacheDirectory, EmptyVariablesCountAsAbsent) {
  const CacheDirectory chosen =
      choose({{"JIT_ATTENTION_CACHE_DIR", ""}, {"XDG_CACHE_HOME", ""}, {"HOME", ""}}, "", "/pw");
  EXPECT_EQ(chosen.path, "/pw/.cache/jit-attention");
}

TEST(ChooseCacheDirectory, UnusableHomesArePassedOver) {
  for (const char* home : {"", "/", "//", "/.", ".", "relative", "~"}) {
    EXPECT_EQ(choose({{"HOME", home}}, "", "/pw").path, "/pw/.cache/jit-attention") << home;
    const CacheDirectory nowhere = choose({{"HOME", home}}, "", home);
    EXPECT_EQ(nowhere.path, "") << home;
    EXPECT_NE(nowhere.reason, "") << home;
  }
  EXPECT_EQ(choose({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/home/me"}}).path,
            "/home/me/.cache/jit-attention");
}

TEST(ChooseCacheDirectory, RelativePathsGivenByThePersonMeanMemoryOnly) {
  for (const CacheDirectory& chosen :
       {choose({{"HOME", "/home/me"}}, "cache"),
        choose({{"JIT_ATTENTION_CACHE_DIR", "./cache"}, {"HOME", "/home/me"}})}) {
    EXPECT_EQ(chosen.path, "");
    EXPECT_NE(chosen.reason.find("absolute"), std::string::npos) << chosen.reason;
  }
}

TEST(ChooseCacheDirectory, WorksWithoutEnvironment) {
  EXPECT_EQ(choose_cache_directory("", {}, [] { return std::string("/pw"); }).path,
            "/pw/.cache/jit-attention");
  EXPECT_EQ(choose_cache_directory("", {}, [] { return std::string(); }).path, "");
}

TEST(OpenDirectory, CreatesForTheUserAlone) {
  const FreshFolder folder;
  const OpenedDirectory opened = open_or_create_directory(real_file_system(), folder / "a/b/c");
  ASSERT_EQ(opened.refusal, "");
  for (const char* name : {"a", "a/b", "a/b/c"}) {
    struct stat status;
    ASSERT_EQ(stat((folder / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u) << name;
  }
}

TEST(OpenDirectory, RefusesWhatOthersMayWrite) {
  const FreshFolder folder;
  const std::string path = folder / "cache";
  fs::create_directory(path);
  for (const mode_t mode : {0770, 0720, 0702, 0777, 01777}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const OpenedDirectory opened = open_or_create_directory(real_file_system(), path);
    EXPECT_FALSE(opened.file) << mode;
    EXPECT_NE(opened.refusal.find(path), std::string::npos);
  }
  for (const mode_t mode : {0700, 0755, 0500}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_EQ(open_or_create_directory(real_file_system(), path).refusal, "") << mode;
  }
}

TEST(OpenDirectory, RefusesSymbolicLinksAlsoWithSlash) {
  const FreshFolder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink(folder / "real", folder / "link");
  EXPECT_NE(open_or_create_directory(real_file_system(), folder / "link").refusal, "");
  EXPECT_NE(open_or_create_directory(real_file_system(), folder / "link/").refusal, "");
  EXPECT_EQ(open_or_create_directory(real_file_system(), folder / "real/").refusal, "");
}

TEST(OpenDirectory, RefusesForeignOwnersAndFiles) {
  const FreshFolder folder;
  testing::ForeignFileSystem foreign;
  EXPECT_NE(open_or_create_directory(foreign, folder.path()).refusal, "");
  EXPECT_NE(open_trusted_directory(foreign, folder.path(), Ownership::user_or_root).refusal, "");
  testing::write_text(folder / "file", "x");
  EXPECT_NE(open_or_create_directory(real_file_system(), folder / "file").refusal, "");
}

TEST(DistrustedLocation, LooksAtTheFoldersAbove) {
  const FreshFolder folder;
  fs::create_directories(folder / "open/inner");
  EXPECT_EQ(distrusted_location(folder / "open/inner/cache"), "");
  ASSERT_EQ(chmod((folder / "open").c_str(), 0777), 0);
  EXPECT_NE(distrusted_location(folder / "open/inner/cache"), "");
  EXPECT_NE(distrusted_location(folder / "open/cache"), "");
  EXPECT_EQ(distrusted_location(folder / "open"),
            "");  // its own mode is the business of open_trusted_directory
  ASSERT_EQ(chmod((folder / "open").c_str(), 01777), 0);
  EXPECT_EQ(distrusted_location(folder / "open/inner/cache"), "");
}

TEST(DistrustedLocation, LooksAlongSymbolicLinks) {
  const FreshFolder folder;
  fs::create_directories(folder / "open/inner");
  ASSERT_EQ(chmod((folder / "open").c_str(), 0777), 0);
  fs::create_directory_symlink(folder / "open/inner", folder / "link");
  EXPECT_NE(distrusted_location(folder / "link/cache"), "");
}

TEST(DistrustedLocation, RefusesRelativePaths) {
  EXPECT_NE(distrusted_location(""), "");
  EXPECT_NE(distrusted_location("cache"), "");
  EXPECT_NE(distrusted_location("./cache"), "");
}

}  // namespace
}  // namespace jit
