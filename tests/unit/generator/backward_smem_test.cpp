#include <algorithm>

#include <gtest/gtest.h>

#include "templates/backward_wgmma/smem_layout.cuh"

namespace jit::backward_wgmma {
namespace {

SmemSizes sizes_of(int head_dim, int head_dim_v, int stages = 2) {
  return {.head_dim = head_dim,
          .head_dim_v = head_dim_v,
          .tile_kv = keys_of_block(std::max(head_dim, head_dim_v) > largest_of_rows),
          .stages = stages,
          .pair = false,
          .deterministic = false,
          .draws = false,
          .is_bounded = false,
          .is_wide = false};
}
int places(const SmemSizes& sizes) { return smem_layout(sizes).gradient_places; }

TEST(BackwardSmem, GradientsHaveAsManyPlacesAsThereIsRoomFor) {
  EXPECT_EQ(places(sizes_of(64, 64, 4)), 1) << "beside two tiles of keys";
  EXPECT_EQ(places(sizes_of(32, 32, 4)), 2);
  EXPECT_EQ(places(sizes_of(128, 128)), 1);
  EXPECT_EQ(places(sizes_of(96, 40)), 2);
  EXPECT_EQ(places(sizes_of(96, 40, 4)), 0);
  EXPECT_EQ(places(sizes_of(256, 256)), 0) << "of roles";
  SmemSizes drawn = sizes_of(128, 128);
  drawn.draws = true;
  EXPECT_EQ(places(drawn), 0);
  SmemSizes wide = sizes_of(32, 32, 4);
  wide.is_wide = true;
  EXPECT_EQ(places(wide), 0);
}

// A pair has one buffer of dO where there is no room for two.
TEST(BackwardSmem, PairsHaveRoom) {
  for (const int head_dim : {72, 136, 192, 200, 256}) {
    for (const int head_dim_v : {136, 192, 200, 256}) {
      SmemSizes sizes = sizes_of(head_dim, head_dim_v);
      sizes.tile_kv *= 2;
      sizes.pair = sizes.deterministic = true;
      const int total = smem_layout(sizes).total;
      EXPECT_LE(total, largest_smem) << head_dim << " " << head_dim_v;
      const bool has_one = stages_do(head_dim, head_dim_v, 2, true) == 1;
      if (has_one) {
        EXPECT_GT(total + panel_tile_bytes(64, head_dim_v), largest_smem) << head_dim << " " << head_dim_v;
      }
    }
  }
}

// Roles would rather have a second place for dQ than a second tile of dS. In turns a consumer of dQ has none.
TEST(BackwardSmem, DqHasAsManyPlacesAsThereIsRoomFor) {
  const auto expect = [](const SmemSizes& sizes, int dq_places, int stages_ds) {
    const SmemLayout layout = smem_layout(sizes);
    EXPECT_EQ(layout.dq_places, dq_places) << sizes.head_dim << " " << sizes.head_dim_v;
    EXPECT_EQ(layout.ds.stages, stages_ds) << sizes.head_dim << " " << sizes.head_dim_v;
    EXPECT_LE(layout.total, largest_smem);
  };
  const auto pair_of = [](int head_dim, int head_dim_v) {
    SmemSizes sizes = sizes_of(head_dim, head_dim_v);
    sizes.tile_kv *= 2;
    sizes.pair = true;
    return sizes;
  };
  expect(sizes_of(128, 128), 1, 2);
  expect(sizes_of(64, 64, 4), 1, 4);
  expect(sizes_of(32, 32, 4), 2, 4);
  expect(sizes_of(192, 192), 2, 2);
  expect(sizes_of(256, 256), 0, 2);
  expect(pair_of(192, 128), 2, 2);
  expect(pair_of(192, 192), 2, 1);
  expect(pair_of(256, 256), 1, 1);
  for (SmemSizes sizes : {sizes_of(64, 64, 4), sizes_of(192, 192), pair_of(192, 192)}) {
    sizes.deterministic = true;  // with roles, a consumer adds from registers
    expect(sizes, sizes.head_dim == 64 ? 1 : 0, sizes.head_dim == 64 ? 4 : 2);
  }
  SmemSizes varlen = sizes_of(64, 64, 4);
  varlen.deterministic = varlen.is_bounded = true;  // and so do turns of varlen sequences
  expect(varlen, 0, 4);
}

// Beside a consumer of dQ there are keys of two tiles, but for what dropout draws.
TEST(BackwardSmem, TheNextKeysHaveRoomBesideAConsumerOfDq) {
  for (const int head_dim : {8, 40, 64}) {
    SmemSizes sizes = sizes_of(head_dim, head_dim, 4);
    EXPECT_EQ(smem_layout(sizes).keys.stages, 2) << head_dim;
    sizes.draws = true;
    EXPECT_EQ(smem_layout(sizes).keys.stages, head_dim < 40 ? 2 : 1) << head_dim;
  }
  for (const SmemSizes& sizes : {sizes_of(128, 128), sizes_of(256, 256)})
    EXPECT_EQ(smem_layout(sizes).keys.stages, 1) << sizes.head_dim;
}

TEST(BackwardSmem, BoundedBoxesTakeRegistersThatConsumersOfDqDoNotHave) {
  for (SmemSizes sizes : {sizes_of(64, 64, 4), sizes_of(128, 128)}) {
    sizes.is_bounded = true;
    EXPECT_EQ(places(sizes), sizes.head_dim == 64 ? 1 : 0);
  }
}

// TMA swizzles by address, so that a place begins as a tile does: at a multiple of eight rows of its widest panel.
TEST(BackwardSmem, PlacesOfGradientsLieApartAndAligned) {
  for (const int head_dim : {8, 16, 24, 40, 64, 72, 128}) {
    for (const int head_dim_v : {8, 16, 24, 40, 64, 72, 128}) {
      for (const int stages : {2, 4}) {
        const SmemSizes sizes = sizes_of(head_dim, head_dim_v, stages);
        const SmemLayout layout = smem_layout(sizes),
                         without = smem_layout(sizes, {1, 0, 1, layout.ds.stages});
        if (without.total > largest_smem) continue;
        ASSERT_LE(layout.total, largest_smem);
        if (layout.gradient_places == 0) continue;
        const int bytes = gradient_place_bytes(head_dim, head_dim_v);
        for (const int columns : {head_dim, head_dim_v}) {
          EXPECT_GE(bytes, panel_tile_bytes(16, columns));
          EXPECT_EQ(bytes % (8 * 2 * panel_columns(columns)), 0);
        }
        EXPECT_EQ(layout.gradients % 1024, 0);
        EXPECT_GE(layout.gradients, layout.ds.tiles + 2 * panel_tile_bytes(64, 128));
        EXPECT_GE(layout.lse_log2, layout.gradients + 8 * layout.gradient_places * bytes);
      }
    }
  }
}

}  // namespace
}  // namespace jit::backward_wgmma
