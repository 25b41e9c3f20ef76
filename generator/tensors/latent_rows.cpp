#include "generator/tensors/latent_rows.h"

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/tensors/tensor_checks.h"

namespace jit {

void check_latent_rows(DType dtype, std::string_view name, const TensorView& tensor) {
  const DTypeFacts& stored = facts(dtype);
  if (dtype != DType::latent_584) return;
  const std::int64_t rows = tensor.shape[1], row = tensor.strides[1], page = tensor.strides[0];
  if (row != stored.row_bytes && rows > 1)
    refuse(name,
           fmt::format("has rows every {} bytes; those of {} are {}", row, stored.name, stored.row_bytes));
  const std::int64_t least = rows * stored.row_bytes;
  if (tensor.shape[0] <= 1 || (page % latent_row_in_page == 0 && page >= least)) return;
  const std::int64_t padded = (least + latent_row_in_page - 1) / latent_row_in_page * latent_row_in_page;
  refuse(
      name,
      fmt::format("has pages every {} bytes; {} pads pages of {} rows to a multiple of {} bytes, at least {}",
                  page, stored.name, rows, latent_row_in_page, padded));
}

}  // namespace jit
