// Block masks that know the scores of partial blocks: the bits that the device leaves, and attention by them, which is that of
// the mask to the bit.
#include <jit/block_mask.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/device_tensor.h"
#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::int64_t> sizes(const std::array<std::int64_t, 4>& shape) {
  return {shape.begin(), shape.end()};
}

/// A table with the bits of as many blocks as there is room for.
struct KnownTable {
  DeviceTensor table, places, scores;

  KnownTable(const BlockMaskSpec& spec, std::int64_t batch, std::int64_t heads, std::int64_t seqlen_q,
             std::int64_t seqlen_kv, std::int64_t room)
      : table(DType::int32, sizes(block_mask_shape(spec, batch, heads, seqlen_q, seqlen_kv))),
        places(DType::int32, sizes(block_places_shape(spec, batch, heads, seqlen_q, seqlen_kv))),
        scores(DType::int32, sizes(block_scores_shape(spec, batch, heads, room))) {
    table.upload(), places.upload(), scores.upload();
  }

  BlockMaskArguments arguments(const NamedTensors& tensors, std::int64_t heads_q, std::int64_t seqlen_q,
                               std::int64_t seqlen_kv) const {
    return {.block_mask = table.view(),
            .block_places = places.view(),
            .block_scores = scores.view(),
            .seqlen_q = seqlen_q,
            .seqlen_kv = seqlen_kv,
            .heads_q = heads_q,
            .tensors = tensors};
  }
  void add_to(NamedTensors& tensors) const {
    tensors.add({"block_mask", table.view()});
    tensors.add({"block_places", places.view()});
    tensors.add({"block_scores", scores.view()});
  }
  /// The device's copy of one of the three tensors.
  static reference::FunctorData data_of(DeviceTensor& tensor) {
    tensor.download();
    const TensorView& view = tensor.view();
    reference::FunctorData data{
        .dtype = view.dtype, .shape = {view.shape, view.shape + view.rank}, .bytes = {}};
    const auto* const bytes = reinterpret_cast<const std::byte*>(tensor.bytes().data());
    data.bytes.assign(bytes, bytes + tensor.count() * size_of(view.dtype));
    return data;
  }
};

class BlockScoresTest : public GpuTest {
 protected:
  static Mask parsed(const char* text) { return parse_mask(text, reference::mask_texts()); }

  /// A problem of the mask, run by a kernel of the mask within blocks, and by one that knows its scores.
  struct Pair {
    AttentionCase problem;
    BlockMaskSpec blocks;
    std::int64_t batch = 1, heads = 1;  ///< of the table
    std::int64_t room = 0;              ///< 0: for all blocks
    bool has_within = false;
  };

  /// A config with tiles of 64 by 64, where there is wgmma.
  KernelConfig config_here() const {
    return parse_config(native_arch(device_) == Arch{9, 0, 'a'}
                            ? "family=forward_wgmma tile_q=64 tile_kv=64 stages_q=2"
                            : "family=forward_mma_sync tile_q=64 warps=4 tile_kv=32");
  }

  /// Returns how many blocks there are bits of.
  static int expect_equal_bits(Pair pair, const KernelConfig& config) {
    const CurrentDevice current(0);
    AttentionCase& problem = pair.problem;
    problem.seed = reference::test_seed();
    problem.spec.mask = pair.blocks.mask;
    pair.blocks.scores = true;
    const int seqlen_q = problem.seqlen_q, seqlen_kv = problem.seqlen_kv;
    const auto places = block_places_shape(pair.blocks, 1, 1, seqlen_q, seqlen_kv);
    const std::int64_t room = pair.room > 0 ? pair.room : places[2] * places[3];
    KnownTable table(pair.blocks, pair.batch, pair.heads, seqlen_q, seqlen_kv, room);

    AttentionRun run(problem);
    AttentionArguments arguments = run.arguments();
    NamedTensors of_mask, of_score;
    for (const NamedTensor& tensor : arguments.tensors) {
      const bool is_read =
          std::ranges::any_of(problem.spec.mask.tensors(),
                              [&](const FunctorTensorSpec& read) { return read.name == tensor.name; });
      (is_read ? of_mask : of_score).add(tensor);
    }
    block_mask(pair.blocks, context())(table.arguments(of_mask, problem.heads_q(), seqlen_q, seqlen_kv));
    const auto compute = [&](const Mask& mask) {
      AttentionSpec spec = problem.spec;
      spec.mask = mask;
      run.poison_outputs();
      attention(spec, config, context())(arguments);
      EXPECT_EQ(run.check().failure, "") << mask.to_string() << ", " << to_string(problem);
      return run.outputs();
    };
    const auto [block_q, block_kv] = std::pair{pair.blocks.block_q, pair.blocks.block_kv};
    arguments.tensors.add({"block_mask", table.table.view()});
    const auto asked = compute(mask::block_mask(block_q, block_kv, pair.blocks.mask));
    arguments.tensors = of_score;
    if (pair.has_within) {
      for (const NamedTensor& tensor : of_mask) arguments.tensors.add(tensor);
    }
    table.add_to(arguments.tensors);
    const auto known =
        compute(mask::block_scores(block_q, block_kv, pair.has_within ? pair.blocks.mask : mask::none()));
    EXPECT_TRUE(asked == known) << to_string(problem);

    table.places.download();
    int count = 0;
    for (std::int64_t i = 0; i < table.places.count(); ++i)
      count += table.places.get(table.places.index(i)) >= 0;
    return count;
  }
};

// All masks, blocks and lengths: places are given row by row, and each score of a block has its bit.
TEST_F(BlockScoresTest, BitsAreWhatTheMaskSays) {
  const CurrentDevice current(0);
  struct Case {
    const char* mask;
    int block_q, block_kv, heads, seqlen_q, seqlen_kv;
    std::int64_t room;
  };
  int index = 0, known = 0;
  for (const auto& [mask, block_q, block_kv, heads, seqlen_q, seqlen_kv, room] :
       {Case{"document", 64, 128, 1, 203, 301, 12}, Case{"document && causal", 128, 128, 1, 260, 390, 9},
        Case{"text(stripes)", 16, 16, 1, 33, 70, 15}, Case{"text(by_head.and_batch)", 48, 80, 3, 100, 170, 9},
        Case{"text(recent) || prefix(9)", 32, 192, 1, 90, 400, 9}, Case{"!causal", 64, 64, 1, 300, 190, 15},
        Case{"text(allowed-keys) || text(band)", 128, 64, 3, 140, 130, 6},
        Case{"document", 64, 64, 1, 203, 301, 2}}) {
    if (!is_in_this_run(index++, 2)) continue;
    const BlockMaskSpec spec{.mask = parsed(mask), .block_q = block_q, .block_kv = block_kv, .scores = true};
    reference::Random random(reference::test_seed());
    constexpr int batch = 2, heads_q = 3;
    auto problem = std::make_shared<reference::FunctorProblem>(reference::random_functor_problem(
        {.mask = spec.mask}, batch, heads_q, seqlen_q, seqlen_kv, random, {}));
    std::vector<DeviceTensor> tensors;
    NamedTensors named;
    tensors.reserve(problem->tensors.size());
    for (const auto& [name, data] : problem->tensors) {
      DeviceTensor& tensor = tensors.emplace_back(data.dtype, data.shape);
      tensor.fill([&, &data = data](std::int64_t i) {
        return reference::FunctorData{data.dtype, {tensor.count()}, data.bytes}.at({i});
      });
      tensor.upload();
      named.add({name.c_str(), tensor.view()});
    }
    KnownTable table(spec, batch, heads, seqlen_q, seqlen_kv, room);
    block_mask(spec, context())(table.arguments(named, heads_q, seqlen_q, seqlen_kv));

    const reference::Keep keep = reference::host_mask(spec.mask, problem);
    auto of_table = std::make_shared<reference::FunctorProblem>(*problem);
    of_table->tensors["block_mask"] = KnownTable::data_of(table.table);
    of_table->tensors["block_places"] = KnownTable::data_of(table.places);
    of_table->tensors["block_scores"] = KnownTable::data_of(table.scores);
    const reference::Keep by_bits =
        reference::host_mask(mask::block_scores(block_q, block_kv, spec.mask), of_table);
    const std::string name = fmt::format("{} in blocks of {} by {}", mask, block_q, block_kv);
    for (int b = 0; b < batch; ++b) {
      for (int h = 0; h < heads; ++h) {
        std::int64_t place = 0;
        for (int row = 0; row * block_q < seqlen_q; ++row) {
          for (int column = 0; column * block_kv < seqlen_kv; ++column) {
            int kept = 0, all = 0;
            for (int q = row * block_q; q < std::min((row + 1) * block_q, seqlen_q); ++q) {
              for (int k = column * block_kv; k < std::min((column + 1) * block_kv, seqlen_kv); ++k) {
                kept += keep(b, h, q, k), ++all;
                ASSERT_EQ(by_bits(b, h, q, k), keep(b, h, q, k)) << name << " at " << q << ", " << k;
              }
            }
            const bool is_partial = kept > 0 && kept < all;
            const std::int64_t expected = is_partial && place < room ? place : -1;
            ASSERT_EQ(table.places.get({b, h, row, column}), expected) << name;
            place += is_partial;
            known += expected >= 0;
          }
        }
        for (std::int64_t i = place; i < room; ++i)
          ASSERT_EQ(table.scores.get({b, h, i, 0}), -1) << name << ": a place that no block has was written";
      }
    }
  }
  EXPECT_GE(known, 10);
}

// Tiles that are blocks, parts of blocks in both directions, and larger than blocks; keys that end within a tile.
TEST_F(BlockScoresTest, ForwardByBitsIsThatOfTheMask) {
  struct Case {
    const char *mask, *config;
    int block_q, block_kv, seqlen_q, seqlen_kv, head_dim;
  };
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "forward_wgmma runs on sm_90a only";
  int index = 0, known = 0;
  for (const auto& [mask, config, block_q, block_kv, seqlen_q, seqlen_kv, head_dim] :
       {Case{"document", "tile_q=128 tile_kv=128 stages_q=2 order=ping_pong", 128, 128, 300, 333, 64},
        Case{"text(stripes)", "tile_q=64 tile_kv=64 rescale=lazy", 128, 128, 200, 300, 64},
        Case{"document && causal", "tile_q=64 tile_kv=128", 128, 256, 330, 270, 64},
        Case{"text(close) && document", "tile_q=64 tile_kv=80 stages_q=2", 64, 80, 190, 200, 32},
        Case{"document", "tile_q=64 tile_kv=192 output=direct rescale=lazy", 192, 192, 200, 401, 64},
        Case{"text(recent) && text(stripes)", "tile_q=64 tile_kv=32", 64, 128, 150, 160, 32},
        Case{"document", "tile_q=128 tile_kv=64", 64, 32, 200, 150, 32},
        Case{"!document", "tile_q=64 tile_kv=64 order=free", 64, 64, 130, 65, 128}}) {
    if (!is_in_this_run(index++, 2)) continue;
    Pair pair{.problem = {.batch = 2, .heads_kv = 1, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv},
              .blocks = {.mask = parsed(mask), .block_q = block_q, .block_kv = block_kv},
              .batch = 2};
    pair.problem.spec.head_dim = head_dim;
    pair.problem.spec.gqa_ratio = 2;
    known += expect_equal_bits(pair, parse_config(fmt::format("family=forward_wgmma {}", config)));
  }
  EXPECT_GT(known, 3);
}

// Products of 8 bits, and keys of 8 bits that are upcast, whose consumers look up each bit.
TEST_F(BlockScoresTest, ElementsOf8Bits) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "forward_wgmma runs on sm_90a only";
  Pair pair{.problem = {.batch = 1, .heads_kv = 2, .seqlen_q = 140, .seqlen_kv = 200},
            .blocks = {.mask = parsed("document"), .block_q = 64, .block_kv = 64}};
  pair.problem.spec.head_dim = 64;
  pair.problem.spec.dtype = DType::fp8_e4m3;
  EXPECT_GT(expect_equal_bits(pair, parse_config("family=forward_wgmma tile_q=64 tile_kv=64 output=separate "
                                                 "converter_warps=2")),
            2);
  pair.problem.spec.dtype = DType::bf16;
  pair.problem.spec.kv_dtype = DType::fp8_e4m3;
  EXPECT_GT(expect_equal_bits(pair, parse_config("family=forward_wgmma tile_q=64 tile_kv=64 stages_stored=1 "
                                                 "converter_warps=2")),
            2);
}

// Kernels without bits in shared memory, on any architecture.
TEST_F(BlockScoresTest, OtherKernelsAskBits) {
  Pair pair{.problem = {.batch = 1, .heads_kv = 2, .seqlen_q = 90, .seqlen_kv = 210},
            .blocks = {.mask = parsed("document || text(stripes)"), .block_q = 32, .block_kv = 64}};
  pair.problem.spec.head_dim = 32;
  const bool has_tcgen05 = native_arch(device_).major == 10;
  EXPECT_GT(expect_equal_bits(pair, parse_config(has_tcgen05 ? "family=forward_tcgen05 stages=2"
                                                             : "family=forward_mma_sync tile_q=32 warps=2 "
                                                               "tile_kv=32")),
            2);
}

// A table of each head, and one of a batch entry for all; a score that is added; rows that see nothing.
TEST_F(BlockScoresTest, TablesOfHeadsAndScores) {
  Pair pair{.problem = {.batch = 2, .heads_kv = 2, .seqlen_q = 150, .seqlen_kv = 200},
            .blocks = {.mask = parsed("text(by_head.and_batch) && !prefix(70) && causal(top_left)"),
                       .block_q = 64,
                       .block_kv = 64},
            .batch = 2,
            .heads = 4};
  pair.problem.spec.head_dim = 32;
  pair.problem.spec.gqa_ratio = 2;
  pair.problem.spec.score = parse_score("alibi");
  EXPECT_GT(expect_equal_bits(pair, config_here()), 8);
  pair.blocks.mask = parsed("text(stripes)");
  pair.batch = pair.heads = 1;
  EXPECT_EQ(expect_equal_bits(pair, config_here()), 3 * 4);
}

// A score that is −inf skips tiles of its own, of blocks whose row the producer remembers.
TEST_F(BlockScoresTest, ScoresThatDropKeys) {
  for (const char* const score : {"text(first_by_head)", "text(near)"}) {
    Pair pair{.problem = {.batch = 1, .heads_kv = 2, .seqlen_q = 100, .seqlen_kv = 150},
              .blocks = {.mask = parsed("text(stripes)"), .block_q = 32, .block_kv = 48}};
    pair.problem.spec.head_dim = 32;
    pair.problem.spec.score = parse_score(score, reference::score_texts());
    EXPECT_GT(expect_equal_bits(pair, config_here()), 3) << score;
  }
}

// Blocks without room are those that the mask within is asked about.
TEST_F(BlockScoresTest, TheMaskIsAskedWhereThereIsNoRoom) {
  Pair pair{.problem = {.batch = 1, .heads_kv = 1, .seqlen_q = 200, .seqlen_kv = 260},
            .blocks = {.mask = parsed("document || text(stripes)"), .block_q = 64, .block_kv = 64},
            .room = 5,
            .has_within = true};
  pair.problem.spec.head_dim = 64;
  EXPECT_EQ(expect_equal_bits(pair, config_here()), 5);
}

TEST_F(BlockScoresTest, GradientsByBitsAreThoseOfTheMask) {
  const CurrentDevice current(0);
  const AttentionCase problem{.spec = {.head_dim = 64, .gqa_ratio = 2, .mask = parsed("document && causal")},
                              .batch = 2,
                              .heads_kv = 1,
                              .seqlen_q = 150,
                              .seqlen_kv = 210,
                              .seed = reference::test_seed()};
  BackwardRun run(problem);
  BackwardArguments arguments = run.arguments();
  const BlockMaskSpec spec{.mask = problem.spec.mask, .block_q = 64, .block_kv = 64, .scores = true};
  const KnownTable table(spec, 2, 1, 150, 210, 12);
  block_mask(spec, context())(table.arguments(arguments.tensors, 2, 150, 210));
  AttentionSpec by_bits = problem.spec;
  by_bits.mask = mask::block_scores(64, 64);
  arguments.tensors = {};
  table.add_to(arguments.tensors);
  attention_when_called(by_bits, context()).backward(arguments);
  EXPECT_EQ(run.check(), "");
}

// With both numbers.
TEST_F(BlockScoresTest, TablesOfOtherSizesAreRefused) {
  const CurrentDevice current(0);
  AttentionCase problem{.batch = 1, .heads_kv = 1, .seqlen_q = 130, .seqlen_kv = 200};
  problem.spec.head_dim = 32;
  AttentionRun run(problem);
  AttentionSpec spec = problem.spec;
  spec.mask = mask::block_scores(64, 64);
  const Attention kernel = attention_when_called(spec, context());
  const BlockMaskSpec blocks{.mask = {}, .block_q = 64, .block_kv = 64, .scores = true};
  for (const auto& [seqlen_q, seqlen_kv, field, message] :
       {std::tuple{128, 200, "block_mask", "has block_rows = 2; it must be 3"},
        {130, 260, "block_places", "has block_columns = 5; it must be 4"}}) {
    AttentionArguments arguments = run.arguments();
    const KnownTable table(blocks, 1, 1, seqlen_q, seqlen_kv, 3);
    table.add_to(arguments.tensors);
    const Error error = error_of([&] { kernel(arguments); });
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr(message));
  }
  AttentionArguments arguments = run.arguments();
  const KnownTable right(blocks, 1, 1, 130, 200, 3),
      other({.mask = {}, .block_q = 64, .block_kv = 128}, 1, 1, 130, 200, 3);
  arguments.tensors.add({"block_mask", right.table.view()});
  arguments.tensors.add({"block_places", right.places.view()});
  arguments.tensors.add({"block_scores", other.scores.view()});
  const Error error = error_of([&] { kernel(arguments); });
  EXPECT_EQ(error.field(), "block_scores");
  EXPECT_THAT(error.message(), HasSubstr("has score_words = 256; it must be 128"));
}

}  // namespace
}  // namespace jit::testing
