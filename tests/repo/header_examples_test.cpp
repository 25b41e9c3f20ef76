// Every public function stands in an example of its header; tests/header_examples runs these.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

const fs::path headers = fs::path(JIT_ATTENTION_SOURCE_DIR) / "include/jit";

/// The functions that a header declares in a namespace or in the public part of a class, operators and constructors
/// left out.
std::set<std::string> functions_of(const std::string& text) {
  static const std::regex declaration(R"(^(?:  )?(?:[A-Za-z_][\w:<>, &*]*[ &*])([a-z_][a-z_0-9]*)\()");
  static const std::regex statement(R"(^ *(return|throw|if|for|else|case|friend)\b)");
  std::set<std::string> found;
  std::istringstream lines(text);
  bool is_private = false;
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find("//"));
    if (line == " private:") is_private = true;
    if (line == " public:" || line.starts_with("};")) is_private = false;
    std::smatch match;
    if (is_private || std::regex_search(line, statement)) continue;
    if (std::regex_search(line, match, declaration) && match[1] != "operator") found.insert(match[1]);
  }
  return found;
}

/// The text between @code and @endcode.
std::string examples_of(const std::string& text) {
  std::string found;
  for (std::size_t begin = text.find("/// @code\n"); begin != std::string::npos;
       begin = text.find("/// @code\n", begin + 1))
    found += text.substr(begin, text.find("/// @endcode", begin) - begin);
  return found;
}

TEST(HeaderExamples, ShowEveryPublicFunction) {
  std::size_t count = 0;
  for (const auto& item : fs::directory_iterator(headers)) {
    if (item.path().extension() != ".h") continue;
    std::ifstream file(item.path());
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (text.find("\nextern \"C\"") != std::string::npos) continue;  // examples in C
    const std::string examples = examples_of(text);
    for (const std::string& name : functions_of(text)) {
      ++count;
      EXPECT_TRUE(std::regex_search(examples, std::regex("\\b" + name + "\\(")))
          << item.path().filename() << ": no example calls " << name << "()";
    }
  }
  EXPECT_GT(count, 200u);
}

TEST(HeaderExamples, FunctionsAreFound) {
  const std::string text =
      "/// Not this(one).\nint free_one(int x);\nclass A {\n public:\n  explicit A(int x);\n"
      "  const std::vector<int>& shown() const { return hidden(1); }\n  bool operator==(const A&) const;\n"
      " private:\n  int hidden(int x);\n};\ninline bool last(const A& a) {\n  return free_one(a.x);\n}\n";
  EXPECT_EQ(functions_of(text), (std::set<std::string>{"free_one", "last", "shown"}));
}

}  // namespace
