#include "templates/tiles/bounded_box.cuh"

#include <vector>

#include <gtest/gtest.h>

namespace jit {
namespace {

// The rows that TMA copies of a tensor of so many rows: for each row of the box the tensor's row, −1 for
// zeros.
std::vector<int> copied_rows(const BoundedBox& box, int box_rows, int tensor_rows) {
  std::vector<int> rows;
  for (int i = 0; i < box_rows; ++i) {
    int row = box.first + i;
    bool is_inside = row >= 0 && row < tensor_rows;
    if (box.missing != 0) {  // by the map whose address lies box_rows before the tensor
      const int along_missing = box.missing + i, along_row = box.first + box_rows - box.missing;
      is_inside = along_missing < box_rows && along_row >= 0 && along_row < tensor_rows + 1;
      row = along_missing + along_row - box_rows;
    }
    rows.push_back(is_inside ? row : -1);
  }
  return rows;
}

TEST(BoundedBox, CopiesTheRowsThatAreThereAndNoOthers) {
  for (const int box_rows : {8, 16, 64}) {
    for (int tensor_rows = 1; tensor_rows < 80; tensor_rows += 6) {
      for (int first = 0; first < tensor_rows; ++first) {
        for (int rows = -2; first + rows <= tensor_rows; ++rows) {
          const std::vector<int> copied =
              copied_rows(bounded_box(box_rows, first, rows, 0, 0), box_rows, tensor_rows);
          for (int i = 0; i < box_rows; ++i)
            ASSERT_EQ(copied[static_cast<std::size_t>(i)], i < rows ? first + i : -1)
                << box_rows << " " << tensor_rows << " " << first << " " << rows;
        }
      }
    }
  }
}

// The second map's address is no tensor's: nothing but boxes with rows may be copied by it.
TEST(BoundedBox, WithoutRowsIsNotOfTheSecondMap) {
  for (const int rows : {-5, 0}) EXPECT_EQ(bounded_box(16, 3, rows, 1, 2).missing, 0);
  EXPECT_EQ(bounded_box(16, 3, 16, 1, 2).missing, 0);
  EXPECT_EQ(bounded_box(16, 3, 1, 1, 2).missing, 15);
}

TEST(BoundedBox, HasRowsOfOnePage) {
  EXPECT_EQ(box_rows(128, 0), 128);
  EXPECT_EQ(box_rows(128, 16), 16);
  EXPECT_EQ(box_rows(80, 64), 16);
  EXPECT_EQ(box_rows(64, 256), 64);
  EXPECT_EQ(box_rows(48, 20), 4);
}

}  // namespace
}  // namespace jit
