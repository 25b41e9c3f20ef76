#include "templates/tiles/swizzled_tile.cuh"

#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "templates/base/element.cuh"
#include "templates/forward_mma_sync/smem_layout.cuh"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

constexpr int rows = 64;

// The bank groups that eight lanes of an ldmatrix meet when they read one chunk column of rows r … r + 7.
template <class Tile>
std::size_t bank_groups(int first_row, int chunk) {
  std::set<int> groups;
  for (int row = first_row; row < first_row + 8; ++row)
    groups.insert(Tile::offset(row, chunk) / chunk_bytes % bank_chunks);
  return groups.size();
}

// A lane's first address and the steps that ldmatrix and the copies take from it.
template <class Tile>
void expect_steps() {
  for (int row = 0; row < 16; ++row) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      for (int rows_on = 0; row + rows_on < rows; rows_on += 8) {
        for (int chunks_on = 0; chunk + chunks_on < Tile::chunks; chunks_on += 2) {
          ASSERT_EQ(Tile::advance(static_cast<unsigned>(Tile::offset(row, chunk)), rows_on, chunks_on),
                    static_cast<unsigned>(Tile::offset(row + rows_on, chunk + chunks_on)))
              << Tile::chunks << " chunks, row " << row << " + " << rows_on << ", chunk " << chunk << " + "
              << chunks_on;
        }
      }
    }
  }
}

template <int head_dim>
void expect_permutation() {
  using Tile = SmemTile<rows, padded_head_dim(head_dim) / ElementTraits<bf16>::per_chunk>;
  std::set<int> offsets;
  for (int row = 0; row < rows; ++row) {
    for (int chunk = 0; chunk < Tile::chunks; ++chunk) {
      const int offset = Tile::offset(row, chunk);
      ASSERT_EQ(offset % chunk_bytes, 0);
      ASSERT_EQ(offset / Tile::row_bytes, row) << "head_dim " << head_dim << " leaves its row";
      offsets.insert(offset);
    }
  }
  ASSERT_EQ(offsets.size(), static_cast<std::size_t>(rows * Tile::chunks)) << "head_dim " << head_dim;
  ASSERT_EQ(Tile::bytes, rows * Tile::chunks * chunk_bytes);
  expect_steps<Tile>();
}

template <int head_dim>
void expect_swizzled() {
  expect_permutation<head_dim>();
  using Tile = SmemTile<rows, padded_head_dim(head_dim) / ElementTraits<bf16>::per_chunk>;
  for (int row = 0; row + 8 <= rows; row += 8) {
    for (int chunk = 0; chunk < Tile::chunks; ++chunk) {
      ASSERT_EQ(bank_groups<Tile>(row, chunk), 8u)
          << "head_dim " << head_dim << ", row " << row << ", chunk " << chunk;
    }
  }
}

template <int... steps>
void expect_all(std::integer_sequence<int, steps...>) {
  (expect_swizzled<8 * (steps + 1)>(), ...);
}

TEST(Swizzle, NoHeadDimHasBankConflicts) { expect_all(std::make_integer_sequence<int, 32>()); }

TEST(SmemLayout, PartsDoNotOverlapAndFit) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 2000; ++i) {
    const int d = 8 * reference::draw(random, 1, 32), dv = 8 * reference::draw(random, 1, 32);
    const int tile_q = 16 * reference::draw(random, 1, 16), tile_kv = 16 * reference::draw(random, 1, 16);
    const int stages_k = reference::draw(random, 1, 4), stages_v = reference::draw(random, 1, 4);
    const bool in_registers = reference::draw(random, 0, 1) == 0;
    const bool is_fp8 = reference::draw(random, 0, 1) == 0, key_scales = reference::draw(random, 0, 1) == 0;
    const int bytes = is_fp8 ? 1 : 2;
    const forward_mma_sync::SmemLayout layout = forward_mma_sync::smem_layout({.head_dim = d,
                                                                               .head_dim_v = dv,
                                                                               .tile_q = tile_q,
                                                                               .tile_kv = tile_kv,
                                                                               .stages_k = stages_k,
                                                                               .stages_v = stages_v,
                                                                               .q_in_registers = in_registers,
                                                                               .element_bytes = bytes,
                                                                               .key_scales = key_scales});
    const int pd = (d * bytes + 31) / 32 * 32, pdv = (dv + 15) / 16 * 16 * bytes;
    EXPECT_GE(layout.k, in_registers ? 0 : layout.q + tile_q * pd);
    EXPECT_GE(layout.v, layout.k + stages_k * tile_kv * pd);
    EXPECT_GE(layout.key_scales, layout.v + stages_v * tile_kv * pdv);
    EXPECT_GE(layout.total, layout.key_scales + (key_scales ? stages_k * tile_kv * 4 : 0));
    EXPECT_GE(layout.total, layout.q + tile_q * pd);
    // O of 8-bit kernels leaves from registers.
    EXPECT_GE(layout.total, is_fp8 ? 0 : layout.o + tile_q * pdv);
    for (const int offset : {layout.q, layout.k, layout.v, layout.o}) EXPECT_EQ(offset % 128, 0);
  }
}

}  // namespace
}  // namespace jit
