// Masks as random text, compiled and asked of tiles on the emulator: never wrong as they stand, and broken bounds are
// noticed. Each rule of bounds by itself: interval_rules_mutation_test.cpp.
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jit/spec.h>

#include "emulator/tests/support/ptx_run.h"
#include "generator/functors/functor_node.h"
#include "generator/program/functor_source.h"
#include "templates/base/params.cuh"
#include "tests/mutation/interval_program.h"
#include "tests/support/random_mask_text.h"

namespace jit::testing::interval_mask_mutations {
namespace {

constexpr int texts = 24, tiles = 640;

struct Tile {
  int q_begin, q_end, k_begin, k_end, b, h, seqlen_q, seqlen_kv;
};

std::vector<Tile> random_tiles(std::mt19937_64& random) {
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  std::vector<Tile> made;
  for (int i = 0; i < tiles; ++i) {
    const int seqlen_q = 1 + below(300), seqlen_kv = 1 + below(300), q = below(seqlen_q),
              k = below(seqlen_kv);
    made.push_back({q, std::min(seqlen_q, q + 1 + below(12)), k, std::min(seqlen_kv, k + 1 + below(12)),
                    below(4), below(8), seqlen_q, seqlen_kv});
  }
  return made;
}

/// One of which it is known what it depends on, and random ones, the same in every run: which mutations show depends on
/// them.
std::vector<RandomMaskText> texts_of_the_test() {
  std::mt19937_64 random(20);
  std::vector<RandomMaskText> made = {
      {"return (q - k) % 5 > 1;", [](const TextPlace& at) { return (at[0] - at[1]) % 5 > 1; }}};
  while (made.size() < texts) made.push_back(random_mask_text(random));
  return made;
}

// A thread for each tile; of each mask what is certain, and twice what is possible.
std::string program_source(const std::vector<RandomMaskText>& masks) {
  AttentionSpec spec;
  for (std::size_t i = 0; i < masks.size(); ++i)
    spec.mask = spec.mask && mask::text({.name = fmt::format("m{}", i),
                                         .body = masks[i].body,
                                         .tensors = {{"ids", DType::int32}}});
  std::string source =
      "#include \"problem/masks.cuh\"\n\nusing namespace jit;\n\n" + functor_source(spec).definitions;
  source +=
      "struct Tile { int q_begin, q_end, k_begin, k_end, b, h, seqlen_q, seqlen_kv; };\n"
      "extern \"C\" __global__ void ask(const Tile* tiles, unsigned char* answers, FunctorTensor ids) {\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  const Tile tile = tiles[i];\n"
      "  const BlockContext context{tile.b, tile.h, 8, tile.seqlen_q, tile.seqlen_kv, 0, &ids};\n"
      "  const auto answer = [&](int mask, Interval<bool> kept) {\n"
      "    answers[mask * gridDim.x * blockDim.x + i] = kept.low + 2 * kept.high;\n"
      "  };\n";
  for (std::size_t i = 0; i < masks.size(); ++i)
    source += fmt::format(
        "  answer({0}, UserMask{0}(context).kept(tile.q_begin, tile.q_end, tile.k_begin, tile.k_end));\n", i);
  return source + "}\n";
}

// Which tile of which text is judged wrongly; empty: none is.
std::string misjudged(const ProgramMutation* mutation = nullptr) {
  const std::vector<RandomMaskText> masks = texts_of_the_test();
  const std::string ptx = interval_ptx(program_source(masks), mutation);
  std::mt19937_64 random(21);
  const std::vector<Tile> asked = random_tiles(random);
  std::vector<std::int32_t> ids(1024);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = random_text_id(static_cast<std::int64_t>(i));
  emulator::testing::TestDevice device;
  const std::uint64_t answers = device.room<std::uint8_t>(texts * tiles);
  const FunctorTensor tensor{reinterpret_cast<const void*>(device.upload(ids)), {1, 0, 0}, 1024, 1};
  const emulator::LaunchResult result = device.run(ptx, {.grid = {tiles / 32, 1, 1}, .block = {32, 1, 1}}, {},
                                                   device.upload(asked), answers, tensor);
  for (const emulator::Finding& finding : result.findings) return to_string(finding);
  const std::vector<std::uint8_t> known = device.download<std::uint8_t>(answers, texts * tiles);
  int certain = 0;
  for (std::size_t m = 0; m < texts; ++m) {
    for (std::size_t i = 0; i < tiles; ++i) {
      const Tile& tile = asked[i];
      const bool is_certain = known[m * tiles + i] % 2, is_possible = known[m * tiles + i] / 2;
      certain += is_certain == is_possible;
      for (int q = tile.q_begin; q < tile.q_end; ++q) {
        for (int k = tile.k_begin; k < tile.k_end; ++k) {
          const std::optional<bool> keeps =
              masks[m].keep({q, k, tile.b, tile.h, 8, tile.seqlen_q, tile.seqlen_kv});
          if (keeps && ((*keeps && !is_possible) || (!*keeps && is_certain)))
            return fmt::format("q {}, k {} of tile [{}, {}) [{}, {})\n{}", q, k, tile.q_begin, tile.q_end,
                               tile.k_begin, tile.k_end, masks[m].body);
        }
      }
    }
  }
  return certain > texts * tiles / 4 ? ""
                                     : fmt::format("only {} tiles of {} are known", certain, texts * tiles);
}

TEST(IntervalMask, IsRightUnmutated) { EXPECT_EQ(misjudged(), ""); }

class IntervalMaskMutation : public ProgramMutationTest {};

TEST_P(IntervalMaskMutation, IsCaught) { EXPECT_NE(misjudged(&GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(
    Rules, IntervalMaskMutation,
    ::testing::Values(ProgramMutation{"DifferencesOfTheSameEnds", {"high, $low", "low, $high"}},
                      ProgramMutation{"Less_Possibly", {"{$,", "{x.low < y.high,"}},
                      ProgramMutation{"Remainders_OfSeveralQuotients", {"() $)", "())"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::interval_mask_mutations
