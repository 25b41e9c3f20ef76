#include "templates/forward_wgmma/smem_layout.cuh"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace jit {

using namespace forward_wgmma;
namespace {

struct Region {
  std::string name;
  int begin;
  int bytes;
  int alignment;
};

std::vector<Region> regions_of(const SmemSizes& sizes) {
  const SmemLayout layout = smem_layout(sizes);
  const int tile = 1024, barrier = 8;
  const int stages_o = sizes.direct_o ? 0 : sizes.separate_o ? 1 : sizes.stages_q;
  const int consumers = sizes.tile_q / 64, element = sizes.element_bytes;
  std::vector<Region> regions = {
      {"q", layout.q.tiles, sizes.stages_q * q_stage_size(sizes), tile},
      {"k", layout.k.tiles, sizes.stages_k * panel_tile_bytes(sizes.tile_kv, sizes.head_dim, element), tile},
      {"key_tile_infos", layout.key_tile_infos, sizes.stages_k * 8, 8},
      {"work", layout.work.tiles, stages_work * (sizes.has_lengths ? 28 : 12), 4},
      {"q_full", layout.q.full, consumers * sizes.stages_q * 8, barrier},
      {"q_empty", layout.q.empty, consumers * sizes.stages_q * 8, barrier},
      {"k_full", layout.k.full, sizes.stages_k * 8, barrier},
      {"k_empty", layout.k.empty, sizes.stages_k * 8, barrier},
      {"v_full", layout.v.full, sizes.stages_v * 8, barrier},
      {"v_empty", layout.v.empty, sizes.stages_v * 8, barrier},
      {"o_full", layout.o.full, consumers * stages_o * 8, barrier},
      {"o_empty", layout.o.empty, consumers * stages_o * 8, barrier},
      {"work_full", layout.work.full, stages_work * 8, barrier},
      {"work_empty", layout.work.empty, stages_work * 8, barrier},
  };
  const int rows = sizes.tile_q;
  if (sizes.separate_o)
    regions.push_back(
        {"o", layout.o.tiles, panel_tile_bytes(rows, sizes.head_dim_v, sizes.output_bytes), tile});
  if (element == 1) {
    const int rows_v = (sizes.head_dim_v + 15) / 16 * 16;
    regions.push_back(
        {"v", layout.v.tiles, sizes.stages_v * panel_tile_bytes(rows_v, sizes.tile_kv, 1), tile});
    regions.push_back({"value_infos", layout.value_infos, sizes.stages_v * 4, 4});
  } else {
    const int v_bytes = sizes.stages_v * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v);
    regions.push_back({"v", layout.v.tiles, v_bytes, tile});
  }
  const int stages_stored_v = element == 1 ? sizes.stages_v : sizes.stages_stored;
  if (stages_stored_v > 0) {
    const int bytes = stages_stored_v * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v, 1);
    regions.push_back({"stored_v", layout.stored_v.tiles, bytes, tile});
    regions.push_back({"stored_v_full", layout.stored_v.full, stages_stored_v * 8, barrier});
    regions.push_back({"stored_v_empty", layout.stored_v.empty, stages_stored_v * 8, barrier});
  } else {
    EXPECT_EQ(layout.stored_v.tiles, layout.v.tiles);
    EXPECT_EQ(layout.stored_v.full, layout.v.full);
    EXPECT_EQ(layout.stored_v.empty, layout.v.empty);
  }
  if (const int stages = sizes.stages_stored; stages > 0) {
    const int bytes = stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim, 1);
    regions.push_back({"stored_k", layout.stored_k.tiles, bytes, tile});
    regions.push_back({"stored_infos", layout.stored_infos, stages * 8, 8});
    regions.push_back({"stored_k_full", layout.stored_k.full, stages * 8, barrier});
    regions.push_back({"stored_k_empty", layout.stored_k.empty, stages * 8, barrier});
    if (sizes.key_words)
      regions.push_back({"stored_words", layout.stored_words, stages * sizes.tile_kv * 4, 8});
  } else {
    EXPECT_EQ(layout.stored_k.tiles, layout.k.tiles);
    EXPECT_EQ(layout.stored_infos, layout.key_tile_infos);
    EXPECT_EQ(layout.stored_words, layout.key_words);
    EXPECT_EQ(layout.stored_k.full, layout.k.full);
    EXPECT_EQ(layout.stored_k.empty, layout.k.empty);
  }
  if (sizes.mask_bit_words > 0)
    regions.push_back({"mask_bits", layout.mask_bits, sizes.stages_k * sizes.mask_bit_words * 4, 16});
  if (sizes.key_words) {
    regions.push_back({"key_words", layout.key_words, sizes.stages_k * sizes.tile_kv * 4, 8});
  }
  if (sizes.has_lengths) regions.push_back({"work_wanted", layout.work_wanted, 8, barrier});
  if (has_key_word_ranges(sizes))
    regions.push_back({"key_word_ranges", layout.key_word_ranges, key_word_range_places * 8, 8});
  return regions;
}

std::string to_string(const SmemSizes& s) {
  return (::testing::Message() << "head_dim " << s.head_dim << ", head_dim_v " << s.head_dim_v << ", tile "
                               << s.tile_q << " x " << s.tile_kv << ", stages " << s.stages_q << " "
                               << s.stages_k << " " << s.stages_v << ", separate_o " << s.separate_o
                               << ", direct_o " << s.direct_o << ", key_words " << s.key_words
                               << ", has_lengths " << s.has_lengths << ", bytes " << s.element_bytes << " "
                               << s.output_bytes)
      .GetString();
}

void expect_disjoint(const SmemSizes& sizes) {
  SCOPED_TRACE(to_string(sizes));
  std::vector<Region> regions = regions_of(sizes);
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  int end = 0, bytes = 0;
  for (const Region& region : regions) {
    EXPECT_GE(region.begin, end) << region.name << " lies over what is before it";
    EXPECT_EQ(region.begin % region.alignment, 0) << region.name;
    end = region.begin + region.bytes;
    bytes += region.bytes;
  }
  const int total = smem_layout(sizes).total;
  EXPECT_EQ(total, end) << "the last region is " << regions.back().name;
  EXPECT_LT(total, bytes + 1024 * 7) << "more room than alignment takes";
}

template <class F>
void for_sizes(F f) {
  for (const int head_dim : {8, 16, 32, 40, 64, 128, 256}) {
    for (const int head_dim_v : {8, 24, 64, 72, 192, 256}) {
      for (const int tile_q : {64, 128, 192}) {
        for (const int tile_kv : {16, 48, 128, 256}) {
          for (const auto& [q, k, v] : {std::tuple(1, 1, 1), {2, 2, 1}, {1, 3, 4}, {2, 4, 3}}) {
            for (const auto& [separate_o, direct_o] :
                 {std::pair(false, false), {true, false}, {false, true}}) {
              f(SmemSizes{.head_dim = head_dim,
                          .head_dim_v = head_dim_v,
                          .tile_q = tile_q,
                          .tile_kv = tile_kv,
                          .stages_q = q,
                          .stages_k = k,
                          .stages_v = v,
                          .separate_o = separate_o,
                          .direct_o = direct_o,
                          .key_words = (tile_q + head_dim) % 3 == 0,
                          .has_lengths = tile_kv == 48});
            }
          }
        }
      }
    }
  }
}

TEST(SmemLayout, RegionsAreDisjointAlignedAndWithinTheTotal) { for_sizes(expect_disjoint); }

// Bulk copies want multiples of 16 bytes.
TEST(SmemLayout, MaskBits) {
  for_sizes([](SmemSizes sizes) {
    sizes.mask_bit_words = sizes.tile_q * 2 * ((sizes.tile_kv + 63) / 64);
    expect_disjoint(sizes);
  });
}

// Values of 8 bits take two pipelines, and O never lies over Q.
TEST(SmemLayout, ElementsOf8Bits) {
  for_sizes([](SmemSizes sizes) {
    if (sizes.tile_kv % 32 != 0 || sizes.separate_o == sizes.direct_o) return;
    sizes.element_bytes = 1;
    sizes.output_bytes = sizes.direct_o ? 4 : 2;
    expect_disjoint(sizes);
    EXPECT_EQ(q_stage_size(sizes), panel_tile_bytes(sizes.tile_q, sizes.head_dim, 1));
    // A stage of values that were transposed begins with the pattern of the swizzle.
    const int rows = transposed_rows(sizes.head_dim_v);
    EXPECT_GE(rows, sizes.head_dim_v);
    EXPECT_EQ(panel_tile_bytes(rows, sizes.tile_kv, 1) % (8 * panel_columns(sizes.tile_kv, 1)), 0);
  });
}

// 8-bit keys and values that become 16 bits have both.
TEST(SmemLayout, UpcastKeysAndValues) {
  for_sizes([](SmemSizes sizes) {
    sizes.stages_stored = 1 + sizes.tile_kv % 3;
    expect_disjoint(sizes);
  });
}

TEST(SmemLayout, EveryStageIsAligned) {
  for_sizes([](const SmemSizes& sizes) {
    ASSERT_EQ(q_stage_size(sizes) % 1024, 0) << to_string(sizes);
    // A swizzle's pattern repeats after eight rows, the least that a stage of keys has twice.
    const int k_row = 2 * panel_columns(sizes.head_dim), v_row = 2 * panel_columns(sizes.head_dim_v);
    ASSERT_EQ(panel_tile_bytes(sizes.tile_kv, sizes.head_dim) % (8 * k_row), 0) << to_string(sizes);
    ASSERT_EQ(panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v) % (8 * v_row), 0) << to_string(sizes);
  });
}

TEST(SmemLayout, OLiesOverQUnlessItIsSeparateOrNowhere) {
  for_sizes([](const SmemSizes& sizes) {
    const SmemLayout layout = smem_layout(sizes);
    const int q_bytes = panel_tile_bytes(sizes.tile_q, sizes.head_dim);
    const int o_bytes = panel_tile_bytes(sizes.tile_q, sizes.head_dim_v);
    if (sizes.direct_o) {
      ASSERT_EQ(q_stage_size(sizes), q_bytes) << to_string(sizes);
    } else if (sizes.separate_o) {
      ASSERT_EQ(q_stage_size(sizes), q_bytes) << to_string(sizes);
      ASSERT_NE(layout.o.tiles, layout.q.tiles) << to_string(sizes);
    } else {
      ASSERT_EQ(q_stage_size(sizes), std::max(q_bytes, o_bytes)) << to_string(sizes);
      ASSERT_EQ(layout.o.tiles, layout.q.tiles) << to_string(sizes);
    }
  });
}

TEST(SmemLayout, KnownSizes) {
  // head_dim 128: Q 32 KiB, two stages each of K and V of 32 KiB; tile infos, work and barriers behind.
  const SmemSizes sizes{.head_dim = 128,
                        .head_dim_v = 128,
                        .tile_q = 128,
                        .tile_kv = 128,
                        .stages_q = 1,
                        .stages_k = 2,
                        .stages_v = 2,
                        .separate_o = false,
                        .direct_o = false,
                        .key_words = false,
                        .has_lengths = false};
  constexpr int kib = 1024;
  const SmemLayout layout = smem_layout(sizes);
  EXPECT_EQ(layout.q.tiles, 0);
  EXPECT_EQ(layout.k.tiles, 32 * kib);
  EXPECT_EQ(layout.v.tiles, 96 * kib);
  EXPECT_EQ(layout.key_tile_infos, 160 * kib);
  const int barriers = 2 * (2 * 1 + 2 + 2 + 2 * 1 + stages_work);  // Q and O: for each consumer
  EXPECT_EQ(layout.total, 160 * kib + 2 * 8 + stages_work * 12 + barriers * 8);

  SmemSizes with_words = sizes;
  with_words.key_words = true;  // 4 bytes for each key of two stages, and the table
  EXPECT_EQ(smem_layout(with_words).total, layout.total + 2 * 128 * 4 + key_word_range_places * 8);

  SmemSizes with_scores = sizes;
  with_scores.mask_bit_words = 128 * 128 / 32;  // a bit for each score of two stages
  EXPECT_EQ(smem_layout(with_scores).mask_bits, 160 * kib);
  EXPECT_EQ(smem_layout(with_scores).total, layout.total + 2 * 2 * kib);

  SmemSizes with_lengths = with_words;
  with_lengths.has_lengths = true;  // no table, four more numbers for each work tile, and a barrier
  EXPECT_EQ(smem_layout(with_lengths).total, layout.total + 2 * 128 * 4 + stages_work * 16 + 8);
}

struct Config {
  using Element = fp16;
  static constexpr int head_dim = 40, head_dim_v = 72, tile_q = 192, tile_kv = 80;
  static constexpr int stages_q = 2, stages_k = 3, stages_v = 4, stages_stored = 0;
  static constexpr OutputPlace output = OutputPlace::separate;
  static constexpr bool sums_by_products = false;
};

TEST(SmemLayout, TakesSizesFromAConfig) {
  constexpr SmemSizes sizes = smem_sizes<Config>(true, 768, false);
  EXPECT_EQ(sizes.mask_bit_words, 768);
  EXPECT_EQ(to_string(sizes),
            "head_dim 40, head_dim_v 72, tile 192 x 80, stages 2 3 4, separate_o true, direct_o false, "
            "key_words true, has_lengths false, bytes 2 2");
}

}  // namespace
}  // namespace jit
