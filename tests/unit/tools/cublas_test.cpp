// cuBLAS as the tool calls it: found or not, and C = A Bᵀ of matrices with rows first.
#include "tools/jit_attention/cublas.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/float16.h>

#include "tools/jit_attention/command.h"

namespace jit::tool {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(Cublas, MultipliesMatricesWithRowsFirst) {
  constexpr int m = 3, n = 2, k = 5, stride = 8;
  std::vector<std::uint16_t> a(m * stride), b(n * stride), c(m * stride);
  const auto fill = [&](std::vector<std::uint16_t>& matrix, int first) {
    for (std::size_t i = 0; i < matrix.size(); ++i)
      matrix[i] = float_to_bits(DType::bf16, static_cast<float>((static_cast<int>(i) * 7 + first) % 5 - 2));
  };
  fill(a, 1);
  fill(b, 3);
  const auto view = [&](std::vector<std::uint16_t>& matrix, int rows, int columns) {
    TensorView tensor = TensorView::dense(matrix.data(), DType::bf16, {rows, columns});
    tensor.strides[0] = stride;
    return tensor;
  };
  const Cublas cublas({"/there/is/no/such/library.so", STAND_IN_CUBLAS});
  EXPECT_EQ(cublas.name(), "cuBLAS 13.1.5");
  cublas.multiply({.a = view(a, m, k), .b = view(b, n, k), .c = view(c, m, n)}, nullptr);
  const auto value = [](std::uint16_t bits) { return float_from_bits(DType::bf16, bits); };
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float expected = 0;
      for (int l = 0; l < k; ++l)
        expected += value(a[static_cast<std::size_t>(i * stride + l)]) *
                    value(b[static_cast<std::size_t>(j * stride + l)]);
      EXPECT_EQ(value(c[static_cast<std::size_t>(i * stride + j)]), expected) << i << ", " << j;
    }
  }
}

TEST(Cublas, SaysWhatIsMissing) {
  const auto reason = [](const std::vector<std::string>& files) {
    try {
      const Cublas cublas(files);
    } catch (const BadInput& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(reason({"/there/is/no/such/library.so"}),
              HasSubstr("neither libcublas.so.13 nor libcublas.so.12"));
  EXPECT_THAT(reason({"libdl.so.2"}), HasSubstr("lacks the function cublasCreate_v2"));
  EXPECT_EQ(cublas_files().front(), "libcublas.so.13");
  EXPECT_THAT(cublas_files(), Contains(EndsWith("/usr/local/cuda/lib64/libcublas.so.12")));
}

}  // namespace
}  // namespace jit::tool
