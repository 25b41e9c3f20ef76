#include "runtime/nvrtc_library.h"

#include <elf.h>
#include <jit/error.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/build_id.h"

namespace jit {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// An ELF file that holds nothing but a build-id.
std::string elf_with_build_id(std::string_view id) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  header.e_phentsize = sizeof(Elf64_Phdr);
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = sizeof(Elf64_Nhdr) + 4 + id.size();
  const Elf64_Nhdr note{4, static_cast<Elf64_Word>(id.size()), NT_GNU_BUILD_ID};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
  bytes.append(reinterpret_cast<const char*>(&note), sizeof(note));
  bytes.append("GNU\0", 4);
  return bytes.append(id);
}

class NvrtcLibraryTest : public testing::Test {
 protected:
  NvrtcLibraryTest() {
    std::string pattern = testing::TempDir() + "/nvrtc-library-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~NvrtcLibraryTest() override { fs::remove_all(root_); }

  std::string write(const fs::path& name, const std::string& text) const {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  void add_nvrtc(const fs::path& folder, const std::string& major, const std::string& minor) const {
    write(folder / ("libnvrtc.so." + major), elf_with_build_id("\x01" + major));
    write(folder / ("libnvrtc-builtins.so." + major + "." + minor), elf_with_build_id("\x02" + minor));
  }
  NvrtcFolder folder(const fs::path& name, const std::string& reason = "test") const {
    return {root_ / name, reason};
  }

  fs::path root_;
};

std::string failure_of(std::span<const NvrtcFolder> folders) {
  try {
    return "found " + find_nvrtc(folders).path;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::nvrtc_unavailable);
    return error.message();
  }
}

TEST_F(NvrtcLibraryTest, TakesTheFirstFolderThatHasOne) {
  add_nvrtc("second", "13", "0");
  add_nvrtc("third", "13", "1");
  const std::vector<NvrtcFolder> folders = {folder("first", "a"), folder("second", "b"),
                                            folder("third", "c")};
  const NvrtcLocation location = find_nvrtc(folders);
  EXPECT_EQ(location.path, root_ / "second/libnvrtc.so.13");
  EXPECT_EQ(location.builtins_path, root_ / "second/libnvrtc-builtins.so.13.0");
  EXPECT_EQ(location.version, (NvrtcVersion{13, 0}));
  EXPECT_EQ(location.identity, "nvrtc 013133+0230");
  EXPECT_EQ(location.found_by, "b");
}

TEST_F(NvrtcLibraryTest, PrefersTheNewerMajorOfAFolder) {
  add_nvrtc("lib", "12", "9");
  add_nvrtc("lib", "13", "0");
  const std::vector<NvrtcFolder> folders = {folder("lib")};
  EXPECT_EQ(find_nvrtc(folders).version, (NvrtcVersion{13, 0}));
  fs::remove(root_ / "lib/libnvrtc.so.13");
  EXPECT_EQ(find_nvrtc(folders).version, (NvrtcVersion{12, 9}))
      << "the builtins of 13.0 belong to another library";
}

TEST_F(NvrtcLibraryTest, PassesOverALibraryWithoutItsBuiltins) {
  write("broken/libnvrtc.so.13", "x");
  write("broken/libnvrtc-builtins.so.12.9", "x");
  write("broken/libnvrtc-builtins.so.13.0.88", "x");
  const std::vector<NvrtcFolder> broken = {folder("broken")};
  EXPECT_THAT(failure_of(broken), HasSubstr("no libnvrtc-builtins.so.13.* beside it"));
  add_nvrtc("whole", "12", "8");
  const std::vector<NvrtcFolder> both = {folder("broken"), folder("whole")};
  EXPECT_EQ(find_nvrtc(both).version, (NvrtcVersion{12, 8}));
}

TEST_F(NvrtcLibraryTest, RefusesOldVersions) {
  add_nvrtc("old", "12", "7");
  const std::vector<NvrtcFolder> folders = {folder("old")};
  EXPECT_THAT(failure_of(folders), testing::AllOf(HasSubstr("is of CUDA 12.7"), HasSubstr("12.8 or later")));
}

TEST_F(NvrtcLibraryTest, SaysWhatItPassedOver) {
  write("cuda11/libnvrtc.so", elf_with_build_id("1"));
  write("cuda11/libnvrtc-builtins.so.11.8", elf_with_build_id("2"));
  write("broken/libnvrtc.so.12", "x");
  add_nvrtc("whole", "12", "9");
  const std::vector<NvrtcFolder> folders = {folder("cuda11"), folder("broken"), folder("whole")};
  const NvrtcLocation location = find_nvrtc(folders);
  EXPECT_EQ(location.version, (NvrtcVersion{12, 9}));
  EXPECT_THAT(location.passed_over,
              testing::ElementsAre((root_ / "cuda11/libnvrtc.so").string() + ": is of CUDA 11.8",
                                   HasSubstr("no libnvrtc-builtins.so.12.* beside it")));
}

TEST_F(NvrtcLibraryTest, PassesOverALibraryThatDoesNotOpen) {
  add_nvrtc("broken", "13", "0");
  add_nvrtc("whole", "12", "9");
  const std::vector<NvrtcFolder> folders = {folder("broken"), folder("whole")};
  const std::string broken = find_nvrtc(folders).path;
  const std::vector<UnopenedNvrtc> unopened = {{broken, "invalid ELF header"}};
  const NvrtcLocation location = find_nvrtc(folders, unopened);
  EXPECT_EQ(location.version, (NvrtcVersion{12, 9}));
  EXPECT_THAT(location.passed_over, testing::ElementsAre(broken + ": invalid ELF header"));
  EXPECT_THROW(find_nvrtc(broken, unopened), Error);
}

TEST_F(NvrtcLibraryTest, NamesEveryFolderThatWasTried) {
  const std::vector<NvrtcFolder> folders = {folder("nowhere", "CUDA_HOME"),
                                            folder("nor here", "LD_LIBRARY_PATH")};
  const std::string message = failure_of(folders);
  EXPECT_THAT(message, HasSubstr((root_ / "nowhere").string() + " (CUDA_HOME)"));
  EXPECT_THAT(message, HasSubstr((root_ / "nor here").string() + " (LD_LIBRARY_PATH)"));
  EXPECT_THAT(message, HasSubstr("JIT_ATTENTION_NVRTC"));
}

TEST_F(NvrtcLibraryTest, FollowsALinkToTheFolderOfTheBuiltins) {
  add_nvrtc("real", "13", "0");
  fs::create_directories(root_ / "links");
  fs::create_symlink(root_ / "real/libnvrtc.so.13", root_ / "links/libnvrtc.so");
  const std::vector<NvrtcFolder> folders = {folder("links")};
  EXPECT_EQ(find_nvrtc(folders).path, fs::canonical(root_ / "real/libnvrtc.so.13"));
  fs::remove(root_ / "real/libnvrtc.so.13");
  EXPECT_THAT(failure_of(folders), HasSubstr("no libnvrtc of CUDA"));
}

TEST_F(NvrtcLibraryTest, AnExplicitPathIsTheOnlyOneTried) {
  add_nvrtc("mine", "13", "0");
  EXPECT_EQ(find_nvrtc((root_ / "mine").string()).path, root_ / "mine/libnvrtc.so.13");
  EXPECT_EQ(find_nvrtc((root_ / "mine/libnvrtc.so.13").string()).found_by, "set explicitly");
  for (const char* name : {"absent/libnvrtc.so.13", "mine/libnvrtc-builtins.so.14.0", "."}) {
    EXPECT_THROW(find_nvrtc((root_ / name).string()), Error) << name;
  }
}

TEST_F(NvrtcLibraryTest, SearchesTheEnvironmentInOrder) {
  fs::create_directories(root_ / "venv/lib/python3.11/site-packages/nvidia/cu13/lib");
  fs::create_directories(root_ / "home/.local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib");
  const std::vector<std::pair<const char*, std::string>> variables = {
      {"CUDA_HOME", root_ / "toolkit"},
      {"LD_LIBRARY_PATH", "relative:" + (root_ / "producer").string()},
      {"VIRTUAL_ENV", root_ / "venv"},
      {"HOME", root_ / "home"}};
  std::vector<std::pair<const char*, std::string>> before;
  for (const auto& [name, value] : variables) {
    if (const char* old = std::getenv(name)) before.emplace_back(name, old);
    setenv(name, value.c_str(), 1);
  }
  std::vector<std::string> paths;
  for (const NvrtcFolder& folder : nvrtc_folders()) paths.push_back(folder.path);
  for (const auto& [name, value] : variables) unsetenv(name);
  for (const auto& [name, value] : before) setenv(name, value.c_str(), 1);

  const std::vector<std::string> expected = {
      root_ / "toolkit/lib64",
      root_ / "toolkit/lib",
      "/usr/local/cuda/lib64",
      root_ / "producer",
      "/usr/lib/x86_64-linux-gnu",
      root_ / "venv/lib/python3.11/site-packages/nvidia/cu13/lib",
      root_ / "home/.local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib"};
  auto position = paths.begin();
  for (const std::string& path : expected) {
    position = std::find(position, paths.end(), path);
    ASSERT_NE(position, paths.end()) << path;
  }
  EXPECT_THAT(paths, testing::Not(testing::Contains("relative")));
}

TEST_F(NvrtcLibraryTest, WhatIsNoLibraryIsRefusedWhenItIsOpened) {
  add_nvrtc("fake", "13", "0");
  const NvrtcLocation location = find_nvrtc((root_ / "fake").string());
  try {
    nvrtc(location);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::nvrtc_unavailable);
    EXPECT_THAT(error.message(), HasSubstr("cannot be opened"));
  }
}

TEST_F(NvrtcLibraryTest, BuildIdsOfDamagedFilesAreStillIdentities) {
  const std::string whole = elf_with_build_id("0123456789abcdefghij");
  EXPECT_EQ(build_id(write("whole", whole)), "303132333435363738396162636465666768696a");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string id = build_id(write("short", whole.substr(0, length)));
    EXPECT_TRUE(id.starts_with(std::to_string(length) + "-")) << id;
  }
  for (std::size_t position = 0; position < whole.size(); ++position) {
    std::string flipped = whole;
    flipped[position] = static_cast<char>(~flipped[position]);
    EXPECT_FALSE(build_id(write("flipped", flipped)).empty());
  }
  EXPECT_NE(build_id(write("a", "one text")), build_id(write("b", "two text")));
  EXPECT_THROW(build_id(root_ / "absent"), Error);
}

}  // namespace
}  // namespace jit
