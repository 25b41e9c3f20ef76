/// @file
/// DLPack tensors as views, without a copy. Needs <dlpack/dlpack.h> of the including project; the library
/// itself does not.
///
/// @code
/// std::int64_t shape[] = {2, 4096, 8, 128};
/// DLTensor tensor{};  // as a framework exports it
/// tensor.data = q.data;
/// tensor.device = {kDLCUDA, 0};
/// tensor.dtype = {kDLBfloat, 16, 1};
/// tensor.ndim = 4;
/// tensor.shape = shape;
/// assert(jit::from_dlpack(tensor).to_string() == "bf16 (2, 4096, 8, 128) strides (4194304, 1024, 128, 1)");
/// @endcode
#pragma once

#include <dlpack/dlpack.h>

#include <jit/error.h>
#include <jit/tensor.h>

namespace jit {

/// A view of a DLPack tensor, which keeps owning the memory. Throws Error invalid_argument unless elements are bf16,
/// fp16, fp32, int32, int64 or uint8 of one lane, there are one to four dimensions, and the memory is CUDA device or
/// managed memory.
inline TensorView from_dlpack(const DLTensor& tensor) {
  const auto refuse = [](const char* message) {
    throw Error(ErrorCode::invalid_argument, "from_dlpack", "tensor", message);
  };
  if (tensor.device.device_type != kDLCUDA && tensor.device.device_type != kDLCUDAManaged) {
    refuse("the DLPack tensor is not in CUDA memory; copy it to the GPU first");
  }
  if (tensor.ndim < 1 || tensor.ndim > max_rank) refuse("a DLPack tensor must have one to four dimensions");
  TensorView view;
  const int bits = tensor.dtype.bits;
  if (tensor.dtype.lanes != 1) refuse("a DLPack tensor must have one lane per element");
  if (tensor.dtype.code == kDLBfloat && bits == 16) {
    view.dtype = DType::bf16;
  } else if (tensor.dtype.code == kDLFloat && bits == 16) {
    view.dtype = DType::fp16;
  } else if (tensor.dtype.code == kDLFloat && bits == 32) {
    view.dtype = DType::fp32;
  } else if (tensor.dtype.code == kDLInt && bits == 32) {
    view.dtype = DType::int32;
  } else if (tensor.dtype.code == kDLInt && bits == 64) {
    view.dtype = DType::int64;
  } else if (tensor.dtype.code == kDLUInt && bits == 8) {
    view.dtype = DType::uint8;
  } else {
    refuse("the element type must be bf16, fp16, fp32, int32, int64 or uint8");
  }
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.rank = tensor.ndim;
  std::int64_t dense = 1;  // DLPack leaves strides out for dense row-major tensors
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    view.shape[i] = tensor.shape[i];
    view.strides[i] = tensor.strides != nullptr ? tensor.strides[i] : dense;
    dense *= tensor.shape[i];
  }
  return view;
}

}  // namespace jit
