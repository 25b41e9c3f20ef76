#include "capi/tensors.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "capi/structs.h"

namespace jit::c {
namespace {

// DLPack's constants.
constexpr int cuda = 2, cuda_managed = 13, boolean = 6;

std::optional<DType> dtype_of(const jit_tensor_type& type) {
  if (type.lanes != 1) return {};
  if (type.code == boolean && type.bits == 8) return DType::uint8;
  for (const DTypeFacts& row : dtype_table()) {
    if (type.code == static_cast<std::uint8_t>(row.kind) && type.bits == row.bytes * 8) return row.dtype;
  }
  return {};
}

void check_place(const jit_tensor& tensor, std::string_view name, int device) {
  const auto [type, ordinal] = tensor.device;
  if (type != cuda && type != cuda_managed) {
    refuse(name,
           fmt::format("lies in {} (DLPack device type {}); it must lie in CUDA memory, type {} or {}",
                       type == 1 ? "CPU memory" : "memory that no kernel reads", type, cuda, cuda_managed));
  }
  if (type == cuda && device >= 0 && ordinal != device)
    refuse(name, fmt::format("lies on device {}; the context's device is {}", ordinal, device));
}

}  // namespace

TensorView view_of(const jit_tensor* given, std::string_view name, int device) {
  if (given == nullptr) return {};
  const jit_tensor& tensor = checked_pointer(given, name);
  if (tensor.ndim < 1 || tensor.ndim > max_rank)
    refuse(name, fmt::format("has {} dimensions; it must have 1 to {}", tensor.ndim, max_rank));
  checked_pointer(tensor.shape, fmt::format("{}.shape", name));
  if (tensor.strides != nullptr) checked_pointer(tensor.strides, fmt::format("{}.strides", name));
  check_place(tensor, name, device);
  const std::optional<DType> dtype = dtype_of(tensor.dtype);
  if (!dtype) {
    refuse(name, fmt::format(
                     "has elements of DLPack type code {}, {} bits, {} lanes, which are none of bf16, fp16, "
                     "fp32, fp8_e4m3, fp8_e5m2, int32, int64, uint8 and bool",
                     tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes));
  }
  TensorView view;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.dtype = *dtype;
  view.rank = tensor.ndim;
  // Strides of an empty tensor are arbitrary; some frameworks give zeros.
  const bool is_empty = std::count(tensor.shape, tensor.shape + tensor.ndim, 0) != 0;
  std::int64_t dense = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] < 0) refuse(name, fmt::format("has size {} in dimension {}", tensor.shape[i], i));
    view.shape[i] = tensor.shape[i];
    view.strides[i] = tensor.strides != nullptr && !is_empty ? tensor.strides[i] : dense;
    if (__builtin_mul_overflow(dense, tensor.shape[i], &dense))
      refuse(name, "has more elements than 64 bits can count");
  }
  if (tensor.data == nullptr && !is_empty) refuse(name, "has elements, and its data is a null pointer");
  return view;
}

NamedTensors views_of(const jit_named_tensor* tensors, std::size_t count, std::string_view member,
                      int device) {
  if (count > NamedTensors::capacity)
    refuse(member, fmt::format("has {} tensors; at most {} are possible", count, NamedTensors::capacity));
  check_array(tensors, count, member);
  NamedTensors views;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string place = fmt::format("{}[{}]", member, i);
    const std::string_view name = &checked_pointer(tensors[i].name, place + ".name");
    checked_pointer(tensors[i].tensor, place + ".tensor");
    views.add({name, view_of(tensors[i].tensor, name, device)});
  }
  return views;
}

}  // namespace jit::c
