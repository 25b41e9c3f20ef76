// Mutations of blocks of 64: gradients of tiles of keys that look at several rows at once, and tables that are made of
// lists.
#include <algorithm>
#include <numeric>

#include <jit/block_mask.h>

#include "tests/mutation/backward_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::block_rows_mutations {
namespace {

// More tiles of queries than a look is of, the first of which see none of the last keys; of blocks of 64 keys.
AttentionCase many_rows() {
  constexpr int length = 64 * 33 + 20;
  return {.spec = {.head_dim = 72, .mask = mask::block_mask(64, 64, mask::causal())},
          .heads_kv = 1,
          .seqlen_q = length,
          .seqlen_kv = length,
          .seed = 6};
}

// Tiles of two blocks.
AttentionCase two_blocks() {
  return {.spec = {.head_dim = 72, .mask = mask::block_mask(64, 32)},
          .seqlen_q = 300,
          .seqlen_kv = 200,
          .seed = 7};
}

UNMUTATED_TEST(GradientsOfBlocks, AreRightUnmutated) {
  EXPECT_EQ(noticed_of_gradients(nullptr, two_blocks(), BackwardWgmma{}), "");
  EXPECT_EQ(noticed_of_gradients(nullptr, many_rows(), BackwardWgmma{}), "");
}
class LookMutationTest : public MutationTest {};
TEST_P(LookMutationTest, IsCaught) {
  const bool is_of_two = std::string_view(GetParam().name) == "LookedAtOneBlock";
  expect_caught(GetParam(),
                noticed_of_gradients(&GetParam(), is_of_two ? two_blocks() : many_rows(), BackwardWgmma{}));
}
INSTANTIATE_TEST_SUITE_P(GradientsOfBlocks, LookMutationTest,
                         ::testing::Values(TemplateMutation{"TilesOfTheFirstLook", {"+ i * warp_size", ""}},
                                           TemplateMutation{"LookedAtOneBlock",
                                                            {"&& seen != asked", "&& false"}}),
                         ::testing::PrintToStringParamName());

// Two rows that list blocks of two windows, some twice, and some that there are not, beside a list of full ones.
constexpr int rows = 2, room = 4, block = 16, columns = 33000;
int listed(int row, int i) {
  constexpr int entries[rows][room] = {{3, 32900, 3, -1}, {40, 1, columns + 5, 32999}};
  return entries[row][i];
}
constexpr int counts[rows] = {room + 3, room};
constexpr int full_block[rows] = {1, 40};

std::string noticed_of_table(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const BlockMaskSpec spec{.mask = mask::causal(), .block_q = block, .block_kv = block};
  const auto ints = [](std::vector<std::int64_t> shape, const std::function<int(int)>& value) {
    DeviceTensor tensor(DType::int32, std::move(shape));
    tensor.fill([&](std::int64_t i) { return static_cast<double>(value(static_cast<int>(i))); });
    tensor.upload();
    return tensor;
  };
  const DeviceTensor partial = ints({1, 1, rows, room}, [](int i) { return listed(i / room, i % room); });
  const DeviceTensor partial_counts = ints({1, 1, rows}, [](int i) { return counts[i]; });
  const DeviceTensor full = ints({1, 1, rows, 1}, [](int i) { return full_block[i]; });
  const DeviceTensor full_counts = ints({1, 1, rows}, [](int) { return 1; });
  const auto shape = block_mask_shape(spec, 1, 1, rows * block, columns * block);
  DeviceTensor table = ints({shape.begin(), shape.end()}, [](int) { return -1; });
  try {
    block_mask(spec, context)({.block_mask = table.view(),
                               .seqlen_q = rows * block,
                               .seqlen_kv = columns * block,
                               .partial = {.counts = partial_counts.view(), .indices = partial.view()},
                               .full = {.counts = full_counts.view(), .indices = full.view()}});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  table.download();
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      bool is_seen = column == full_block[row];
      for (int i = 0; i < room; ++i) is_seen |= listed(row, i) == column;
      const auto bit = [&](int which) {
        const auto word = static_cast<std::uint32_t>(
            static_cast<std::int64_t>(table.get({0, 0, row, column / 32 * 2 + which})));
        return (word >> column % 32 & 1) != 0;
      };
      // Early enough for a causal mask to leave all of it.
      const bool is_full = is_seen && (column == full_block[row] || column < columns - rows);
      if (bit(0) != is_seen || bit(1) != is_full)
        return fmt::format("block {} of row {} is {} {}", column, row, bit(0), bit(1));
    }
  }
  return "";
}

class TableMutationTest : public MutationTest {};
TEST_P(TableMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_table(&GetParam())); }
UNMUTATED_TEST(TablesOfLists, AreRightUnmutated) { EXPECT_EQ(noticed_of_table(nullptr), ""); }
INSTANTIATE_TEST_SUITE_P(
    TablesOfLists, TableMutationTest,
    ::testing::Values(TemplateMutation{"BlocksBehindTheRoom", {"minimum(end, lists.capacity)", "end"}},
                      TemplateMutation{"NegativeBlocks", {"block < 0 ? -1 :", ""}},
                      TemplateMutation{"BlocksMarkedBeforeTheyAreCleared", removed, {"data race"}},
                      TemplateMutation{"BlocksReadBeforeTheyAreMarked", removed, {"data race"}}),
    ::testing::PrintToStringParamName());

// Tables whose rows are put in order.

std::string noticed_of_order(const TemplateMutation* mutation) {
  constexpr int all_rows = 300, all_columns = 70;  // more rows than a thread block puts in order
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const BlockMaskSpec spec{.mask = {}, .block_q = block, .block_kv = block};
  const auto amount = [](int row) { return row * 37 % 71; };
  DeviceTensor map(DType::uint8, {1, 1, all_rows, all_columns});
  map.fill([&](std::int64_t i) {
    return i % all_columns < amount(static_cast<int>(i / all_columns)) ? 1.0 : 0.0;
  });
  map.upload();
  const auto shape = block_mask_shape(spec, 1, 1, all_rows * block, all_columns * block);
  DeviceTensor table(DType::int32, {shape.begin(), shape.end()});
  try {
    block_mask(spec, context)({.block_mask = table.view(),
                               .seqlen_q = all_rows * block,
                               .seqlen_kv = all_columns * block,
                               .map = map.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  table.download();
  std::vector<int> order(all_rows);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return amount(a) < amount(b); });
  for (int place = 0; place < all_rows; ++place) {
    const double row = table.get({0, 0, place, shape[3] - 1});
    if (row != order[static_cast<std::size_t>(place)])
      return fmt::format("row {} is at place {} of {}", row, place, order[static_cast<std::size_t>(place)]);
  }
  return "";
}

class OrderMutationTest : public MutationTest {};
TEST_P(OrderMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_order(&GetParam())); }
UNMUTATED_TEST(RowsOfTables, AreInOrderUnmutated) { EXPECT_EQ(noticed_of_order(nullptr), ""); }
INSTANTIATE_TEST_SUITE_P(
    RowsOfTables, OrderMutationTest,
    ::testing::Values(TemplateMutation{"AmountsOverThoseInUse", removed, {"data race", "out of bounds"}},
                      TemplateMutation{"AmountsThatAreNotThere", removed, {"data race", "out of bounds"}},
                      TemplateMutation{"PlacesOverAmountsInUse", removed, {"data race", "out of bounds"}},
                      TemplateMutation{"PlacesThatAreNotThere", removed, {"data race", "out of bounds"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::block_rows_mutations
