#include <jit/tensor.h>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>

namespace jit {
namespace {

std::string join(const std::int64_t* values, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text;
}

}  // namespace

std::string_view to_string(DType dtype) { return facts(dtype).name; }

DType parse_dtype(std::string_view text) {
  std::string accepted;
  for (const DTypeFacts& row : dtype_table()) {
    if (row.name == text) return row.dtype;
    accepted += (accepted.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(ErrorCode::invalid_argument, "parse", "dtype",
              fmt::format("unknown dtype '{}'; known are {}", text, accepted));
}

int size_of(DType dtype) { return facts(dtype).bytes; }

TensorView TensorView::bshd(void* data, DType dtype, const Shape& shape) {
  return dense(data, dtype, {shape.batch, shape.seqlen, shape.heads, shape.head_dim});
}

TensorView TensorView::bhsd(void* data, DType dtype, const Shape& shape) {
  TensorView view = dense(data, dtype, {shape.batch, shape.heads, shape.seqlen, shape.head_dim});
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

TensorView TensorView::bhs(void* data, std::int64_t batch, std::int64_t heads, std::int64_t seqlen) {
  return dense(data, DType::fp32, {batch, heads, seqlen});
}

TensorView TensorView::dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  if (shape.size() == 0 || shape.size() > max_rank) {
    throw Error(ErrorCode::invalid_argument, "validate", "shape",
                fmt::format("a tensor has one to {} dimensions, not {}", max_rank, shape.size()));
  }
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape);
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

std::string TensorView::to_string() const {
  if (!is_present()) return "no tensor";
  return fmt::format("{} ({}) strides ({})", jit::to_string(dtype), join(shape, rank), join(strides, rank));
}

}  // namespace jit
