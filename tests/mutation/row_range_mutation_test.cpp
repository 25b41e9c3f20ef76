// Ranges of keys that follow from the texts of masks, compiled and asked on the emulator: those of the texts as they
// stand, and what is broken is noticed. How they are derived: tests/unit/generator/row_range_test.cpp.
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
#include "generator/functors/row_range.h"
#include "generator/program/functor_source.h"
#include "templates/base/params.cuh"
#include "tests/mutation/interval_program.h"
#include "tests/support/random_mask_text.h"

namespace jit::testing::row_range_mutations {
namespace {

constexpr int most_rows = 80;
constexpr int scenes = 24;
constexpr std::size_t texts = 26;

/// Queries of a batch entry and head.
struct Scene {
  int q_begin, q_end, b, h, seqlen_q, seqlen_kv;
};
struct Keys {
  int begin, end;
};

std::vector<Scene> random_scenes() {
  std::mt19937_64 random(22);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  std::vector<Scene> made;
  for (int i = 0; i < scenes; ++i) {
    const int seqlen_q = 1 + below(120), seqlen_kv = 1 + below(120), q = below(seqlen_q);
    made.push_back(
        {q, std::min(seqlen_q, q + 1 + below(most_rows)), below(4), below(8), seqlen_q, seqlen_kv});
  }
  return made;
}

int id(std::int64_t i) { return random_text_id(i); }

/// An operation each of which it is known that the range depends on it, and random ones, the same in every run.
std::vector<RandomMaskText> texts_of_the_test() {
  std::vector<RandomMaskText> made = {
      {"return k < 2 * q + 3 && k >= q - 20;",
       [](const TextPlace& at) { return at[1] < 2 * at[0] + 3 && at[1] >= at[0] - 20; }},
      {"return k < q / 3 * 3 + q % 5;",
       [](const TextPlace& at) { return at[1] < at[0] / 3 * 3 + at[0] % 5; }},
      {"return k < (q << 3 >> 0) - (~q & 6 ^ 3 | 8);",
       [](const TextPlace& at) { return at[1] < (at[0] << 3 >> 0) - (((~at[0] & 6) ^ 3) | 8); }},
      {"return k < min(q, 30) + max(b, 2) - abs(q - 50);",
       [](const TextPlace& at) {
         return at[1] < std::min(at[0], 30) + std::max(at[2], 2) - std::abs(at[0] - 50);
       }},
      {"return k < static_cast<int>((unsigned)q / 4294967295u) + q % (unsigned)(q + 3);",
       [](const TextPlace&) { return std::optional<bool>(); }},  // natural numbers: never of a range
      {"const int wide = static_cast<int>((unsigned)(q + 1) / 4294967295u);\nreturn k < wide + 5;",
       [](const TextPlace& at) { return at[1] < 5; }},
      {"const int rest = static_cast<int>(4294967291u % (unsigned)-1);\nreturn k < rest + 9 + q;",
       [](const TextPlace& at) { return at[1] < 4 + at[0]; }},
      {"return k < -q + 40 && (q == 3 || !(q != b + 4) || b <= 2) && h < 6;",
       [](const TextPlace& at) {
         return at[1] < 40 - at[0] && (at[0] == 3 || at[0] == at[2] + 4 || at[2] <= 2) && at[3] < 6;
       }},
      {"return k < (-q - 7) / -1 % 50 - q % -1;",
       [](const TextPlace& at) { return at[1] < (at[0] + 7) % 50; }},
      {"return static_cast<long long>(k) * 1 < 5 || static_cast<long long>(k - q) < 1ll * q * q - 900;",
       [](const TextPlace&) { return std::optional<bool>(); }},  // arithmetic of 64 bits: never of a range
      {"return static_cast<long long>(k - q) < 1ll * q * q - 900;",
       [](const TextPlace& at) { return at[1] - at[0] < at[0] * at[0] - 900; }},
      {"return q % 2 ? k < 9 : k > q;",
       [](const TextPlace& at) { return at[0] % 2 ? at[1] < 9 : at[1] > at[0]; }},
      {"return k > ids[q] && k < q + ids[b];",
       [](const TextPlace& at) { return at[1] > id(at[0]) && at[1] < at[0] + id(at[2]); }},
      // Elements that no evaluation reaches are not read.
      {"if (q >= 40) return k < 3;\nreturn k > ids[q + 984] * 4;",
       [](const TextPlace& at) { return at[0] >= 40 ? at[1] < 3 : at[1] > id(at[0] + 984) * 4; }},
      {"return k >= 70 && k > q + ids[seqlen_kv > 70 ? q : 5000];",
       [](const TextPlace& at) { return at[1] >= 70 && at[1] > at[0] + id(at[0]); }},
      {"return k - 70 < 0 && k < 3 - q || b > 9 && ids[5000] == 2;",
       [](const TextPlace& at) { return at[1] < 70 && at[1] < 3 - at[0]; }},
  };
  std::erase_if(made, [](const RandomMaskText& text) {
    return !text_row_range({.name = "m", .body = text.body, .tensors = {{"ids", DType::int32}}});
  });
  std::mt19937_64 random(23);
  while (made.size() < texts) {
    RandomMaskText text = random_range_text(random);
    if (text_row_range({.name = "m", .body = text.body, .tensors = {{"ids", DType::int32}}}))
      made.push_back(std::move(text));
  }
  return made;
}

// A warp for each scene; of each mask the keys of all queries, then those of each.
std::string program_source(const std::vector<RandomMaskText>& masks) {
  AttentionSpec spec;
  for (std::size_t i = 0; i < masks.size(); ++i)
    spec.mask = spec.mask && mask::text({.name = fmt::format("m{}", i),
                                         .body = masks[i].body,
                                         .tensors = {{"ids", DType::int32}}});
  std::string source =
      "#include \"problem/masks.cuh\"\n\nusing namespace jit;\n\n" + functor_source(spec).definitions +
      "struct Scene { int q_begin, q_end, b, h, seqlen_q, seqlen_kv; };\n"
      "template <class Mask>\n"
      "__device__ void answer(const Mask& mask, const Scene& scene, KeyRange* answers) {\n"
      "  const KeyRange all = mask.key_range(scene.q_begin, scene.q_end);\n"
      "  if (lane_id() == 0) answers[0] = all;\n"
      "  for (int q = scene.q_begin + lane_id(); q < scene.q_end; q += warp_size)\n"
      "    answers[1 + q - scene.q_begin] = mask.row_range(q);\n"
      "}\n"
      "extern \"C\" __global__ void ask(const Scene* scenes, KeyRange* answers, FunctorTensor ids) {\n"
      "  const Scene scene = scenes[blockIdx.x];\n"
      "  const BlockContext context{scene.b, scene.h, 8, scene.seqlen_q, scene.seqlen_kv, 0, &ids};\n";
  for (std::size_t i = 0; i < masks.size(); ++i)
    source +=
        fmt::format("  answer(UserMask{}(context), scene, answers + ({} * gridDim.x + blockIdx.x) * {});\n",
                    i, i, 1 + most_rows);
  return source + "}\n";
}

// The query whose keys disagree with its text; empty: none.
std::string misjudged(const RandomMaskText& mask, const Scene& scene, const Keys* answers) {
  const auto wrong = [&](int q) {
    return fmt::format("[{}, {}) of q {}, {} queries, {} keys\n{}", answers->begin, answers->end, q,
                       scene.seqlen_q, scene.seqlen_kv, mask.body);
  };
  const Keys all = *answers;
  Keys seen = {scene.seqlen_kv, 0};
  bool is_defined = true;
  for (int q = scene.q_begin; q < scene.q_end; ++q) {
    ++answers;
    if (answers->begin < 0 || answers->end > scene.seqlen_kv) return wrong(q);
    for (int k = 0; k < scene.seqlen_kv; ++k) {
      const std::optional<bool> keeps =
          mask.keep({q, k, scene.b, scene.h, 8, scene.seqlen_q, scene.seqlen_kv});
      is_defined &= keeps.has_value();
      if (!keeps) continue;
      if (*keeps != (k >= answers->begin && k < answers->end)) return wrong(q);
      if (*keeps) seen = {std::min(seen.begin, k), std::max(seen.end, k + 1)};
    }
  }
  if (!is_defined) return "";
  if (all.begin != seen.begin || all.end != seen.end)
    return fmt::format("[{}, {}) of all queries\n{}", all.begin, all.end, mask.body);
  return "";
}

std::string misjudged(const ProgramMutation* mutation = nullptr) {
  const std::vector<RandomMaskText> masks = texts_of_the_test();
  const std::string ptx = interval_ptx(program_source(masks), mutation);
  const std::vector<Scene> asked = random_scenes();
  std::vector<std::int32_t> ids(1024);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = random_text_id(static_cast<std::int64_t>(i));
  emulator::testing::TestDevice device;
  constexpr std::size_t of_scene = 1 + most_rows;
  const std::uint64_t answers = device.room<Keys>(texts * scenes * of_scene);
  const FunctorTensor tensor{reinterpret_cast<const void*>(device.upload(ids)), {1, 0, 0}, 1024, 1};
  const emulator::LaunchResult result = device.run(ptx, {.grid = {scenes, 1, 1}, .block = {32, 1, 1}}, {},
                                                   device.upload(asked), answers, tensor);
  for (const emulator::Finding& finding : result.findings) return to_string(finding);
  const std::vector<Keys> known = device.download<Keys>(answers, texts * scenes * of_scene);
  for (std::size_t m = 0; m < texts; ++m) {
    for (std::size_t i = 0; i < scenes; ++i) {
      std::string wrong = misjudged(masks[m], asked[i], &known[(m * scenes + i) * of_scene]);
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

TEST(RowRangeMask, IsRightUnmutated) { EXPECT_EQ(misjudged(), ""); }

class RowRangeMutation : public ProgramMutationTest {};

TEST_P(RowRangeMutation, IsCaught) { EXPECT_NE(misjudged(&GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(
    Rules, RowRangeMutation,
    ::testing::Values(ProgramMutation{"NumbersWithoutASignAreMinusOne", {"return $ x", "return x"}},
                      ProgramMutation{"ConditionsChooseTheOther", {"x$ y", "y$ x"}},
                      ProgramMutation{"ElementsThatAreNotRead",
                                      {"$", "return static_cast<T>(tensor[index.value]);"}},
                      ProgramMutation{"RowsBegin_BeforeTheSequence", {"maximum(0ll, $)", "$"}},
                      ProgramMutation{"RowsBegin_BeyondAnInt", {"minimum(most_keys, $)", "$"}},
                      ProgramMutation{"RowsEndBehindTheSequence", {"0ll, $))}", "0ll, end.value))}"}},
                      ProgramMutation{"EmptyRowsCount", removed},
                      ProgramMutation{"KeysOfTheFirstRowsOfAll", {"+= $)", "= q_end)"}},
                      ProgramMutation{"KeysFromTheLastBegin", {"= $;", "= row.begin;"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::row_range_mutations
