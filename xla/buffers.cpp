#include "xla/buffers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "generator/tensors/tensor_checks.h"

namespace jit::xla {
namespace {

constexpr std::pair<ElementType, DType> element_types[] = {
    {ElementType::boolean, DType::uint8},     {ElementType::uint8, DType::uint8},
    {ElementType::int32, DType::int32},       {ElementType::int64, DType::int64},
    {ElementType::fp16, DType::fp16},         {ElementType::bf16, DType::bf16},
    {ElementType::fp32, DType::fp32},         {ElementType::fp8_e4m3, DType::fp8_e4m3},
    {ElementType::fp8_e5m2, DType::fp8_e5m2},
};

std::optional<DType> dtype_of(ElementType type) {
  for (const auto& [known, dtype] : element_types) {
    if (known == type) return dtype;
  }
  return {};
}

TensorView view_of(const Buffer& buffer, std::string_view name) {
  if (name == "rng_state" && buffer.dtype == ElementType::uint32 && buffer.rank == 1 && buffer.dims[0] == 4)
    return TensorView::dense(buffer.data, DType::int64, {2});
  const std::optional<DType> dtype = dtype_of(buffer.dtype);
  if (!dtype)
    refuse(name, fmt::format("is of XLA's element type {}; it must be one of BF16, F16, F32, F8E4M3FN, "
                             "F8E5M2, S32, S64, U8 and PRED",
                             static_cast<int>(buffer.dtype)));
  if (buffer.rank < 1 || buffer.rank > max_rank)
    refuse(name, fmt::format("has {} dimensions; tensors of calls have from 1 to {}", buffer.rank, max_rank));
  TensorView view{.data = buffer.data, .dtype = *dtype, .rank = static_cast<int>(buffer.rank)};
  std::copy_n(buffer.dims, buffer.rank, view.shape);
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= std::max<std::int64_t>(view.shape[i], 1);
  }
  return view;
}

}  // namespace

std::vector<NamedBuffer> named_buffers(const Buffers& buffers, const std::vector<std::string>& names,
                                       std::string_view kind) {
  if (buffers.size != static_cast<std::int64_t>(names.size()))
    refuse(kind, fmt::format("has {} names, and the call has {} of them", names.size(), buffers.size));
  std::vector<NamedBuffer> named;
  for (std::int64_t i = 0; i < buffers.size; ++i) {
    const std::string_view name = names[static_cast<std::size_t>(i)];
    if (buffers.kinds[i] != BufferKind::buffer) refuse(name, "is no buffer");
    named.push_back({name, view_of(*static_cast<const Buffer*>(buffers.items[i]), name)});
  }
  return named;
}

}  // namespace jit::xla
