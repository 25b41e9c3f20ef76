#include "generator/operations/matmul/arguments.h"

#include <fmt/format.h>

#include "generator/operations/operands.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {

MatmulParams matmul_params(const MatmulArguments& arguments, bool splits_k) {
  constexpr int row_alignment = 16;
  constexpr std::int64_t most = 1 << 20, most_splits = 1024;
  CallSizes sizes;
  sizes.check({"a", "m, k", DType::bf16, row_alignment}, arguments.a);
  sizes.check({"b", "n, k", DType::bf16, row_alignment}, arguments.b);
  sizes.check({"c", "m, n", DType::bf16, row_alignment}, arguments.c);
  for (const char* size : {"m", "n", "k"}) {
    if (sizes[size] > most)
      refuse(size[0] == 'n' ? "b" : "a",
             fmt::format("has {} = {}; a size is at most 2^20", size, sizes[size]));
  }
  check_no_self_overlap("c", arguments.c);
  check_no_overlap("c", arguments.c, "a", arguments.a);
  check_no_overlap("c", arguments.c, "b", arguments.b);
  std::int64_t splits = 1;
  const TensorView& partial_sums = arguments.partial_sums;
  if (splits_k) {
    sizes.check({"partial_sums", "splits, m, n", DType::fp32}, partial_sums);
    check_dense("partial_sums", partial_sums);
    splits = sizes["splits"];
    if (splits < 1 || splits > most_splits)
      refuse("partial_sums", fmt::format("has room for {} shares; give 1 to {}", splits, most_splits));
    check_no_overlap("partial_sums", partial_sums, "a", arguments.a);
    check_no_overlap("partial_sums", partial_sums, "b", arguments.b);
    check_no_overlap("partial_sums", partial_sums, "c", arguments.c);
  } else if (partial_sums.is_present()) {
    refuse("partial_sums", "is of the step split_k only; leave it out");
  }
  return {.a = arguments.a.data,
          .b = arguments.b.data,
          .c = arguments.c.data,
          .partial_sums = static_cast<float*>(partial_sums.data),
          .a_stride = stride_along(arguments.a, 0),
          .b_stride = stride_along(arguments.b, 0),
          .c_stride = stride_along(arguments.c, 0),
          .m = static_cast<int>(sizes["m"]),
          .n = static_cast<int>(sizes["n"]),
          .k = static_cast<int>(sizes["k"]),
          .splits = static_cast<int>(splits)};
}

}  // namespace jit
