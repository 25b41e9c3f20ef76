// Texts of masks that kernels ask for their parts, compiled and asked on the emulator: the scores that their bits keep are
// those of the texts as they stand, and what is broken is noticed. How texts are taken apart:
// tests/unit/generator/mask_parts_test.cpp.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jit/spec.h>

#include "emulator/tests/support/ptx_run.h"
#include "generator/functors/mask_parts.h"
#include "generator/program/functor_source.h"
#include "templates/base/params.cuh"
#include "tests/mutation/interval_program.h"
#include "tests/support/random_mask_text.h"

namespace jit::testing::mask_parts_mutations {
namespace {

constexpr int rows = 16;
constexpr int most_columns = 112;
constexpr int scenes = 20;
constexpr std::size_t texts = 12;

/// The first query and key of a tile.
struct Scene {
  int q, k, b, h, seqlen_q, seqlen_kv;
};

std::vector<Scene> random_scenes() {
  std::mt19937_64 random(32);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  std::vector<Scene> made;
  for (int i = 0; i < scenes; ++i) {
    const int seqlen_q = 1 + below(120), seqlen_kv = 1 + below(240);
    made.push_back({below((seqlen_q + 7) / 8) * 8, below((seqlen_kv + 15) / 16) * 16, below(4), below(8),
                    seqlen_q, seqlen_kv});
  }
  return made;
}

int id(std::int64_t i) { return random_text_id(i); }

/// Each function that asks for parts, and random texts, the same in every run.
std::vector<RandomMaskText> texts_of_the_test() {
  std::vector<RandomMaskText> made = {
      {"return k <= q + seqlen_kv - seqlen_q && (q - k) % 4 == 0;",
       [](const TextPlace& at) { return at[1] <= at[0] + at[6] - at[5] && (at[0] - at[1]) % 4 == 0; }},
      // Elements are there for the distances of queries and keys that exist.
      {"return ids[q - k + 1024 - seqlen_q] > 0 || k == 17;",
       [](const TextPlace& at) { return id(at[0] - at[1] + 1024 - at[5]) > 0 || at[1] == 17; }},
      {"return k % 3 == 1 || q % 5 == 2;",
       [](const TextPlace& at) { return at[1] % 3 == 1 || at[0] % 5 == 2; }},
      {"return k < 2 * q && k < 60 && ids[k + 964] > 0;",
       [](const TextPlace& at) { return at[1] < 2 * at[0] && at[1] < 60 && id(at[1] + 964) > 0; }},
      {"return k + q % 7 < 60 && q < 33 && ids[q + 991] > 0;",
       [](const TextPlace& at) { return at[1] + at[0] % 7 < 60 && at[0] < 33 && id(at[0] + 991) > 0; }},
      {"return abs(q - k) < 9 || k < 64 && q < 48 && ids[q / 8 * 4 + k / 16 + 1000] != 0;",
       [](const TextPlace& at) {
         return std::abs(at[0] - at[1]) < 9 ||
                (at[1] < 64 && at[0] < 48 && id(at[0] / 8 * 4 + at[1] / 16 + 1000) != 0);
       }},
      // No query comes to read; those that do not exist would.
      {"return q - k < 200 || ids[k + 974] > 0;", [](const TextPlace&) { return true; }},
      {"return k * q % 3 == 0 && k >= q / 2 || k < q - 50;",
       [](const TextPlace& at) {
         return (at[1] * at[0] % 3 == 0 && at[1] >= at[0] / 2) || at[1] < at[0] - 50;
       }},
  };
  std::mt19937_64 random(33);
  while (made.size() < texts) {
    RandomMaskText text = random_part_text(random);
    if (mask_parts({.name = "m", .body = text.body, .tensors = {{"ids", DType::int32}}}))
      made.push_back(std::move(text));
  }
  return made;
}

// A warp for each scene, which asks each mask in both layouts of scores; the last masks are joined of others.
std::string program_source(const std::vector<RandomMaskText>& masks) {
  AttentionSpec spec;
  for (std::size_t i = 0; i < masks.size(); ++i)
    spec.mask = spec.mask && mask::text({.name = fmt::format("m{}", i),
                                         .body = masks[i].body,
                                         .tensors = {{"ids", DType::int32}}});
  std::string source = fmt::format(
      "#include \"problem/masks.cuh\"\n#include \"steps/score_bits.cuh\"\n\nusing namespace jit;\n\n{}"
      "struct Scene {{ int q, k, b, h, seqlen_q, seqlen_kv; }};\n"
      "template <class Layout, int blocks, class Mask>\n"
      "__device__ void answer(const Mask& mask, const BlockContext& context, const Scene& scene, unsigned "
      "char* answers) {{\n"
      "  const int row = Layout::lane_row(lane_id()), column = Layout::lane_column(lane_id());\n"
      "  const MaskedScores<Layout, blocks> scores(scene.q + row, scene.k + column, context);\n"
      "  const auto kept = kept_bits(mask, scores) & scores.of_existing_keys();\n"
      "#pragma unroll 1\n"
      "  for (int n = 0; n < blocks; ++n) {{\n"
      "#pragma unroll 1\n"
      "    for (int i = 0; i < 4; ++i)\n"
      "      answers[Layout::row(row, 0, i / 2) * {} + Layout::column(column, n, i % 2)] = kept.at(n, i / 2, "
      "i % 2);\n"
      "  }}\n"
      "}}\n"
      "template <class Mask>\n"
      "__device__ void answer(const Mask& mask, const BlockContext& context, const Scene& scene, unsigned "
      "char* answers) {{\n"
      "  answer<MmaLayout, 10>(mask, context, scene, answers);\n"
      "  answer<EvenOddLayout, 14>(mask, context, scene, answers + {});\n"
      "}}\n"
      "extern \"C\" __global__ void ask(const Scene* scenes, unsigned char* answers, FunctorTensor ids) {{\n"
      "  const Scene scene = scenes[blockIdx.x];\n"
      "  const BlockContext context{{scene.b, scene.h, 8, scene.seqlen_q, scene.seqlen_kv, 0, &ids}};\n",
      functor_source(spec).definitions, most_columns, rows * most_columns);
  for (std::size_t i = 0; i < masks.size(); ++i)
    source += fmt::format(
        "  answer(UserMask{}(context), context, scene, answers + ({} * gridDim.x + blockIdx.x) * {});\n", i,
        i, 2 * rows * most_columns);
  return source + "}\n";
}

// The score whose bit disagrees with the text; empty: none.
std::string misjudged(const RandomMaskText& mask, const Scene& scene, const std::uint8_t* answers,
                      int columns) {
  for (int row = 0; row < rows && scene.q + row < scene.seqlen_q; ++row) {
    for (int column = 0; column < columns; ++column) {
      const TextPlace place = {scene.q + row,  scene.k + column, scene.b, scene.h, 8,
                               scene.seqlen_q, scene.seqlen_kv};
      const bool exists = place[1] < scene.seqlen_kv;
      const std::optional<bool> keeps = exists ? mask.keep(place) : false;
      if (keeps && *keeps != (answers[row * most_columns + column] != 0))
        return fmt::format("q {}, k {} of {} queries, {} keys, from {}, {}\n{}", place[0], place[1],
                           scene.seqlen_q, scene.seqlen_kv, scene.q, scene.k, mask.body);
    }
  }
  return "";
}

std::string misjudged(const ProgramMutation* mutation = nullptr) {
  const std::vector<RandomMaskText> masks = texts_of_the_test();
  const std::string ptx = interval_ptx(program_source(masks), mutation);
  const std::vector<Scene> asked = random_scenes();
  std::vector<std::int32_t> ids(1024);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = random_text_id(static_cast<std::int64_t>(i));
  emulator::testing::TestDevice device;
  constexpr std::size_t of_scene = 2 * rows * most_columns;
  const std::uint64_t answers = device.room<std::uint8_t>(texts * scenes * of_scene);
  const FunctorTensor tensor{reinterpret_cast<const void*>(device.upload(ids)), {1, 0, 0}, 1024, 1};
  const emulator::LaunchResult result = device.run(ptx, {.grid = {scenes, 1, 1}, .block = {32, 1, 1}}, {},
                                                   device.upload(asked), answers, tensor);
  for (const emulator::Finding& finding : result.findings) return to_string(finding);
  const std::vector<std::uint8_t> kept = device.download<std::uint8_t>(answers, texts * scenes * of_scene);
  for (std::size_t m = 0; m < texts; ++m) {
    for (std::size_t i = 0; i < scenes; ++i) {
      const std::uint8_t* const of = &kept[(m * scenes + i) * of_scene];
      for (const bool even_odd : {false, true}) {
        std::string wrong =
            misjudged(masks[m], asked[i], of + (even_odd ? rows * most_columns : 0), even_odd ? 112 : 80);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

TEST(MaskParts, AreRightUnmutated) { EXPECT_EQ(misjudged(), ""); }

class MaskPartsMutation : public ProgramMutationTest {};

TEST_P(MaskPartsMutation, IsCaught) { EXPECT_NE(misjudged(&GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(
    Rules, MaskPartsMutation,
    ::testing::Values(
        ProgramMutation{"NeighborsOfTheOtherLayout", {"= 4;", "= 2;"}},
        ProgramMutation{"KeysThatDoNotExist", {"{ $ }", "{ return ~0u; }"}},
        ProgramMutation{"RangesOfTheUpperRow", {"= $;", "= $ + half;"}},
        ProgramMutation{"RangesOfTheWarpsFirstKey", {"= $;", "= $ + lane_column();"}},
        ProgramMutation{"KeysOfOneRowAreAsked", {" | $;", ";"}},
        ProgramMutation{"KeysAreAskedWhereTheLaneIs", {" << $()", ""}},
        ProgramMutation{"KeysLieWhereTheyWereAsked", {")) $()", "))"}},
        ProgramMutation{"Distances_CountFromTheLastRow", {" - $);", ");"}},
        ProgramMutation{"Distances_EndWithTheirWord", {", kept[$]", ", 0"}},
        ProgramMutation{"DistancesOfQueriesThatDoNotExist", {"q $ seqlen_kv_ && ", ""}},
        ProgramMutation{"DistancesOfTheFirstRow", {" + maximum(-$)", ""}},
        ProgramMutation{"BlocksOfTheLowerHalfAreNotAsked", {"($ + ", "("}},
        ProgramMutation{"BlocksAreAskedByTheirLowerKeys", {"| $ << 1", "| 0u"}},
        ProgramMutation{"BlocksOfOneRow", {"+ $ 8", "+ 0"}},
        ProgramMutation{"BlocksAreOfEightKeys", {"16,", "8,"}},
        ProgramMutation{"ReadsWhatNoQueryAsksFor", {"{ $ }", "{ return bits_between(w, 0, end); }"}},
        ProgramMutation{"ReadsBehindTheTile", {"= $ :", "= true ? seqlen_kv_ - k_ :"}},
        ProgramMutation{"ScoresOfTheFirstBlock", {" << $;", ";"}},
        ProgramMutation{"ElementsThatAreNotRead", {"$", "return static_cast<T>(tensor[index.value]);"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::mask_parts_mutations
