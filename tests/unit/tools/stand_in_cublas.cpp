// The functions of libcublas that the tool calls, over matrices in memory of the host: what each argument of the product
// means is written here as BLAS has it, columns first.
#include <bit>
#include <cstdint>

namespace {

float to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Element (row, column) of op(X), where X has `stride` elements from column to column.
float element(const void* x, int op, int stride, int row, int column) {
  const auto* bits = static_cast<const std::uint16_t*>(x);
  return to_float(op == 0 ? bits[column * stride + row] : bits[row * stride + column]);
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  static int anything;
  *handle = &anything;
  return 0;
}
int cublasDestroy_v2(void*) { return 0; }
int cublasGetVersion_v2(void*, int* version) {
  *version = 130105;
  return 0;
}
int cublasSetStream_v2(void*, void*) { return 0; }

int cublasGemmEx(void*, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                 int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c, int ldc,
                 int compute, int algorithm) {
  constexpr int bf16 = 14, fp32 = 68, not_supported = 15;
  if (type_a != bf16 || type_b != bf16 || type_c != bf16 || compute != fp32 || algorithm != -1)
    return not_supported;
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      std::uint16_t& target = static_cast<std::uint16_t*>(c)[column * ldc + row];
      float sum = 0;
      for (int i = 0; i < k; ++i) sum += element(a, op_a, lda, row, i) * element(b, op_b, ldb, i, column);
      const float result =
          *static_cast<const float*>(alpha) * sum + *static_cast<const float*>(beta) * to_float(target);
      target = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(result) >> 16);
    }
  }
  return 0;
}
}
