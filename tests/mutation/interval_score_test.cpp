// Scores as random text, compiled with what is read of them, and asked on the emulator: a tile that is skipped is one of
// which the compiled text makes −inf everywhere.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jit/score.h>

#include "emulator/tests/support/ptx_run.h"
#include "generator/functors/score_mask.h"
#include "generator/program/functor_source.h"
#include "templates/base/params.cuh"
#include "tests/mutation/interval_program.h"
#include "tests/support/random_score_text.h"
#include "tests/support/seed.h"

namespace jit::testing::interval_score {
namespace {

constexpr int texts = 32, tiles = 256, tokens = 66;

struct Tile {
  int q_begin, q_end, k_begin, k_end;
};

/// Texts and chains of two, of which something is known.
std::vector<Score> random_scores(std::mt19937_64& random) {
  std::vector<Score> made;
  while (made.size() < texts) {
    const std::string first = random_score_text(random).body, second = random_score_text(random).body;
    Score score = score::text({.name = "a", .body = first});
    if (random() % 3 == 0) score = score.then(score::text({.name = "b", .body = second}));
    if (score_mask(score) != nullptr) made.push_back(score);
  }
  return made;
}

std::string program_source(const std::vector<Score>& scores) {
  std::string source = R"(
#include "problem/interval_mask.cuh"
#include "problem/score_mask.cuh"
#include "problem/scores.cuh"
using namespace jit;
struct Tile { int q_begin, q_end, k_begin, k_end; };
struct Answer { unsigned char is_skipped, is_infinite; };
template <class Score, class Kept>
__device__ Answer answer(const BlockContext& context, const Tile& tile) {
  const float numbers[] = {0, 3.5f, -40, 1e-37f, 3.402823466e38f, -3.402823466e38f};
  const Score score(context);
  bool is_infinite = true;
  for (int q = tile.q_begin; q < tile.q_end; ++q)
    for (int k = tile.k_begin; k < tile.k_end; ++k)
      for (float number : numbers) is_infinite &= score.apply(number, q, k) == -INFINITY;
  return {!Kept(context).kept(tile.q_begin, tile.q_end, tile.k_begin, tile.k_end).high, is_infinite};
}
)";
  std::string calls;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    AttentionSpec spec;
    spec.score = scores[i];
    const FunctorSource functors = functor_source(spec);
    source += fmt::format("namespace text_{} {{\n", i);
    std::string_view rest = functors.definitions;  // without its #includes, which are above
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n') + 1);
      if (!line.starts_with("#include")) source += line;
      rest.remove_prefix(line.empty() ? rest.size() : line.size());
    }
    source += fmt::format("using Score = {};\n}}\n", functors.score_type);
    calls += fmt::format(
        "  answers[{0} * of_text + i] = answer<text_{0}::Score, text_{0}::ScoreMask>(context, tiles[i]);\n",
        i);
  }
  return source + fmt::format(R"(
extern "C" __global__ void ask(const Tile* tiles, Answer* answers) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x, of_text = gridDim.x * blockDim.x;
  const BlockContext context{{0, 0, 1, {0}, {0}, 0, nullptr}};
{1}}}
)",
                              tokens, calls);
}

struct Answer {
  std::uint8_t is_skipped, is_infinite;
};

// Errors; empty: none.
std::string misjudged(std::uint64_t seed, const ProgramMutation* mutation = nullptr) {
  std::mt19937_64 random(seed);
  const std::vector<Score> scores = random_scores(random);
  const std::string ptx = interval_ptx(program_source(scores), mutation);
  std::vector<Tile> asked;
  for (int i = 0; i < tiles; ++i) {
    const int q = static_cast<int>(random() % 60), k = static_cast<int>(random() % 60);
    asked.push_back({q, q + 1 + static_cast<int>(random() % 6), k, k + 1 + static_cast<int>(random() % 6)});
  }
  emulator::testing::TestDevice device;
  const std::uint64_t answers = device.room<Answer>(texts * tiles);
  const emulator::LaunchResult result =
      device.run(ptx, {.grid = {tiles / 32, 1, 1}, .block = {32, 1, 1}}, {}, device.upload(asked), answers);
  for (const emulator::Finding& finding : result.findings) return to_string(finding);
  const std::vector<Answer> known = device.download<Answer>(answers, texts * tiles);
  int skipped = 0, infinite = 0;
  for (std::size_t i = 0; i < known.size(); ++i) {
    skipped += known[i].is_skipped, infinite += known[i].is_infinite;
    const Tile& tile = asked[i % tiles];
    if (known[i].is_skipped && !known[i].is_infinite)
      return fmt::format("seed {}: tile [{}, {}) [{}, {}) of {}", seed, tile.q_begin, tile.q_end,
                         tile.k_begin, tile.k_end, program_source({scores[i / tiles]}));
  }
  return skipped > infinite / 4 && infinite > 0
             ? ""
             : fmt::format("seed {}: {} of {} tiles are skipped", seed, skipped, infinite);
}

TEST(IntervalScore, SkippedTilesAreInfinite) { EXPECT_EQ(misjudged(reference::test_seed()), ""); }

TEST(IntervalScore, BrokenBoundsAreNoticed) {
  for (const ProgramMutation& mutation : {ProgramMutation{"Less_OnlyIfAllAre", {", $}", ", x.high < y.low}"}},
                                          ProgramMutation{"OpenConditionsChooseTheSecond", {"high", "low"}}})
    EXPECT_NE(misjudged(20, &mutation), "") << mutation.name;
}

}  // namespace
}  // namespace jit::testing::interval_score
