// Rules of the tree that no compiler checks.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

const fs::path root = JIT_ATTENTION_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
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
  static const std::regex literal(R"("([^"\\]|\\.)*")");
  std::vector<SourceLine> lines;
  for (const std::string& folder : folders) {
    for (const fs::path& path : sources(folder)) {
      std::istringstream text(read(path));
      SourceLine line{.file = fs::relative(path, root).generic_string()};
      while (std::getline(text, line.text)) {
        ++line.number;
        if (line.text.find('"') != std::string::npos && line.text.find('#') == std::string::npos)
          line.text = std::regex_replace(line.text, literal, "\"\"");
        line.text = line.text.substr(0, line.text.find("//"));
        lines.push_back(line);
      }
    }
  }
  return lines;
}

/// An include of a source: the text between the quotes or angle brackets, and which of both.
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
    if (line.text.find('#') == std::string::npos) continue;
    if (std::regex_search(line.text, match, pattern)) found.push_back({line, match[2], match[1] == "\""});
  }
  return found;
}

/// The folder that a target lies in; "jit" for public headers.
std::string folder_of(const std::string& target) { return target.substr(0, target.find('/')); }

TEST(Layout, DependenciesPointOneWay) {
  // The folders that a folder's sources may include; public headers are open to all.
  const std::vector<std::pair<std::string, std::vector<std::string>>> allowed = {
      {"runtime", {"runtime"}},
      {"cache", {"cache"}},
      {"generator", {"generator", "cache", "runtime", "templates"}},
      {"xla", {"xla", "generator"}},
      {"capi", {"capi"}},
      {"tvm", {"tvm", "capi"}},
      {"recorder", {"recorder", "runtime", "emulator"}},
  };
  ASSERT_GT(includes("generator").size(), 50u);
  for (const auto& [folder, may_include] : allowed) {
    for (const Include& include : includes(folder)) {
      if (!include.quoted) continue;
      EXPECT_THAT(may_include, testing::Contains(folder_of(include.target))) << include.line;
    }
  }
  for (const Include& include : includes("cache")) {
    if (folder_of(include.target) != "jit") continue;
    EXPECT_THAT(include.target, testing::AnyOf("jit/error.h", "jit/observer.h", "jit/output_file.h"))
        << include.line;
  }
}

// The emulator includes what lies below its folder and the libraries that its README names; others know its public face.
TEST(Layout, TheEmulatorIsALibraryOfItsOwn) {
  const fs::path emulator = root / "emulator";
  const auto is_public = [&](const std::string& target) {
    return target.starts_with("emulator/") && fs::exists(emulator / "include" / target);
  };
  const std::set<std::string> libraries = {"fmt", "gmock", "gtest", "nlohmann", "sys"};
  ASSERT_GT(includes("emulator").size(), 50u);
  for (const Include& include : includes("emulator")) {
    const bool is_known = include.target.find('/') == std::string::npos || is_public(include.target) ||
                          libraries.contains(folder_of(include.target));
    EXPECT_TRUE(include.quoted ? fs::exists(emulator / include.target) : is_known) << include.line;
  }
  ASSERT_GT(includes("emulator/include").size(), 10u);
  for (const std::string folder : {"emulator/include", "emulator/examples"}) {
    for (const Include& include : includes(folder)) {
      const bool is_standard = include.target.find_first_of("./") == std::string::npos;
      EXPECT_TRUE(!include.quoted && (is_standard || is_public(include.target))) << include.line;
    }
  }
  for (const Include& include : includes("runtime")) {
    if (folder_of(include.target) != "emulator") continue;
    EXPECT_TRUE(include.line.file.starts_with("runtime/emulated_driver/")) << include.line;
    EXPECT_TRUE(!include.quoted && is_public(include.target)) << include.line;
  }
}

/// The folders of generator/ as the table in docs/design.md lists them.
std::vector<std::string> generator_folders() {
  const std::string design = read(root / "docs/design.md");
  std::istringstream lines(design.substr(design.find("| folder of `generator/` |")));
  std::vector<std::string> folders;
  const std::regex row(R"(^\| `(\w+)/` \|)");
  std::smatch match;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    if (std::regex_search(line, match, row)) folders.push_back(match[1]);
  }
  return folders;
}

// The table is the rule, so that the picture cannot become stale. Files beside the folders may include all of them.
TEST(Layout, IncludesOfTheGeneratorPointDownItsTable) {
  const std::vector<std::string> order = generator_folders();
  ASSERT_GT(order.size(), 5u);
  const std::string prefix = "generator/";
  const auto row_of = [&](const std::string& path) {
    const std::string inner = path.substr(prefix.size());
    if (inner.find('/') == std::string::npos) return -1;
    const auto row = std::find(order.begin(), order.end(), folder_of(inner));
    EXPECT_NE(row, order.end()) << path << ": its folder has no row in the table of docs/design.md";
    return static_cast<int>(row - order.begin());
  };
  for (const std::string& folder : order) EXPECT_TRUE(fs::exists(root / prefix / folder)) << folder;
  for (const fs::path& path : sources("generator")) row_of(fs::relative(path, root).generic_string());
  for (const Include& include : includes("generator")) {
    if (!include.quoted || !include.target.starts_with(prefix)) continue;
    EXPECT_LE(row_of(include.line.file), row_of(include.target))
        << include.line << "\na folder of generator/ includes itself and those below it in the table of "
        << "docs/design.md, never one above";
  }
}

TEST(Layout, TemplatesIncludeTemplatesOnly) {
  ASSERT_GT(includes("templates").size(), 20u);
  for (const Include& include : includes("templates")) {
    EXPECT_TRUE(include.quoted) << include.line;
    EXPECT_TRUE(fs::exists(root / "templates" / include.target) || include.target == "jit/options.h")
        << include.line;
  }
}

// A folder with a kernel.cuh is a kernel family: it uses what is shared, and nothing of another family. One whose name
// begins with another's is another program of the same, as quantize_resident is of quantize.
TEST(Layout, KernelFamiliesDoNotKnowEachOther) {
  const auto is_family = [](const std::string& folder) {
    return fs::exists(root / "templates" / folder / "kernel.cuh");
  };
  ASSERT_TRUE(is_family("forward_mma_sync"));
  for (const Include& include : includes("templates")) {
    const std::string own = folder_of(include.line.file.substr(std::string("templates/").size()));
    const std::string other = folder_of(include.target);
    EXPECT_TRUE(own == other || own.starts_with(other + "_") || !is_family(other)) << include.line;
  }
}

/// "ForwardMmaSync" of "forward_mma_sync".
std::string struct_of(const std::string& folder) {
  std::string name;
  bool begins_word = true;
  for (const char c : folder) {
    if (c != '_') name += begins_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins_word = c == '_';
  }
  return name;
}

// The host knows a family by its folder and by the variant of configs: what others want of it they ask all families.
TEST(Layout, NoFamilyIsNamedOutsideOfItsFolder) {
  int families = 0;
  const std::vector<SourceLine> lines = code_lines({"generator"});
  for (const auto& item : fs::directory_iterator(root / "generator/kernels")) {
    if (!fs::exists(item.path() / "family.h")) continue;
    ++families;
    const std::string folder = item.path().filename();
    const std::string own = "generator/kernels/" + folder + "/";
    const std::regex name("\\b" + struct_of(folder) + "\\b|\\b" + folder + "(::|/)");
    for (const SourceLine& line : lines) {
      const bool is_list = line.file == "generator/kernels/families.h" && line.text.starts_with("#include");
      if (is_list || line.file.starts_with(own)) continue;
      const bool has_hint = line.text.find(folder) != std::string::npos ||
                            line.text.find(struct_of(folder)) != std::string::npos;
      EXPECT_FALSE(has_hint && std::regex_search(line.text, name))
          << line << "\nnames " << folder << " outside of " << own;
    }
  }
  EXPECT_GE(families, 9);
}

// A public header must not drag in what is not installed.
TEST(Layout, PublicHeadersIncludePublicHeadersOnly) {
  ASSERT_GT(includes("include").size(), 50u);
  for (const Include& include : includes("include")) {
    if (include.line.file.ends_with("/dlpack.h") && include.target == "dlpack/dlpack.h") continue;
    const bool is_of_c = include.line.file.ends_with("/c.h") && include.target.starts_with("std");
    const bool is_standard = is_of_c || include.target.find_first_of("./") == std::string::npos;
    const bool is_public =
        include.target.starts_with("jit/") && fs::exists(root / "include" / include.target);
    EXPECT_TRUE(!include.quoted && (is_standard || is_public)) << include.line;
  }
}

// Programs built on the library use it as a stranger does: public headers, headers of their own, other
// libraries. The Python package holds the tool.
TEST(Layout, TheToolThePackageAndTheBenchmarksKnowThePublicFaceOnly) {
  for (const std::string folder : {"capi", "tools", "python", "bench", "examples"}) {
    ASSERT_FALSE(includes(folder).empty()) << folder;
    for (const Include& include : includes(folder)) {
      const bool is_beside = fs::exists((root / include.line.file).parent_path() / include.target);
      const bool is_in_tree = fs::exists(root / include.target);
      const bool is_tool = folder == "python" && include.target == "tools/jit_attention/run_tool.h";
      const bool is_own = is_beside || is_tool || (is_in_tree && folder_of(include.target) == folder);
      EXPECT_TRUE(include.quoted ? is_own : !is_in_tree) << include.line;
    }
  }
}

/// "tests/device", "tests/unit/cache": the tests that are about one thing.
std::string suite_of(const std::string& file) {
  const std::size_t begin = file.starts_with("tests/unit/") ? std::size("tests/unit/") : std::size("tests/");
  return file.substr(0, file.find('/', begin));
}

TEST(Layout, TestsShareByWayOfSupport) {
  ASSERT_GT(includes("tests").size(), 100u);
  for (const Include& include : includes("tests")) {
    if (!include.target.starts_with("tests/")) continue;
    EXPECT_THAT(suite_of(include.target), testing::AnyOf(suite_of(include.line.file), "tests/support"))
        << include.line;
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
  for (const std::string folder : {"generator",
                                   "capi",
                                   "tvm",
                                   "xla",
                                   "recorder",
                                   "runtime",
                                   "emulator",
                                   "emulator/examples",
                                   "emulator/tests/conformance",
                                   "cache",
                                   "python",
                                   "bench",
                                   "tests/bench",
                                   "tests/capi",
                                   "tests/unit",
                                   "tests/compile",
                                   "tests/conformance",
                                   "tests/device",
                                   "tests/repo",
                                   "tests/support",
                                   "tests/xla"}) {
    const std::string list = read(root / folder / "CMakeLists.txt");
    for (const fs::path& path : sources(folder)) {
      const std::string name = fs::relative(path, root / folder).generic_string();
      const bool has_own_list = name.starts_with("tests/") || name.starts_with("examples/");
      if (path.extension() != ".cpp" || has_own_list) continue;
      EXPECT_NE(list.find(name), std::string::npos) << path;
    }
  }
}

// The library reads the environment in one place and never ends the program. The default context alone prints: warnings.
TEST(Layout, TheLibraryKeepsToItself) {
  const std::regex environment(R"(\b(secure_)?getenv\b|\bsetenv\b|\bputenv\b)");
  const std::regex output(
      R"(\b(f|v|vf)?printf\b|\bf?puts\b|\bputchar\b|\bperror\b|std::(cout|cerr|clog)\b|fmt::print\b)");
  // A call that ends the program; a member of that name, such as Flow::exit, is none.
  const std::regex end(
      R"(\babort\b|\bquick_exit\b|\bterminate\b|\bassert\(|std::exit\b|(^\s*|[;{})]\s*|\belse\s+)(::)?_?_?exit\s*\()");
  // A part of each name above: looking at every line with the expressions takes longer than all other tests here.
  const std::vector<std::string> hints = {"env",   "print",     "put",     "perror", "std::c",
                                          "abort", "terminate", "assert(", "exit"};
  const auto has_any = [](const std::string& text, const std::vector<std::string>& parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return text.find(part) != std::string::npos; });
  };
  int lookups = 0;
  for (const SourceLine& line :
       code_lines({"include", "generator", "capi", "tvm", "xla", "runtime", "emulator/include",
                   "emulator/machine", "emulator/operations", "emulator/ptx", "cache", "python"})) {
    if (!has_any(line.text, hints)) continue;
    EXPECT_FALSE(std::regex_search(line.text, output) && line.file != "generator/context.cpp") << line;
    EXPECT_FALSE(std::regex_search(line.text, end)) << line;
    if (!std::regex_search(line.text, environment)) continue;
    EXPECT_EQ(line.file, "runtime/settings.cpp") << line;
    ++lookups;
  }
  EXPECT_EQ(lookups, 1);
  for (const SourceLine& line : code_lines({"templates"})) {
    EXPECT_FALSE(has_any(line.text, hints) && std::regex_search(line.text, output)) << line;
  }
}

/// First lines of comments, without the slashes; also of those behind code.
std::vector<SourceLine> comment_beginnings(const std::vector<std::string>& folders) {
  std::vector<SourceLine> lines;
  for (const std::string& folder : folders) {
    for (const fs::path& path : sources(folder)) {
      std::istringstream text(read(path));
      SourceLine line{.file = fs::relative(path, root).generic_string()};
      bool was_comment = false;
      while (std::getline(text, line.text)) {
        ++line.number;
        std::size_t at = line.text.find("//");
        while (at != std::string::npos && at > 0 && (line.text[at - 1] == ':' || line.text[at - 1] == '"'))
          at = line.text.find("//", at + 2);
        const bool is_comment = at != std::string::npos && line.text.find_first_not_of(' ') == at;
        if (at != std::string::npos && !(is_comment && was_comment)) {
          const std::size_t words = line.text.find_first_not_of("/!< ", at);
          if (words != std::string::npos)
            lines.push_back({.file = line.file, .number = line.number, .text = line.text.substr(words)});
        }
        was_comment = is_comment;
      }
    }
  }
  return lines;
}

// "The sum of a row." and not "What comes of a row.": who reads one comment has not read the one before it.
TEST(Layout, CommentsBeginWithTheirSubject) {
  const std::vector<SourceLine> lines = comment_beginnings(
      {"include", "templates", "generator", "capi", "tvm", "xla", "runtime", "cache", "emulator"});
  ASSERT_GT(lines.size(), 3000u);
  for (const SourceLine& line : lines) {
    for (const std::string words : {"What ", "Of ", "The same ", "The same,", "The same.", "Those "})
      EXPECT_FALSE(line.text.starts_with(words)) << line;
  }
}

TEST(Layout, CommentsAreFoundBeforeAndBehindCode) {
  const std::vector<SourceLine> lines = comment_beginnings({"tests/repo"});
  const auto has = [&](const std::string& text) {
    return std::any_of(lines.begin(), lines.end(), [&](const SourceLine& line) {
      return line.file.ends_with("/layout_test.cpp") && line.text == text;
    });
  };
  EXPECT_TRUE(has("Rules of the tree that no compiler checks."));
  EXPECT_TRUE(has("from the root"));
  EXPECT_FALSE(has("library reads"));
}

TEST(Layout, FilesAreShort) {
  for (const char* folder : {"include", "generator", "capi", "tvm", "runtime", "emulator", "cache",
                             "templates", "python", "tools", "bench", "tests"}) {
    for (const fs::path& path : sources(folder)) {
      const std::string text = read(path);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 600) << path;
      EXPECT_TRUE(text.ends_with("\n")) << path;
    }
  }
}

TEST(Layout, HeadersGuardThemselvesAndSayWhatTheyAre) {
  for (const char* folder :
       {"include", "generator", "capi", "tvm", "runtime", "emulator", "cache", "templates", "python"}) {
    for (const fs::path& path : sources(folder)) {
      if (path.extension() == ".cpp") continue;
      const std::string text = read(path);
      const bool is_public = path.generic_string().find("include/jit/") != std::string::npos;
      EXPECT_TRUE(text.starts_with(is_public ? "/// @file\n/// " : "// ")) << path;
      EXPECT_NE(text.find("\n#pragma once\n"), std::string::npos) << path;
    }
  }
}

// A chart whose letters are outlines, or whose bars are a shape each, is ten times as large.
TEST(Layout, PicturesAndRawResultsAreSmall) {
  int pictures = 0;
  for (const auto& item : fs::recursive_directory_iterator(root / "docs")) {
    if (item.path().extension() != ".svg") continue;
    ++pictures;
    EXPECT_LE(item.file_size(), 20 * 1024) << item.path();
    EXPECT_NE(read(item.path()).find("<text"), std::string::npos) << item.path();
  }
  EXPECT_GT(pictures, 20);
  for (const auto& item : fs::directory_iterator(root / "bench/results")) {
    const std::string extension = item.path().extension();
    EXPECT_THAT(extension, testing::AnyOf(".gz", ".md")) << item.path() << ": gzip -9n packs raw results";
  }
}

TEST(Layout, NothingIsLeftUndone) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (const char* folder : {"include", "generator", "capi", "tvm", "runtime", "emulator", "cache",
                             "templates", "python", "tools", "bench", "tests", "docs"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& item : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = item.path().extension();
      if (!item.is_regular_file() || extension == ".bin" || extension == ".gz") continue;
      const std::string text = " " + read(item.path()) + " ";
      for (const std::string word : {"TOD"
                                     "O",
                                     "FIXM"
                                     "E",
                                     "XX"
                                     "X",
                                     "HAC"
                                     "K"}) {
        for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
          EXPECT_TRUE(in_word(text[at - 1]) || in_word(text[at + word.size()]))
              << item.path() << ": " << word;
      }
    }
  }
}

}  // namespace
