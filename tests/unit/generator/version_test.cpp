// The version is stated in one place.
#include <jit/version.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

std::string match(const std::string& file, const std::string& pattern) {
  std::ifstream stream(std::string(JIT_ATTENTION_SOURCE_DIR) + "/" + file);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? found[1].str() : "none in " + file;
}

TEST(Version, IsThatOfTheProject) {
  const std::string version = match("CMakeLists.txt", R"(project\(jit_attention VERSION ([0-9.]+))");
  EXPECT_EQ(JIT_ATTENTION_VERSION, version);
  EXPECT_EQ(version, fmt::format("{}.{}.{}", JIT_ATTENTION_VERSION_MAJOR, JIT_ATTENTION_VERSION_MINOR,
                                 JIT_ATTENTION_VERSION_PATCH));
  EXPECT_EQ(match("CITATION.cff", "\nversion: \"?([0-9.]+)"), version);
}

}  // namespace
}  // namespace jit
