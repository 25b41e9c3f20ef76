// Rows of 8-bit latents as tensors: (pages, page_size, 1, bytes), or without pages.
#pragma once

#include <string_view>

#include <jit/tensor.h>

namespace jit {

/// Bytes between rows of latent_584 in a page, whose scales follow all rows. Pages are padded to a multiple.
inline constexpr int latent_row_in_page = 576;

/// Checks that rows and pages have the format's layout. Throws Error invalid_argument of field `name`.
void check_latent_rows(DType dtype, std::string_view name, const TensorView& tensor);

}  // namespace jit
