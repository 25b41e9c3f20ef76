#include "generator/program/templates.h"

#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"

namespace jit {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::FreshFolder;
using ::testing::HasSubstr;
using testing::read_text;
using testing::write_text;

const fs::path root = JIT_ATTENTION_SOURCE_DIR;
const fs::path source = root / "templates";

/// Files that host and kernels share are public headers, which no folder of templates replaces.
fs::path path_of(const SourceFile& file, const fs::path& folder = source) {
  return file.name.ends_with(".h") ? root / "include" / file.name : folder / file.name;
}

void copy_templates(const std::string& folder) {
  fs::copy(source, folder, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

// The anchors of tests/mutation are none of a kernel's source.
std::string without_anchors(const std::string& text) {
  return std::regex_replace(text, std::regex(" *// mutate: [A-Za-z0-9]+"), "");
}

TEST(EmbeddedTemplates, EqualTheFilesButForAnchors) {
  std::set<std::string> on_disk = {"jit/options.h"}, embedded;
  for (const auto& item : fs::recursive_directory_iterator(source)) {
    if (item.path().extension() == ".cuh") on_disk.insert(fs::relative(item.path(), source).generic_string());
  }
  for (const SourceFile& file : embedded_templates()) {
    EXPECT_TRUE(embedded.insert(file.name).second) << file.name << " twice";
    EXPECT_EQ(file.text, without_anchors(read_text(path_of(file).string()))) << file.name;
    EXPECT_EQ(file.text.find("mutate: "), std::string::npos) << file.name;
    EXPECT_GT(file.text.size(), 100u);
  }
  EXPECT_EQ(embedded, on_disk);
}

// One template includes another by the path from templates/, with quotes, and nothing else.
TEST(EmbeddedTemplates, IncludeOneAnotherOnly) {
  std::set<std::string> names;
  for (const SourceFile& file : embedded_templates()) names.insert(file.name);
  const std::regex include("#\\s*include\\s*(\\S+)");
  int count = 0;
  for (const SourceFile& file : embedded_templates()) {
    for (std::sregex_iterator it(file.text.begin(), file.text.end(), include), end; it != end;
         ++it, ++count) {
      const std::string target = (*it)[1];
      ASSERT_TRUE(target.size() > 2 && target.front() == '"' && target.back() == '"')
          << file.name << ": " << target;
      EXPECT_TRUE(names.count(target.substr(1, target.size() - 2))) << file.name << ": " << target;
    }
  }
  EXPECT_GT(count, 20);
}

TEST(LoadTemplates, WithoutFolderGivesTheEmbeddedOnes) {
  EXPECT_EQ(load_templates("").files.size(), embedded_templates().size());
}

TEST(LoadTemplates, AFolderReplacesThem) {
  const FreshFolder folder;
  copy_templates(folder.path());
  write_text(folder / "problem/masks.cuh", "// changed\n");
  write_text(folder / "mine.cuh", "// mutate: Above\nint x;  // added  // mutate: Mine\n  // mutate: Last");
  write_text(folder / "notes.txt", "ignored");
  const std::vector<SourceFile> files = load_templates(folder.path()).files;
  EXPECT_EQ(files.size(), embedded_templates().size() + 1);
  for (const SourceFile& file : files) {
    EXPECT_EQ(file.text, without_anchors(read_text(path_of(file, folder.path()).string()))) << file.name;
    if (file.name == "mine.cuh") {
      EXPECT_EQ(file.text, "\nint x;  // added\n");
    }
    EXPECT_NE(file.name, "notes.txt");
  }
}

TEST(LoadTemplates, NamesAFolderThatCannotBeRead) {
  const FreshFolder folder;
  const Error absent = error_of([&] { load_templates(folder / "absent"); });
  EXPECT_EQ(absent.code(), ErrorCode::io_error);
  EXPECT_THAT(absent.message(), HasSubstr("absent"));
  write_text(folder / "file", "");
  EXPECT_EQ(error_of([&] { load_templates(folder / "file"); }).code(), ErrorCode::io_error);
}

}  // namespace
}  // namespace jit
