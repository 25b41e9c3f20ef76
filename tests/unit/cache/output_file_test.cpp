#include <jit/output_file.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/error.h>

#include "cache_testing.h"

namespace jit {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

std::span<const std::byte> bytes_of_text(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string refusal(const std::string& path) {
  try {
    const OutputFile file(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    return error.message();
  }
  return "";
}

mode_t permissions(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

class OutputFileTest : public ::testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(folder_.path())) names.push_back(item.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  FreshFolder folder_;
};

TEST_F(OutputFileTest, MakesAFileOfAllParts) {
  const OutputFile file(folder_ / "new");
  EXPECT_TRUE(file.replaces());
  EXPECT_THAT(names(), IsEmpty());  // trying leaves nothing
  file.write({bytes_of_text("one, "), bytes_of_text("two")});
  EXPECT_EQ(read_text(folder_ / "new"), "one, two");
  EXPECT_THAT(names(), ElementsAre("new"));
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(permissions(folder_ / "new"), 0666 & ~mask);
}

TEST_F(OutputFileTest, ReplacesAFileAndKeepsItsPermissions) {
  for (const mode_t mode : {0600, 0666}) {
    write_text(folder_ / "old", "a longer text");
    ASSERT_EQ(chmod((folder_ / "old").c_str(), mode), 0);
    const OutputFile file(folder_ / "old");
    EXPECT_EQ(read_text(folder_ / "old"), "a longer text");
    file.write({bytes_of_text("new")});
    EXPECT_EQ(read_text(folder_ / "old"), "new");
    EXPECT_EQ(permissions(folder_ / "old"), mode);
  }
}

TEST_F(OutputFileTest, FollowsLinksAlsoToWhereNothingIs) {
  fs::create_directory(folder_ / "inner");
  for (const char* there : {"", "old"}) {
    fs::create_symlink("inner/file", folder_ / "first");
    fs::create_symlink("first", folder_ / "second");
    if (*there != 0) write_text(folder_ / "inner/file", there);
    OutputFile(folder_ / "second").write({bytes_of_text("new")});
    EXPECT_EQ(read_text(folder_ / "inner/file"), "new");
    EXPECT_TRUE(fs::is_symlink(folder_ / "first") && fs::is_symlink(folder_ / "second"));
    for (const char* name : {"first", "second", "inner/file"}) fs::remove(folder_ / name);
  }
}

TEST_F(OutputFileTest, WritesIntoPipes) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const OutputFile file(pipe);
  EXPECT_FALSE(file.replaces());
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  file.write({bytes_of_text("through the "), bytes_of_text("pipe")});
  char arrived[32] = {};
  EXPECT_EQ(read(reader, arrived, sizeof arrived), 16);
  EXPECT_STREQ(arrived, "through the pipe");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(OutputFileTest, WritesIntoDevicesAndTellsWhenTheyAreFull) {
  const OutputFile nowhere("/dev/null");
  ASSERT_FALSE(nowhere.replaces());  // lest the test should replace it
  nowhere.write({bytes_of_text("gone")});
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const OutputFile full("/dev/full");
  ASSERT_FALSE(full.replaces());
  try {
    full.write({bytes_of_text("text")});
    FAIL() << "a full device took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "/dev/full cannot be written: write: No space left on device");
  }
}

// /dev/stdout, when that is a file: what comes before and behind stays.
TEST_F(OutputFileTest, WritesOnWhereAnOpenFileStands) {
  const int file = open((folder_ / "file").c_str(), O_WRONLY | O_CREAT, 0600);
  fs::create_symlink("/proc/self/fd/" + std::to_string(file), folder_ / "link");
  ASSERT_EQ(write(file, "before, ", 8), 8);
  const OutputFile output(folder_ / "link");
  EXPECT_FALSE(output.replaces());
  output.write({bytes_of_text("new")});
  ASSERT_EQ(write(file, ", behind", 8), 8);
  EXPECT_EQ(read_text(folder_ / "file"), "before, new, behind");
  close(file);
}

TEST_F(OutputFileTest, RefusesWhatCannotBeWritten) {
  EXPECT_THAT(refusal(""), HasSubstr("a file name is needed"));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr(folder_.path() + " cannot be written: it is a folder"));
  EXPECT_THAT(refusal(folder_ / "missing/"), HasSubstr("it is a folder"));
  EXPECT_THAT(refusal(folder_ / "missing/file"), HasSubstr("missing: No such file or directory"));
  EXPECT_THAT(refusal("/proc/file"), HasSubstr("/proc/file cannot be written: open: "));
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_THAT(refusal(folder_ / "loop"), HasSubstr("Too many levels of symbolic links"));
  fs::create_symlink("missing/file", folder_ / "dangling");
  EXPECT_THAT(refusal(folder_ / "dangling"), HasSubstr("dangling cannot be written: folder "));
  EXPECT_THAT(names(), ElementsAre("dangling", "loop"));
}

// The file system of a folder that may lack files without a name, and of which one kind of call fails.
struct FailingFileSystem : FileSystem {
  bool has_nameless_files = true;
  std::string failing;

  bool is(const char* name) const { return failing == name && (errno = ENOSPC) != 0; }
  int openat(int directory, const char* path, int flags, mode_t mode) override {
    if (!has_nameless_files && (flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
    return FileSystem::openat(directory, path, flags, mode);
  }
  ssize_t write(int file, const void* bytes, std::size_t size) override {
    return is("write") ? -1 : FileSystem::write(file, bytes, std::min<std::size_t>(size, 3));
  }
  int fsync(int file) override { return is("fsync") ? -1 : FileSystem::fsync(file); }
  int renameat(int from_directory, const char* from, int to_directory, const char* to) override {
    return is("rename") ? -1 : FileSystem::renameat(from_directory, from, to_directory, to);
  }
};

TEST_F(OutputFileTest, AFailureLeavesWhatWasThere) {
  write_text(folder_ / "file", "old");
  for (const bool has_nameless_files : {true, false}) {
    for (const char* call : {"write", "fsync", "rename"}) {
      FailingFileSystem failing;
      failing.has_nameless_files = has_nameless_files;
      failing.failing = call;
      try {
        OutputFile(folder_ / "file", &failing).write({bytes_of_text("a new text")});
        ADD_FAILURE() << call << " did not fail";
      } catch (const Error& error) {
        EXPECT_EQ(error.message(),
                  (folder_ / "file") + " cannot be written: " + call + ": No space left on device");
      }
      EXPECT_EQ(read_text(folder_ / "file"), "old");
      EXPECT_THAT(names(), ElementsAre("file"));
    }
  }
}

TEST_F(OutputFileTest, NeedsNoFilesWithoutAName) {
  FailingFileSystem plain;
  plain.has_nameless_files = false;
  OutputFile(folder_ / "file", &plain).write({bytes_of_text("a new text")});
  EXPECT_EQ(read_text(folder_ / "file"), "a new text");
  EXPECT_THAT(names(), ElementsAre("file"));
}

// No moment of a new file at which a process that is killed would leave another name.
TEST_F(OutputFileTest, ANewFileHasNoNameButItsOwn) {
  const int probe = open(folder_.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0) GTEST_SKIP() << "this file system has no files without a name";
  close(probe);
  struct NoOtherNames : FileSystem {
    int openat(int directory, const char* path, int flags, mode_t mode) override {
      EXPECT_EQ(flags & O_CREAT, 0);
      return FileSystem::openat(directory, path, flags, mode);
    }
    int renameat(int, const char* from, int, const char* to) override {
      ADD_FAILURE() << from << " becomes " << to;
      return -1;
    }
  } files;
  OutputFile(folder_ / "new", &files).write({bytes_of_text("text")});
  EXPECT_THAT(names(), ElementsAre("new"));
}

TEST_F(OutputFileTest, WhatKilledWritersHaveLeftGoes) {
  const std::string left = ".tmp-0123456789abcdef0123456789abcdef", fresh = ".tmp-" + std::string(32, 'f');
  for (const std::string& name : {left, fresh, std::string(".tmp-notes"), std::string("file")})
    write_text(folder_ / name, "old");
  for (const std::string& name : {left, std::string(".tmp-notes")}) set_age(folder_ / name, 2 * 3600);
  OutputFile(folder_ / "file").write({bytes_of_text("new")});
  EXPECT_THAT(names(), ElementsAre(fresh, ".tmp-notes", "file"));
  write_text(folder_ / left, "old");
  set_age(folder_ / left, 2 * 3600);
  OutputFile(folder_ / "new").write({bytes_of_text("new")});
  EXPECT_THAT(names(), ElementsAre(fresh, ".tmp-notes", "file", "new"))
      << "behind a file that was not there, too";
}

TEST_F(OutputFileTest, SeveralAreWrittenTogetherOrNotAtAll) {
  write_text(folder_ / "a", "old");
  std::vector<std::pair<OutputFile, std::span<const std::byte>>> outputs;
  for (const char* name : {"a", "b", "c"})
    outputs.emplace_back(OutputFile(folder_ / name), bytes_of_text("new"));
  FailingFileSystem failing;
  failing.failing = "write";
  outputs.emplace_back(OutputFile(folder_ / "d", &failing), bytes_of_text("new"));
  EXPECT_THROW(write_together(outputs), Error);
  EXPECT_EQ(read_text(folder_ / "a"), "old");
  EXPECT_THAT(names(), ElementsAre("a"));
  outputs.pop_back();
  write_together(outputs);
  EXPECT_EQ(read_text(folder_ / "a"), "new");
  EXPECT_THAT(names(), ElementsAre("a", "b", "c"));
}

TEST_F(OutputFileTest, NothingStaysOfAKilledWriter) {
  const int probe = open(folder_.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0) GTEST_SKIP() << "this file system has no files without a name";
  close(probe);
  write_text(folder_ / "file", "old");
  const pid_t child = fork();
  if (child == 0) {
    struct : FileSystem {
      int fsync(int) override { return raise(SIGKILL); }
    } deadly;
    OutputFile(folder_ / "file", &deadly).write({bytes_of_text("new")});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_text(folder_ / "file"), "old");
  EXPECT_THAT(names(), ElementsAre("file"));
}

TEST_F(OutputFileTest, TellsPathsThatLeadToOneFile) {
  fs::create_directory(folder_ / "inner");
  fs::create_directory_symlink("inner", folder_ / "other");
  fs::create_symlink("inner/new", folder_ / "dangling");
  EXPECT_TRUE(is_same_file(folder_ / "new", folder_ / "./inner/../new"));
  EXPECT_TRUE(is_same_file(folder_ / "inner/new", folder_ / "other/new"));
  EXPECT_TRUE(is_same_file(folder_ / "dangling", folder_ / "other/new"));
  EXPECT_FALSE(is_same_file(folder_ / "new", folder_ / "inner/new"));
  write_text(folder_ / "file", "");
  fs::create_hard_link(folder_ / "file", folder_ / "twin");
  EXPECT_TRUE(is_same_file(folder_ / "file", folder_ / "twin"));
  EXPECT_FALSE(is_same_file(folder_ / "file", folder_ / "new"));
}

}  // namespace
}  // namespace jit
