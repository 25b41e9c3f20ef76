// Between which keys a query's lie, against what masks keep key by key.
#include "generator/functors/row_keys.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "generator/functors/host_functor.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

FunctorText row_text(std::string body) {
  return {.name = "m", .body = std::move(body), .tensors = {{"ids", DType::int32}}};
}

// The keys of 300 that query q of 100 sees, as "begin..end"; "" where they are not known.
std::string keys_seen(const Mask& mask, std::int64_t q) {
  const Extents sizes{.batch = 2, .seqlen_q = 100, .seqlen_kv = 300, .heads_q = 4, .heads_kv = 4};
  const std::optional<KeyRange> keys = row_keys(mask, sizes, q);
  if (!keys) return "";
  return keys->begin >= keys->end ? "none" : std::to_string(keys->begin) + ".." + std::to_string(keys->end);
}

TEST(RowKeys, OfBuiltInMasks) {
  EXPECT_EQ(keys_seen(mask::causal(), 10), "0..211");
  EXPECT_EQ(keys_seen(parse_mask("causal(top_left)"), 10), "0..11");
  EXPECT_EQ(keys_seen(parse_mask("sliding_window(20, 3)"), 10), "190..214");
  EXPECT_EQ(keys_seen(parse_mask("sliding_window(20, 3)"), 99), "279..300");
  EXPECT_EQ(keys_seen(parse_mask("sliding_window(-1, 3)"), 10), "0..214");
  EXPECT_EQ(keys_seen(parse_mask("sliding_window(20, -1)"), 10), "190..300");
  EXPECT_EQ(keys_seen(parse_mask("prefix(30)"), 10), "0..30");
  EXPECT_EQ(keys_seen(parse_mask("sliding_window(20) || prefix(30)"), 10), "0..211");
  EXPECT_EQ(keys_seen(parse_mask("causal && sliding_window(20, 3)"), 10), "190..211");
  EXPECT_EQ(keys_seen(parse_mask("prefix(30) && sliding_window(20, 3)"), 10), "none");
  EXPECT_EQ(keys_seen(parse_mask("(prefix(30) && sliding_window(20, 3)) || sliding_window(0)"), 10),
            "210..211");
  EXPECT_EQ(keys_seen(parse_mask("block_mask(64, 64, sliding_window(20, 3))"), 10), "190..214");
  EXPECT_EQ(keys_seen(parse_mask("block_scores(64, 64)"), 10), "") << "bits tell";
  EXPECT_EQ(keys_seen(parse_mask("block_scores(64, 64, causal)"), 10), "") << "bits tell";
}

TEST(RowKeys, WhatOnlyTensorsDecideIsNotKnown) {
  EXPECT_EQ(keys_seen(Mask(), 10), "") << "any key";
  EXPECT_EQ(keys_seen(mask::document(), 10), "");
  EXPECT_EQ(keys_seen(parse_mask("prefix_lengths"), 10), "");
  EXPECT_EQ(keys_seen(parse_mask("!causal"), 10), "");
  EXPECT_EQ(keys_seen(parse_mask("causal || document"), 10), "");
  EXPECT_EQ(keys_seen(parse_mask("causal && document"), 10), "0..211");
  EXPECT_EQ(keys_seen(mask::tree(), 10), "0..211");
}

TEST(RowKeys, OfTexts) {
  EXPECT_EQ(keys_seen(mask::text(row_text("return k <= q + 200 && q + 200 - k <= 20;")), 10), "190..211");
  EXPECT_EQ(keys_seen(mask::text(row_text("return k < q + ids[b];")), 10), "0..300") << "of all tensors";
  EXPECT_EQ(keys_seen(mask::text(row_text("return k <= q + h;")), 10), "0..14") << "of all heads";
  EXPECT_EQ(keys_seen(mask::text(row_text("return (q - k) % 4 == 0;")), 10), "");
  EXPECT_EQ(keys_seen(mask::causal() && mask::text(row_text("return (q - k) % 4 == 0;")), 10), "0..211");
}

TEST(RowKeys, NoKeyIsLeftOut) {
  std::mt19937_64 random(reference::test_seed());
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  const auto leaf = [&]() -> std::string {
    switch (below(4)) {
      case 0:
        return below(2) == 0 ? "causal" : "causal(top_left)";
      case 1:
        return "prefix(" + std::to_string(below(60)) + ")";
      case 2:
        return "!window(" + std::to_string(below(20) - 1) + ", 5)";
      default:
        return "window(" + std::to_string(below(30) - 1) + ", " + std::to_string(below(30)) + ")";
    }
  };
  int cut = 0, several = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = leaf();
    for (int more = below(3); more >= 0; --more)
      text = "(" + text + (below(2) == 0 ? ") && " : ") || ") + leaf();
    const Mask mask = parse_mask(text);
    Extents sizes;
    sizes.seqlen_q = 1 + below(60);
    sizes.seqlen_kv = 1 + below(60);
    const std::int64_t q = below(static_cast<int>(sizes.seqlen_q));
    const std::optional<KeyRange> keys = row_keys(mask, sizes, q);
    if (!keys) continue;
    const KeysOfRows rows = row_keys_from(mask, sizes, q).value();
    ASSERT_LE(1, rows.rows);
    several += rows.rows > 1 ? 1 : 0;
    for (std::int64_t j = 0; j < rows.rows && q + j < sizes.seqlen_q; ++j) {
      const KeyRange own = row_keys(mask, sizes, q + j).value();
      ASSERT_EQ(own.begin, rows.keys.begin + j * rows.begin_step) << text << ", query " << q << " + " << j;
      ASSERT_EQ(own.end, rows.keys.end + j * rows.end_step) << text << ", query " << q << " + " << j;
      ASSERT_EQ(own.begin < own.end, keys->begin < keys->end) << text;
    }
    ASSERT_LE(0, keys->begin);
    ASSERT_LE(keys->end, sizes.seqlen_kv);
    const HostKeep keep = host_keep(mask, {.sizes = sizes});
    for (std::int64_t k = 0; k < sizes.seqlen_kv; ++k) {
      const bool is_inside = k >= keys->begin && k < keys->end;
      ASSERT_TRUE(is_inside || !keep({.b = 0, .h = 0, .q = q, .k = k})) << text << ", key " << k;
      cut += is_inside ? 0 : 1;
    }
  }
  EXPECT_GT(cut, 2000) << "else nothing was tested";
  EXPECT_GT(several, 500) << "else nothing was tested";
}

}  // namespace
}  // namespace jit
