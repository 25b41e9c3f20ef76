#include "operand_files.h"

#include <fmt/format.h>

#include "command.h"
#include "npy.h"

namespace jit::tool {

Array read_operand(const std::string& path, std::optional<DType> bytes, const char* option) {
  Array array = read_npy(path);
  if (bytes) {
    if (array.dtype != DType::uint8) {
      throw BadInput(fmt::format("{} is {}; with {} it must be uint8, the bytes of {}", path, describe(array),
                                 option, to_string(*bytes)));
    }
    array.dtype = *bytes;
  } else if (array.dtype != DType::fp32 && array.dtype != DType::fp16) {
    throw BadInput(fmt::format("{} is {}; it must be float32 or float16", path, describe(array)));
  }
  if (array.shape.size() != 3 && array.shape.size() != 4) {
    throw BadInput(
        fmt::format("{} is {}; its shape must be (batch, seqlen, heads, head_dim), (rows of all sequences, "
                    "heads, head_dim) or (pages, page_size, heads, head_dim)",
                    path, describe(array)));
  }
  return array;
}

Array read_as(const std::string& path, DType dtype, std::size_t rank, const char* wanted) {
  Array array = convert(read_npy(path), dtype, path);
  if (array.shape.size() != rank)
    throw BadInput(fmt::format("{} is {}; its shape must be {}", path, describe(array), wanted));
  return array;
}

}  // namespace jit::tool
