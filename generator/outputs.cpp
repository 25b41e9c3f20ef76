#include <jit/outputs.h>

#include <cstdint>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/error.h>

#include "generator/tensors/tensor_checks.h"
#include "runtime/driver_api.h"

namespace jit {

void clear_output(const TensorView& output, Stream stream) {
  if (output.dtype != DType::fp32 || !is_dense(output))
    throw Error(ErrorCode::invalid_argument, "clear_output", "output",
                fmt::format("is {}; it must be dense fp32", output.to_string()));
  check_sizes_and_strides("output", output);
  constexpr unsigned minus_infinity = 0xff800000;
  std::int64_t count = 1;
  for (int i = 0; i < output.rank; ++i) count *= output.shape[i];
  if (count == 0) return;
  check_pointer("output", output, sizeof(float));
  const CurrentDevice device;
  check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(output.data), minus_infinity,
                                  static_cast<std::size_t>(count), stream),
        "cuMemsetD32Async");
}

}  // namespace jit
