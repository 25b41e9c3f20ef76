// Rules of the tree that no compiler checks.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

const fs::path root = JIT_ATTENTION_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct SourceLine {
  std::string file;  ///< from the root
  int number = 0;
  std::string text = {};

  friend std::ostream& operator<<(std::ostream& out, const SourceLine& line) {
    return out << line.file << ":" << line.number << ": " << line.text;
  }
};

/// Sources below a folder of the root, by path.
std::vector<fs::path> sources(const std::string& folder) {
  std::vector<fs::path> paths;
  for (const auto& item : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = item.path().extension();
    if (extension == ".cpp" || extension == ".h" || extension == ".cuh") paths.push_back(item.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Lines of the sources below the folders, comments and literals' contents taken out.
std::vector<SourceLine> code_lines(const std::vector<std::string>& folders) {
  std::vector<SourceLine> lines;
  for (const std::string& folder : folders) {
    for (const fs::path& path : sources(folder)) {
      std::istringstream text(read(path));
      SourceLine line{.file = fs::relative(path, root).generic_string()};
      while (std::getline(text, line.text)) {
        ++line.number;
        if (line.text.find("#") == std::string::npos)
          line.text = std::regex_replace(line.text, std::regex(R"("([^"\\]|\\.)*")"), "\"\"");
        line.text = line.text.substr(0, line.text.find("//"));
        lines.push_back(line);
      }
    }
  }
  return lines;
}

/// What the sources below a folder include: the text between the quotes or angle brackets, and which.
struct Include {
  SourceLine line;
  std::string target;
  bool quoted = false;
};

std::vector<Include> includes(const std::string& folder) {
  const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  for (const SourceLine& line : code_lines({folder})) {
    std::smatch match;
    if (std::regex_search(line.text, match, pattern)) found.push_back({line, match[2], match[1] == "\""});
  }
  return found;
}

/// The folder that a target lies in: that of a public header <jit/x.h> is the one that has it.
std::string folder_of(const std::string& target) {
  if (target.starts_with("jit/")) {
    for (const char* folder : {"generator", "runtime"}) {
      if (fs::exists(root / folder / target)) return folder;
    }
  }
  return target.substr(0, target.find('/'));
}

TEST(Layout, DependenciesPointOneWay) {
  ASSERT_GT(includes("generator").size(), 50u);
  for (const Include& include : includes("runtime")) {
    EXPECT_NE(folder_of(include.target), "generator") << include.line;
    EXPECT_NE(folder_of(include.target), "cache") << include.line;
    EXPECT_NE(folder_of(include.target), "templates") << include.line;
  }
  // The emulator is a library of its own, which only the driver made of it uses.
  ASSERT_GT(includes("runtime/emulator").size(), 50u);
  for (const Include& include : includes("runtime/emulator")) {
    if (include.quoted) {
      EXPECT_THAT(include.target, testing::StartsWith("runtime/emulator/")) << include.line;
    }
    EXPECT_FALSE(include.target.starts_with("jit/")) << include.line;
  }
  for (const Include& include : includes("runtime")) {
    if (!include.target.starts_with("runtime/emulator/")) continue;
    EXPECT_THAT(include.line.file, testing::AnyOf(testing::StartsWith("runtime/emulator/"),
                                                  testing::StartsWith("runtime/emulated_driver/")))
        << include.line;
  }
  for (const Include& include : includes("cache")) {
    EXPECT_NE(folder_of(include.target), "generator") << include.line;
    EXPECT_NE(folder_of(include.target), "templates") << include.line;
    if (folder_of(include.target) == "runtime") {
      EXPECT_THAT(include.target, testing::AnyOf("jit/error.h", "jit/observer.h")) << include.line;
    }
  }
  for (const Include& include : includes("generator"))
    EXPECT_THAT(folder_of(include.target), testing::Not(testing::AnyOf("tests", "tools", "bench")))
        << include.line;
}

TEST(Layout, TemplatesIncludeTemplatesOnly) {
  ASSERT_GT(includes("templates").size(), 20u);
  for (const Include& include : includes("templates")) {
    EXPECT_TRUE(include.quoted) << include.line;
    EXPECT_TRUE(fs::exists(root / "templates" / include.target)) << include.line;
  }
}

// A public header must not drag in what is not installed.
TEST(Layout, PublicHeadersIncludePublicHeadersOnly) {
  for (const char* folder : {"generator/jit", "runtime/jit"}) {
    for (const Include& include : includes(folder)) {
      if (include.line.file.ends_with("/dlpack.h") && include.target == "dlpack/dlpack.h") continue;
      const bool is_standard = include.target.find_first_of("./") == std::string::npos;
      const bool is_public = include.target.starts_with("jit/") && folder_of(include.target) != "jit";
      EXPECT_TRUE(!include.quoted && (is_standard || is_public)) << include.line;
    }
  }
}

TEST(Layout, EveryTemplateIsEmbedded) {
  const std::string list = read(root / "templates/CMakeLists.txt");
  for (const fs::path& path : sources("templates")) {
    const std::string name = fs::relative(path, root / "templates").generic_string();
    EXPECT_TRUE(std::regex_search(list, std::regex("\\n  " + name + "[)\\n]"))) << name;
  }
}

TEST(Layout, EverySourceIsBuilt) {
  const std::string emulator = "runtime/emulator";
  for (const std::string folder :
       {"generator", "runtime", "runtime/emulator", "cache", "python", "bench", "tests/unit", "tests/compile",
        "tests/gpu", "tests/repo", "tests/reference"}) {
    const std::string list = read(root / folder / "CMakeLists.txt");
    for (const fs::path& path : sources(folder)) {
      if (path.extension() != ".cpp") continue;
      if (folder != emulator && fs::relative(path, root).generic_string().starts_with(emulator + "/"))
        continue;
      EXPECT_NE(list.find(fs::relative(path, root / folder).generic_string()), std::string::npos) << path;
    }
  }
}

// The library reads the environment in one place, never prints and never ends the program.
TEST(Layout, TheLibraryKeepsToItself) {
  const std::regex environment(R"(\b(secure_)?getenv\b|\bsetenv\b|\bputenv\b)");
  const std::regex output(
      R"(\b(f|v|vf)?printf\b|\bf?puts\b|\bputchar\b|\bperror\b|std::(cout|cerr|clog)\b|fmt::print\b)");
  // A call that ends the program; a member of that name, such as Flow::exit, is none.
  const std::regex end(
      R"(\babort\b|\bquick_exit\b|\bterminate\b|\bassert\(|std::exit\b|(^\s*|[;{})]\s*|\belse\s+)(::)?_?_?exit\s*\()");
  int lookups = 0;
  for (const SourceLine& line : code_lines({"generator", "runtime", "cache", "python"})) {
    EXPECT_FALSE(std::regex_search(line.text, output)) << line;
    EXPECT_FALSE(std::regex_search(line.text, end)) << line;
    if (!std::regex_search(line.text, environment)) continue;
    EXPECT_EQ(line.file, "runtime/settings.cpp") << line;
    ++lookups;
  }
  EXPECT_EQ(lookups, 1);
  for (const SourceLine& line : code_lines({"templates"}))
    EXPECT_FALSE(std::regex_search(line.text, output)) << line;
}

TEST(Layout, FilesAreShort) {
  for (const char* folder :
       {"generator", "runtime", "cache", "templates", "python", "tools", "bench", "tests"}) {
    for (const fs::path& path : sources(folder)) {
      const std::string text = read(path);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 600) << path;
      EXPECT_TRUE(text.ends_with("\n")) << path;
    }
  }
}

TEST(Layout, HeadersGuardThemselvesAndSayWhatTheyAre) {
  for (const char* folder : {"generator", "runtime", "cache", "templates", "python"}) {
    for (const fs::path& path : sources(folder)) {
      if (path.extension() == ".cpp") continue;
      const std::string text = read(path);
      EXPECT_TRUE(text.starts_with("// ")) << path;
      EXPECT_NE(text.find("\n#pragma once\n"), std::string::npos) << path;
    }
  }
}

TEST(Layout, NothingIsLeftUndone) {
  const std::regex undone(R"(\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b)");
  for (const char* folder :
       {"generator", "runtime", "cache", "templates", "python", "tools", "bench", "tests", "docs"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& item : fs::recursive_directory_iterator(root / folder)) {
      if (!item.is_regular_file() || item.path().extension() == ".bin") continue;
      std::smatch match;
      const std::string text = read(item.path());
      EXPECT_FALSE(std::regex_search(text, match, undone)) << item.path() << ": " << match.str();
    }
  }
}

}  // namespace
