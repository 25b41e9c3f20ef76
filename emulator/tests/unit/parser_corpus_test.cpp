// Replays the fuzzer's corpus, and random changes of it: any text is loaded, or refused with a PtxError.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <emulator/module.h>

#include <gtest/gtest.h>

#include "ptx/syntax.h"
#include "tests/support/ptx_properties.h"

namespace jit::emulator {
namespace {

namespace fs = std::filesystem;

struct CorpusFile {
  std::string name;
  std::string text;
};

std::vector<CorpusFile> read_corpus() {
  std::vector<CorpusFile> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(JIT_EMULATOR_SOURCE_DIR) / "tests/fuzz/corpus/ptx")) {
    std::ifstream file(entry.path(), std::ios::binary);
    files.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

enum class Outcome { refused, parsed, loaded };

// Throws what is no PtxError.
Outcome load(const std::string& text) {
  Outcome outcome = Outcome::refused;
  try {
    testing::check_module(ptx::parse(text), text);
    outcome = Outcome::parsed;
    const bool is_of_sm_100 = text.find("sm_100") != std::string::npos;
    const Module module(text, is_of_sm_100 ? TargetArch{10, 0, 'a'} : TargetArch{9, 0, 'a'});
    outcome = Outcome::loaded;
  } catch (const PtxError& error) {
    EXPECT_GE(error.line(), 0);
    EXPECT_NE(std::string_view(error.what()), "");
  }
  return outcome;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<CorpusFile>& files) : files_(files) {}

  std::string next() {
    std::string text = any().text;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const CorpusFile& any() { return files_[below(files_.size())]; }
  std::string part_of(const std::string& text, std::size_t longest) {
    const std::size_t begin = below(text.size());
    return text.substr(begin, below(longest));
  }

  void change(std::string& text) {
    static constexpr std::string_view words[] = {"{",      "}",          "[",
                                                 "]",      "(",          ")",
                                                 ",",      ";",          ":",
                                                 "|",      "_",          "@%p1 ",
                                                 "0x",     "-1",         "4294967296",
                                                 "0f",     "+",          "\"",
                                                 "/*",     "*/",         "//",
                                                 "\n",     ".reg ",      ".b32 ",
                                                 ".v4 ",   "<1000000>",  "[1000000000]",
                                                 ".loc ",  ".pred ",     ".align ",
                                                 "bra L;", ".entry ",    "= {",
                                                 " %r1,",  "generic(x)", "WARP_SZ"};
    const std::size_t place = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        if (!text.empty()) text[below(text.size())] = static_cast<char>(random_());
        break;
      case 1:
        text.insert(place, 1, static_cast<char>(random_()));
        break;
      case 2:
        text.erase(place, 1 + below(16));
        break;
      case 3:
        text.insert(place, words[below(std::size(words))]);
        break;
      case 4:
        text.insert(place, part_of(text, 200));
        break;
      case 5:
        text.insert(place, part_of(any().text, 400));
        break;
      default:
        text.resize(place);
    }
  }

  const std::vector<CorpusFile>& files_;
  std::minstd_rand random_{20240229};
};

TEST(PtxCorpus, IsLoadedOrRefused) {
  const std::vector<CorpusFile> files = read_corpus();
  ASSERT_GE(files.size(), 20u);
  for (const CorpusFile& file : files) {
    EXPECT_LE(file.text.size(), 4096u) << file.name;
    EXPECT_NO_THROW(load(file.text)) << file.name;
  }
}

// The corpus reaches the decoder; a typing error in one of its files would prevent that.
TEST(PtxCorpus, HasFilesThatLoad) {
  for (const CorpusFile& file : read_corpus()) {
    for (const char* name : {"arithmetic.ptx", "branches.ptx", "intrinsics_real.ptx", "intrinsics_warps.ptx",
                             "intrinsics_whole.ptx", "mma.ptx", "scopes.ptx", "source_lines.ptx",
                             "tensor_copy.ptx", "traps.ptx", "variables.ptx", "wgmma.ptx"}) {
      if (file.name != name) continue;
      try {
        Module(file.text, {9, 0, 'a'});
      } catch (const PtxError& error) {
        ADD_FAILURE() << file.name << ": " << error.what();
      }
    }
  }
}

TEST(PtxCorpus, ChangedAtRandomIsLoadedOrRefused) {
  const std::vector<CorpusFile> files = read_corpus();
  ASSERT_FALSE(files.empty());
  Mutator mutator(files);
  int outcomes[3] = {};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 4000; ++i) {
    // A slow machine does fewer.
    if (i >= 500 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(3)) break;
    const std::string text = mutator.next();
    try {
      ++outcomes[static_cast<int>(load(text))];
    } catch (const std::exception& error) {
      FAIL() << "change " << i << ": " << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(outcomes[static_cast<int>(Outcome::refused)], 100);
  EXPECT_GT(outcomes[static_cast<int>(Outcome::loaded)], 10);
}

}  // namespace
}  // namespace jit::emulator
