// Words of the library: those that went out of use are used nowhere, and docs/reference/glossary.md tells of each.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
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

/// A word that is out of use, and the one of the glossary in its place. It is found in prose and as a part of an
/// identifier, whatever its case, also with an s behind it: "mask bit" in mask_bits, MaskBits and "Mask bits". One with
/// '_' is an identifier as it is.
struct RetiredWord {
  const char* word;
  const char* now;
  const char* where = "";    ///< a pattern of what paths begin with; elsewhere the word has another meaning
  const char* but_not = "";  ///< a pattern of texts that stay: names of others, and of recorded results

  bool is_identifier() const { return std::string(word).find('_') != std::string::npos; }
};

constexpr const char* split_families =
    "templates/(split_keys|forward_split_|forward_mla_|scheduling/key_)|docs/kernels/forward_(split|mla)_";
constexpr const char* kernels = "templates/|generator/|docs/kernels/";
constexpr const char* infos = "templates/|docs/kernels/|docs/(kernels-)?fp8.md";
constexpr const char* quantizer = "templates/quantize|generator/operations/quantize";
/// Where a ring is one of processes, whose messages go around.
constexpr const char* not_of_ranks =
    "(?!python/jit_attention/distributed/|docs/distributed|docs/records/performance|docs/reference/"
    "frameworks)";
constexpr const char* row_operations = "templates/(append|quantize|merge|base)";

// The glossary names each of them in the row of the word that is used now.
constexpr RetiredWord retired_words[] = {
    {"ring", "pipeline", not_of_ranks},
    {"TileRing", "pipeline"},
    {"wait_empty", "producer_acquire"},
    {"arrive_full", "producer_commit"},
    {"wait_full", "consumer_wait"},
    {"arrive_empty", "consumer_release"},
    {"loader", "producer", "", "spec\\.loader"},
    {"WarpgroupTurns", "WarpgroupOrderBarrier"},
    {"inbox", "receive buffer"},
    {"handover", "P exchange"},
    {"note", "tile info", infos},
    {"KeyNote", "tile info"},
    {"QueryNote", "tile info"},
    {"dealer", "tile scheduler"},
    {"dealt", "tile scheduler"},
    {"deal", "tile scheduler", kernels},
    {"dealing", "tile scheduler", kernels},
    {"unit", "work tile", split_families},
    {"line", "tile space", "templates/(split_keys|scheduling/key_)"},
    {"piece", "work range", "templates/scheduling/key_"},
    {"part", "split", "templates/(split_keys|forward_split_|scheduling/key_)|docs/kernels/forward_split_"},
    {"PartNote", "split"},
    {"strip", "column slice", kernels},
    {"turn", "iteration", row_operations, "in turns"},
    {"ragged", "varlen", "",
     "compare-ragged\\.svg|compare-\\{paged,ragged|compare\\.py: ragged|!\\[ragged,|--suite "
     ".*|ragged/prefill-[a-z]*|"
     "`ragged`: requests|\\| `ragged` \\|"},
    {"widen", "upcast"},
    {"widened", "upcast"},
    {"widening", "upcast"},
    {"turned over", "transposed"},
    {"known score", "mask bits", "", "_known_score_of"},
    {"drawn ahead", "precomputed dropout mask"},
    {"draw_ahead", "precomputed dropout mask"},
    {"DrawnScores", "precomputed dropout mask"},
    {"kept", "resident", quantizer},
    {"kept_share", "mask_density"},
    {"held_rows", "A operand in registers"},
    {"equal bit", "bitwise identical"},
    {"stands_in", "fallback"},
};

/// The words of a text, each between spaces and in lower case; identifiers come apart at '_' and before capitals.
std::string words_of(const std::string& text) {
  const auto is_between = [](char low, char c, char high) { return low <= c && c <= high; };
  std::string words = " ";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], before = i > 0 ? text[i - 1] : ' ',
               behind = i + 1 < text.size() ? text[i + 1] : ' ';
    const bool is_capital = is_between('A', c, 'Z'), is_letter = is_capital || is_between('a', c, 'z');
    const bool begins = is_capital && (!is_between('A', before, 'Z') || is_between('a', behind, 'z'));
    if ((begins || !is_letter) && words.back() != ' ') words += ' ';
    if (is_letter) words += is_capital ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return words + " ";
}

bool is_among(const RetiredWord& retired, const std::string& words) {
  std::string wanted = words_of(retired.word);  // ends with two spaces, or one
  while (wanted.ends_with(' ')) wanted.pop_back();
  return words.find(wanted + ' ') != std::string::npos || words.find(wanted + "s ") != std::string::npos;
}

bool is_in(const RetiredWord& retired, std::string text) {
  if (*retired.but_not != '\0') text = std::regex_replace(text, std::regex(retired.but_not), "");
  if (!retired.is_identifier()) return is_among(retired, words_of(text));
  return std::regex_search(text, std::regex("\\b" + std::string(retired.word) + "\\b"));
}

/// Product code and pages. The notebook and the log of test runs tell what was, with the names that things had.
std::vector<fs::path> searched_files() {
  std::vector<fs::path> paths = {root / "README.md"};
  for (const char* folder : {"templates", "generator", "include", "runtime", "python", "tools", "docs"}) {
    for (const auto& item : fs::recursive_directory_iterator(root / folder)) {
      const std::string name = item.path().filename();
      const bool is_past =
          name == "notebook.md" || name == "gpu-verification.md" || name == "retired_fields.cpp";
      const std::string extension = item.path().extension();
      if (item.is_regular_file() && !is_past && name != "glossary.md" && extension != ".svg" &&
          extension != ".pyc")
        paths.push_back(item.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Entry {
  std::string word, instead_of;
};

/// Rows of the glossary's tables.
std::vector<Entry> glossary() {
  static const std::regex row(R"(\| ([^|]+) \| [^|]+ \| ?([^|]*)\|)");
  std::vector<Entry> entries;
  std::istringstream text(read(root / "docs/reference/glossary.md"));
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (!std::regex_match(line, match, row) || match[1] == "word" || match[1].str().starts_with("---"))
      continue;
    entries.push_back({std::regex_replace(match[1].str(), std::regex("`"), ""), match[2]});
  }
  return entries;
}

TEST(Glossary, RetiredWordsAreOutOfUse) {
  for (const fs::path& path : searched_files()) {
    const std::string file = fs::relative(path, root).generic_string(), whole = read(path),
                      words = words_of(whole);
    for (const RetiredWord& retired : retired_words) {
      if (retired.is_identifier() ? whole.find(retired.word) == std::string::npos : !is_among(retired, words))
        continue;
      if (!std::regex_search(file, std::regex("^(" + std::string(retired.where) + ")"))) continue;
      std::istringstream text(whole);
      int number = 0;
      for (std::string line; std::getline(text, line);) {
        ++number;
        EXPECT_FALSE(is_in(retired, line))
            << file << ":" << number << ": '" << retired.word << "' is called '" << retired.now
            << "' (docs/reference/glossary.md): " << line;
      }
    }
  }
}

// Phrases that read as translated, with those that pages use. Records keep the words that they were written in.
constexpr std::pair<const char*, const char*> page_phrases[] = {
    {"nobody", "no warp, block or call"},
    {"on the device alone", "only on the device"},
    {"refused by name", "refused with an error that names it"},
    {"refused by a sentence", "refused with an error"},
    {"rows that are no query's", "padding rows"},
    {"turned over", "transposed"},
    {"so manieth", "every n-th"},
    {"is another thing", "differs"},
};

TEST(Glossary, PagesUseTheFieldsPhrases) {
  for (const fs::path& path : searched_files()) {
    const std::string file = fs::relative(path, root).generic_string();
    if (path.extension() != ".md" || file.starts_with("docs/records/")) continue;
    const std::string text = std::regex_replace(read(path), std::regex("\\s+"), " ");
    for (const auto& [phrase, now] : page_phrases)
      EXPECT_EQ(text.find(phrase), std::string::npos)
          << file << ": '" << phrase << "' reads as '" << now << "'";
  }
}

TEST(Glossary, TellsOfEachRetiredWord) {
  const std::vector<Entry> entries = glossary();
  EXPECT_GT(entries.size(), 30u);
  for (const RetiredWord& retired : retired_words) {
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& one) { return one.word == retired.now; });
    ASSERT_NE(entry, entries.end()) << retired.now;
    EXPECT_TRUE(is_among(retired, words_of(entry->instead_of))) << retired.word << " at " << retired.now;
  }
}

TEST(Glossary, EachWordHasOneMeaning) {
  std::vector<std::string> words;
  for (const Entry& entry : glossary()) words.push_back(entry.word);
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
}

TEST(Glossary, WordsAreFoundInProseAndInIdentifiers) {
  const RetiredWord bits{"known score", ""}, ring{"ring", ""}, name{"draw_ahead", ""};
  for (const char* line :
       {"Known scores of a tile", "load_known_scores(x)", "class KnownScores {", "known_score_words"})
    EXPECT_TRUE(is_in(bits, line)) << line;
  for (const char* line : {"scores that are known", "unknown scores"})
    EXPECT_FALSE(is_in(bits, line)) << line;
  EXPECT_TRUE(is_in(ring, "KVRing<2> k;"));
  EXPECT_FALSE(is_in(ring, "storing a string"));
  EXPECT_TRUE(is_in(name, "config.draw_ahead = true"));
  EXPECT_FALSE(is_in(name, "redraw_ahead, to draw ahead"));
  EXPECT_FALSE(is_in({"loader", "", "", "spec\\.loader"}, "spec.loader.exec_module(helpers)"));
}

}  // namespace
