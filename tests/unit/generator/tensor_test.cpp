#include <jit/dlpack.h>
#include <jit/tensor.h>

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/tensors/tensor_checks.h"
#include "tests/support/error_of.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::error_of;
using ::testing::HasSubstr;

char memory[64];

constexpr std::array all_dtypes = {DType::bf16,  DType::fp16,  DType::fp32,
                                   DType::int32, DType::int64, DType::uint8};

TEST(DType, NamesAndSizes) {
  std::vector<int> sizes;
  for (const DType dtype : all_dtypes) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    sizes.push_back(size_of(dtype));
  }
  EXPECT_THAT(sizes, ElementsAre(2, 2, 4, 4, 8, 1));
  EXPECT_THAT(error_of([] { parse_dtype("float"); }).message(),
              HasSubstr("bf16, fp16, fp32, int32, int64, uint8"));
  EXPECT_THROW(size_of(static_cast<DType>(77)), Error);
}

TEST(TensorView, DenseLayouts) {
  const TensorView bshd = TensorView::bshd(memory, DType::fp16, {2, 3, 5, 7});
  EXPECT_EQ(bshd.data, memory);
  EXPECT_EQ(bshd.dtype, DType::fp16);
  EXPECT_EQ(bshd.rank, 4);
  EXPECT_THAT(bshd.shape, ElementsAre(2, 3, 5, 7));
  EXPECT_THAT(bshd.strides, ElementsAre(105, 35, 7, 1));
  const TensorView bhsd = TensorView::bhsd(memory, DType::bf16, {2, 3, 5, 7});
  EXPECT_THAT(bhsd.shape, ElementsAre(2, 3, 5, 7));
  EXPECT_THAT(bhsd.strides, ElementsAre(105, 7, 21, 1));
  const TensorView lse = TensorView::bhs(memory, 2, 3, 5);
  EXPECT_EQ(lse.dtype, DType::fp32);
  EXPECT_EQ(lse.rank, 3);
  EXPECT_THAT(std::vector(lse.shape, lse.shape + 3), ElementsAre(2, 3, 5));
  EXPECT_THAT(std::vector(lse.strides, lse.strides + 3), ElementsAre(15, 5, 1));
}

TEST(TensorView, DenseOfOneToFourDimensions) {
  EXPECT_EQ(TensorView::dense(memory, DType::int32, {4}).rank, 1);
  EXPECT_EQ(TensorView::dense(memory, DType::int32, {4, 5}).strides[0], 5);
  EXPECT_THROW(TensorView::dense(memory, DType::int32, {1, 2, 3, 4, 5}), Error);
}

TEST(TensorView, IsDenseWithoutElementsWhateverTheStrides) {
  TensorView rows = TensorView::dense(memory, DType::fp32, {2, 2, 3});
  EXPECT_TRUE(is_dense(rows));
  rows.strides[1] = 4;
  EXPECT_FALSE(is_dense(rows));
  EXPECT_TRUE(is_dense(rows, 2));
  rows.shape[2] = 0;  // as PyTorch has it
  EXPECT_TRUE(is_dense(rows));
}

TEST(TensorView, KnowsWhetherItIsThere) {
  EXPECT_FALSE(TensorView{}.is_present());
  EXPECT_TRUE(TensorView::dense(nullptr, DType::fp32, {0}).is_present());
}

TEST(TensorView, Prints) {
  EXPECT_EQ(TensorView::bshd(memory, DType::bf16, {2, 4096, 8, 128}).to_string(),
            "bf16 (2, 4096, 8, 128) strides (4194304, 1024, 128, 1)");
}

struct DlpackCase {
  DLDataType type;
  DType expected;
};

DLTensor dl_tensor(std::int64_t* shape, std::int64_t* strides, int rank) {
  return {.data = memory,
          .device = {kDLCUDA, 0},
          .ndim = rank,
          .dtype = {kDLBfloat, 16, 1},
          .shape = shape,
          .strides = strides,
          .byte_offset = 0};
}

TEST(FromDlpack, TakesEveryElementType) {
  std::int64_t shape[] = {3};
  const DlpackCase cases[] = {{{kDLBfloat, 16, 1}, DType::bf16}, {{kDLFloat, 16, 1}, DType::fp16},
                              {{kDLFloat, 32, 1}, DType::fp32},  {{kDLInt, 32, 1}, DType::int32},
                              {{kDLInt, 64, 1}, DType::int64},   {{kDLUInt, 8, 1}, DType::uint8}};
  for (const DlpackCase& each : cases) {
    DLTensor tensor = dl_tensor(shape, nullptr, 1);
    tensor.dtype = each.type;
    EXPECT_EQ(from_dlpack(tensor).dtype, each.expected);
  }
}

TEST(FromDlpack, TakesShapesStridesAndOffsets) {
  std::int64_t shape[] = {2, 3, 5, 7}, strides[] = {1000, 7, 50, 1};
  DLTensor tensor = dl_tensor(shape, strides, 4);
  tensor.byte_offset = 6;
  const TensorView view = from_dlpack(tensor);
  EXPECT_EQ(view.data, memory + 6);
  EXPECT_EQ(view.rank, 4);
  EXPECT_THAT(view.shape, ElementsAreArray(shape));
  EXPECT_THAT(view.strides, ElementsAreArray(strides));
  tensor.strides = nullptr;
  EXPECT_THAT(from_dlpack(tensor).strides, ElementsAre(105, 35, 7, 1));
  tensor.device.device_type = kDLCUDAManaged;
  EXPECT_NO_THROW(from_dlpack(tensor));
}

TEST(FromDlpack, RefusesWhatItCannotView) {
  std::int64_t shape[] = {1, 1, 1, 1, 1};
  const std::vector<std::pair<const char*, void (*)(DLTensor&)>> bad = {
      {"not in CUDA memory", [](DLTensor& t) { t.device.device_type = kDLCPU; }},
      {"not in CUDA memory", [](DLTensor& t) { t.device.device_type = kDLCUDAHost; }},
      {"one to four dimensions", [](DLTensor& t) { t.ndim = 5; }},
      {"one to four dimensions", [](DLTensor& t) { t.ndim = 0; }},
      {"one lane", [](DLTensor& t) { t.dtype.lanes = 2; }},
      {"element type",
       [](DLTensor& t) {
         t.dtype = {kDLFloat, 64, 1};
       }},
      {"element type",
       [](DLTensor& t) {
         t.dtype = {kDLInt, 8, 1};
       }},
      {"element type",
       [](DLTensor& t) {
         t.dtype = {kDLUInt, 32, 1};
       }},
      {"element type",
       [](DLTensor& t) {
         t.dtype = {kDLComplex, 64, 1};
       }},
  };
  for (const auto& [message, change] : bad) {
    DLTensor tensor = dl_tensor(shape, nullptr, 4);
    change(tensor);
    const Error error = error_of([&] { from_dlpack(tensor); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace jit
