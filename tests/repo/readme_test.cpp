// The documents keep their promises: their C++ compiles, tables about the library agree with it, names and
// links exist, and prose is no wider than a window.
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/kernel_config.h>
#include <jit/settings.h>

#include "tests/support/fresh_folder.h"

namespace jit {
namespace {

namespace fs = std::filesystem;
using testing::FreshFolder;
using testing::read_text;
using testing::write_text;

const fs::path root = JIT_ATTENTION_SOURCE_DIR;

std::vector<fs::path> documents() {
  std::vector<fs::path> paths;
  if (fs::exists(root / "README.md")) paths.push_back(root / "README.md");
  paths.push_back(root / "emulator/README.md");
  for (const auto& item : fs::recursive_directory_iterator(root / "docs")) {
    if (item.path().extension() == ".md") paths.push_back(item.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Snippet {
  std::string file;
  int line = 0;
  std::string text;
};

/// Blocks that start with ```cpp. A block of ```cpp title is one too.
std::vector<Snippet> snippets() {
  std::vector<Snippet> found;
  for (const fs::path& path : documents()) {
    std::istringstream text(read_text(path.string()));
    std::string line;
    bool inside = false;
    for (int number = 1; std::getline(text, line); ++number) {
      if (!inside && line.starts_with("```cpp")) {
        inside = true;
        found.push_back({fs::relative(path, root).string(), number + 1, ""});
      } else if (inside && line.starts_with("```")) {
        inside = false;
      } else if (inside) {
        found.back().text += line + "\n";
      }
    }
  }
  return found;
}

/// A whole program is compiled as it is, under a name of its own; statements are put into a function after the includes
/// among them, with the names that documents use for what the reader has.
std::string source_of(const Snippet& snippet, std::size_t number) {
  const std::string place = fmt::format("#line {} \"{}\"\n", snippet.line, snippet.file);
  if (std::regex_search(snippet.text, std::regex(R"(\bint main\()")))
    return fmt::format("#define main main_{}\n{}{}#undef main\n", number, place, snippet.text);
  std::string includes, statements;
  std::istringstream text(snippet.text);
  for (std::string line; std::getline(text, line);) {
    const bool is_include = line.starts_with("#include");
    (is_include ? includes : statements) += line + "\n";
    if (is_include) statements += "\n";  // keeps the numbers of the lines
  }
  return includes +
         fmt::format("void snippet_{}([[maybe_unused]] void* q_data, [[maybe_unused]] void* k_data,\n",
                     number) +
         "             [[maybe_unused]] void* v_data, [[maybe_unused]] void* o_data,\n"
         "             [[maybe_unused]] void* scales,\n"
         "             [[maybe_unused]] jit::TensorView q,\n"
         "             [[maybe_unused]] jit::TensorView k, [[maybe_unused]] jit::TensorView v,\n"
         "             [[maybe_unused]] jit::TensorView o, [[maybe_unused]] jit::TensorView lse,\n"
         "             [[maybe_unused]] jit::TensorView document_ids, [[maybe_unused]] jit::TensorView ids,\n"
         "             [[maybe_unused]] jit::Stream stream,\n"
         "             [[maybe_unused]] jit::AttentionArguments arguments) {\n"
         "using namespace std::string_literals;\n" +
         place + statements + "}\n";
}

// All in one source: most of the time that a source takes goes into the headers.
TEST(Documents, TheirCppCompiles) {
  const FreshFolder folder;
  std::string source =
      "#include <jit/attention.h>\n#include <cstdint>\n#include <string>\n#include <vector>\n";
  const std::vector<Snippet> all = snippets();
  ASSERT_GT(all.size(), 5u);
  for (std::size_t i = 0; i < all.size(); ++i) source += source_of(all[i], i);
  write_text(folder / "snippets.cpp", source);
  const std::string command =
      fmt::format("{0} -std=c++20 -fsyntax-only -I'{1}/include' -I'{1}/emulator/include' '{2}' 2> '{3}'",
                  JIT_ATTENTION_COMPILER, root.string(), folder / "snippets.cpp", folder / "log");
  EXPECT_EQ(std::system(command.c_str()), 0) << read_text(folder / "log");
}

// Each variable has one row, `NAME` | `default` | sentence, in the page of the command line, which names no others.
TEST(Documents, TheTableOfVariablesIsTheLibrarysOwn) {
  const std::string page = read_text((root / "docs/reference/command-line.md").string());
  for (const SettingDoc& doc : setting_docs()) {
    const std::regex row(fmt::format(R"(\n\| *`{}` *\|([^\n|]*)\|([^\n]*)\|\n)", doc.name));
    std::smatch match;
    ASSERT_TRUE(std::regex_search(page, match, row)) << doc.name << " has no row";
    EXPECT_THAT(match[1].str(), ::testing::HasSubstr(doc.default_value)) << doc.name;
    EXPECT_THAT(match[2].str(), ::testing::HasSubstr(doc.doc)) << doc.name;
  }
  std::size_t rows = 0;
  std::istringstream text(page);
  for (std::string line; std::getline(text, line);) rows += line.starts_with("| `JIT_ATTENTION_");
  EXPECT_EQ(rows, setting_docs().size());
}

/// The rows of the tables in a text that begin with a name in backticks, as they stand there.
std::vector<std::string> named_rows(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("| `")) rows.push_back(line);
  return rows;
}

// Each family has a section of the page of configs, with a row for each field, in their order, and a text that its page links.
TEST(Documents, TheConfigsOfFamiliesAreTheLibrarysOwn) {
  ASSERT_GE(family_docs().size(), 2u);
  const std::string configs = read_text((root / "docs/reference/kernel-configs.md").string());
  for (const FamilyDoc& family : family_docs()) {
    const std::string heading = fmt::format("\n## {}\n", family.name);
    const std::size_t begin = configs.find(heading);
    ASSERT_NE(begin, std::string::npos) << family.name;
    const std::size_t end = configs.find("\n## ", begin + heading.size());
    const std::string section = configs.substr(begin, end == std::string::npos ? end : end - begin);
    std::vector<std::string> rows;
    for (const ConfigFieldDoc& field : family.fields)
      rows.push_back(fmt::format("| `{}` | {} | {} |", field.name, field.values, field.doc));
    EXPECT_EQ(named_rows(section), rows) << family.name;
    EXPECT_THAT(section, ::testing::HasSubstr(fmt::format("`family={} ", family.name)));
    EXPECT_THAT(read_text((root / fmt::format("docs/kernels/{}.md", family.name)).string()),
                ::testing::HasSubstr(fmt::format("(../reference/kernel-configs.md#{})", family.name)));
  }
}

// Each family has a page, and a row in the table of families that leads there. The steps between families are the only
// other page.
TEST(Documents, TheKernelFamiliesAreTheLibrarysOwn) {
  std::vector<std::string> pages, linked;
  for (const auto& item : fs::directory_iterator(root / "docs/kernels")) pages.push_back(item.path().stem());
  std::vector<std::string> names;
  for (const FamilyDoc& family : family_docs()) names.emplace_back(family.name);
  std::vector<std::string> expected = names;
  expected.push_back("attention_ladder");
  EXPECT_THAT(pages, ::testing::UnorderedElementsAreArray(expected));
  const std::string kernels = read_text((root / "docs/kernels.md").string());
  const std::regex row(R"(\n\| \[`(\w+)`\]\(kernels/(\w+)\.md\) \|)");
  for (std::sregex_iterator it(kernels.begin(), kernels.end(), row), end; it != end; ++it) {
    EXPECT_EQ((*it)[1], (*it)[2]);
    linked.push_back((*it)[1]);
  }
  EXPECT_EQ(linked, names);
}

// The name by which links reach a heading: lower case, spaces as hyphens, other punctuation left out.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char letter : heading.substr(heading.find_first_not_of("# "))) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '-')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (letter == ' ') anchor += '-';
  }
  return anchor;
}

std::vector<std::string> anchors(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("#")) found.push_back(anchor_of(line));
  return found;
}

// A link leads to a file of the tree, and to a heading of it where it names one.
TEST(Documents, TheirLinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^):#\s]*)(#([^)\s]*))?\))");
  for (const fs::path& path : documents()) {
    const std::string text = read_text(path.string());
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const fs::path target = (*it)[1].length() == 0 ? path : path.parent_path() / (*it)[1].str();
      EXPECT_TRUE(fs::exists(target)) << path << ": " << (*it)[0];
      if ((*it)[3].length() == 0 || !fs::exists(target)) continue;
      EXPECT_THAT(anchors(read_text(target.string())), ::testing::Contains((*it)[3].str()))
          << path << ": " << (*it)[0];
    }
  }
}

// `folder/file` in a document is a file or folder of the tree, or of the folder that the document is about. Records
// name files as they were.
TEST(Documents, FilesThatTheyNameExist) {
  const std::regex name(
      "`((bench|cache|docs|emulator|examples|generator|include|python|runtime|templates|tests|tools)"
      "/[A-Za-z0-9_./-]*)`");
  std::size_t names = 0;
  for (const fs::path& path : documents()) {
    if (fs::relative(path, root).generic_string().starts_with("docs/records/")) continue;
    const std::string text = read_text(path.string());
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it, ++names)
      EXPECT_TRUE(fs::exists(root / (*it)[1].str()) || fs::exists(path.parent_path() / (*it)[1].str()))
          << path << ": " << (*it)[1];
  }
  EXPECT_GT(names, 30u);
}

// The page of tests leaves out what the names of all their files have; a * stands for any text.
TEST(Documents, TestsThatTheirPageNamesExist) {
  std::vector<std::string> tests;
  for (const auto& item : fs::recursive_directory_iterator(root / "tests"))
    tests.push_back(std::regex_replace(fs::relative(item.path(), root / "tests").generic_string(),
                                       std::regex("(_test[.]cpp|[.]py)$|test_(?=[^/]*$)"), ""));
  const std::regex name("`([a-z]+/[a-z0-9_/*]+)`");
  std::size_t names = 0;
  std::istringstream lines(read_text((root / "tests/README.md").string()));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    for (std::sregex_iterator it(line.begin(), line.end(), name), end; it != end; ++it, ++names) {
      const auto is_named = [pattern = (*it)[1].str()](const std::string& test) {
        return fnmatch(pattern.c_str(), test.c_str(), FNM_PATHNAME) == 0;
      };
      EXPECT_TRUE(std::any_of(tests.begin(), tests.end(), is_named)) << (*it)[1];
    }
  }
  EXPECT_GT(names, 80u);
}

// Words of prose and tables: what has a letter or a digit, outside of code. Records, the reference and the tutorial are
// looked up or worked through, and count elsewhere.
std::size_t words_of_prose(const std::string& text) {
  std::size_t words = 0;
  bool is_code = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) is_code = !is_code;
    if (is_code || line.starts_with("```") || line.starts_with("    ")) continue;
    std::istringstream parts(line);
    for (std::string part; parts >> part;)
      words += std::any_of(part.begin(), part.end(),
                           [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
  }
  return words;
}

TEST(Documents, AreShort) {
  std::size_t all = 0;
  for (const fs::path& path : documents()) {
    const std::string name = fs::relative(path, root).generic_string();
    if (!name.starts_with("docs/") ||
        std::regex_search(name, std::regex("^docs/(records|reference|tutorial)/")))
      continue;
    const std::size_t words = words_of_prose(read_text(path.string()));
    EXPECT_LE(words, 2500u) << name;
    all += words;
  }
  EXPECT_LE(all, 35'000u);
}

// Tables, code, and lines that are nothing but an image may be wider.
TEST(Documents, TheirProseIsAtMost120ColumnsWide) {
  for (const fs::path& path : documents()) {
    std::istringstream text(read_text(path.string()));
    bool is_code = false;
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      ++number;
      if (line.starts_with("```")) is_code = !is_code;
      if (is_code || line.starts_with("    ") || line.starts_with("|") || line.starts_with("![")) continue;
      const auto columns = std::count_if(line.begin(), line.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;  // all but what continues a letter in UTF-8
      });
      EXPECT_LE(columns, 120) << path << ":" << number << ": " << line;
    }
  }
}

}  // namespace
}  // namespace jit
