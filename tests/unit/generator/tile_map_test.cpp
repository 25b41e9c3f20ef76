// Classes of tiles on the host, and their picture.
#include <jit/tile_map.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/error.h>
#include <jit/workload.h>

#include "tests/support/error_of.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TileClass empty = TileClass::empty, partial = TileClass::partial, full = TileClass::full;

TileMap map_of(const Mask& mask, const AttentionShape& shape, TilePlace place,
               const std::map<std::string, HostTensor, std::less<>>& tensors = {}) {
  AttentionSpec spec;
  spec.mask = mask;
  return tile_map(spec, shape, place, tensors);
}

TEST(TileMap, HasTheClassesOfBuiltInMasks) {
  const AttentionShape shape{.batch = 1, .heads_q = 1, .seqlen_q = 70, .seqlen_kv = 100};
  const TileMap map = map_of(mask::causal(), shape, {.tile_q = 32, .tile_kv = 40});
  EXPECT_EQ(map.rows, 3);
  EXPECT_EQ(map.columns, 3);
  // Query q stands at key q + 30.
  EXPECT_THAT(map.classes, ElementsAre(partial, partial, empty, full, partial, partial, full, full, partial));
  EXPECT_EQ(map.count(partial), 5);
  EXPECT_DOUBLE_EQ(map.computed_share(), 8.0 / 9);
  EXPECT_EQ(map_of(Mask(), shape, {}).count(full), 1);
  EXPECT_EQ(map_of(!mask::causal(), shape, {.tile_q = 32, .tile_kv = 40}).at(2, 1), empty);
}

TEST(TileMap, TextsHaveTheClassesOfTheirMeaning) {
  const AttentionShape shape{.batch = 2, .heads_q = 2, .seqlen_q = 200, .seqlen_kv = 200};
  const TilePlace place{.batch = 1, .head = 1, .tile_q = 32, .tile_kv = 16};
  const Mask causal = mask::text({.name = "c", .body = "return k <= q + seqlen_kv - seqlen_q;"});
  const Mask window = mask::text({.name = "w", .body = "const int d = q - k; return d >= 0 && d <= 40;"});
  EXPECT_EQ(map_of(causal, shape, place).classes, map_of(mask::causal(), shape, place).classes);
  EXPECT_EQ(map_of(window, shape, place).classes, map_of(mask::sliding_window(40, 0), shape, place).classes);
  EXPECT_EQ(map_of(window || mask::prefix(32), shape, place).classes,
            map_of(mask::sliding_window(40, 0) || mask::prefix(32), shape, place).classes);
  const Mask heads = mask::text({.name = "h", .body = "return h + b == 2;"});
  EXPECT_EQ(map_of(heads, shape, place).count(full), 7 * 13);
  EXPECT_EQ(map_of(heads, shape, {.batch = 0, .head = 1}).count(empty), 4);
}

TEST(TileMap, TextsReadTensors) {
  const AttentionShape shape{.batch = 2, .heads_q = 1, .seqlen_q = 64, .seqlen_kv = 64};
  const Mask mask =
      mask::text({.name = "m", .body = "return k < lengths[b];", .tensors = {{"lengths", DType::int32}}});
  const std::int32_t lengths[] = {16, 40};
  const std::int64_t size = 2;
  const std::map<std::string, HostTensor, std::less<>> tensors = {
      {"lengths",
       {.dtype = DType::int32, .shape = {&size, 1}, .data = reinterpret_cast<const std::byte*>(lengths)}}};
  EXPECT_THAT(map_of(mask, shape, {.batch = 1, .tile_q = 64, .tile_kv = 16}, tensors).classes,
              ElementsAre(full, full, partial, empty));
  const Error missing = testing::error_of([&] { map_of(mask, shape, {}); });
  EXPECT_EQ(missing.field(), "lengths");
}

TEST(TileMap, ScoresDropWhatTheyMakeInfinite) {
  const AttentionShape shape{.batch = 1, .heads_q = 2, .seqlen_q = 200, .seqlen_kv = 200};
  const TilePlace place{.head = 1, .tile_q = 32, .tile_kv = 16};
  AttentionSpec spec;
  spec.mask = mask::prefix(100);
  spec.score =
      score::text({.name = "s", .body = "return h == 1 && k > q ? -INFINITY : score * score;"}).then({});
  EXPECT_EQ(tile_map(spec, shape, place).classes,
            map_of(mask::prefix(100) && mask::causal(), shape, place).classes);
  EXPECT_EQ(tile_map(spec, shape, {.tile_q = 32, .tile_kv = 16}).classes,
            map_of(mask::prefix(100), shape, place).classes);
  spec.mask = Mask();
  AttentionSpec causal;
  causal.mask = mask::text({.name = "m", .body = "return h != 1 || k <= q;"});
  EXPECT_EQ(mask_density(spec, shape, {}), mask_density(causal, shape, {}));
  spec.score = score::text({.name = "s", .body = "for (;;) return -INFINITY;"});
  EXPECT_THAT(tile_map(spec, shape, place).notes, ElementsAre(HasSubstr("score 's' skips no tiles")));
  EXPECT_EQ(mask_density(spec, shape, {}), 1.0);
}

TEST(MaskDensity, CountsEachHead) {
  const AttentionShape shape{.batch = 1, .heads_q = 2, .seqlen_q = 128, .seqlen_kv = 128};
  const std::int64_t sizes[] = {1, 2, 2, 2};              // batch, heads, rows of blocks, words
  const std::int32_t words[] = {0, 0, 0, 0, 3, 3, 3, 3};  // the second head sees all blocks, the first none
  const HostTensor table{
      .dtype = DType::int32, .shape = sizes, .data = std::as_bytes(std::span(words)).data()};
  AttentionSpec spec;
  spec.mask = mask::block_mask(64, 64);
  EXPECT_EQ(mask_density(spec, shape, {{"block_mask", table}}), 0.5);
}

TEST(TileMap, SaysWhichTextsAreNotFollowed) {
  const AttentionShape shape{.batch = 1, .heads_q = 1, .seqlen_q = 64, .seqlen_kv = 64};
  const TileMap map =
      map_of(mask::text({.name = "m", .body = "while (q > 3) q -= 4;\nreturn q == k;"}), shape, {});
  EXPECT_EQ(map.count(partial), 1);
  EXPECT_THAT(map.notes, ElementsAre(HasSubstr("line 1: loops are not followed")));
}

TEST(TileMap, RefusesWhatItCannotCount) {
  const AttentionShape shape{.batch = 2, .heads_q = 2, .seqlen_q = 64, .seqlen_kv = 64};
  const auto field = [&](AttentionShape given, TilePlace place) {
    return testing::error_of([&] { map_of(mask::causal(), given, place); }).field();
  };
  EXPECT_EQ(field(shape, {.batch = 2}), "place.batch");
  EXPECT_EQ(field(shape, {.head = -1}), "place.head");
  EXPECT_EQ(field(shape, {.tile_q = 0}), "place.tile_q");
  EXPECT_EQ(field(shape, {.tile_kv = -5}), "place.tile_kv");
  EXPECT_EQ(field({.batch = 1, .heads_q = 1, .seqlen_q = 1 << 16, .seqlen_kv = 1 << 16}, {}), "seqlen_kv");
  EXPECT_EQ(field({.batch = 1, .heads_q = 1, .seqlen_q = 1 << 13, .seqlen_kv = 1 << 13},
                  {.tile_q = 1, .tile_kv = 1}),
            "tiles");
}

TEST(TileMap, ThePictureHasARectangleForEachRun) {
  const AttentionShape shape{.batch = 1, .heads_q = 1, .seqlen_q = 128, .seqlen_kv = 128};
  const std::string svg =
      to_svg(map_of(mask::causal(), shape, {.tile_q = 64, .tile_kv = 64}), "a < b && \"c\"");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp;&amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("75.0 % are computed"));
  std::size_t rectangles = 0;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    ++rectangles;
  EXPECT_EQ(rectangles, 2u + 3u + 3u) << "ground, tiles, legend";
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace jit
