/// @file
/// Views of tensors in GPU memory. A view is a plain value that owns nothing: the memory is the caller's, and must stay
/// valid until the work that was launched with it is complete.
///
/// @code
/// void* const address = q.data;
/// const jit::TensorView keys = jit::TensorView::bshd(address, jit::DType::bf16,
///                                                    {.batch = 2, .seqlen = 4096, .heads = 8, .head_dim = 128});
/// assert(keys.to_string() == "bf16 (2, 4096, 8, 128) strides (4194304, 1024, 128, 1)");
/// // PyTorch's order in memory: (batch, heads, seqlen, head_dim).
/// const jit::TensorView same_sizes = jit::TensorView::bhsd(address, jit::DType::bf16, {2, 4096, 8, 128});
/// const jit::TensorView lse = jit::TensorView::bhs(address, 2, 8, 4096);
/// const jit::TensorView ids = jit::TensorView::dense(address, jit::DType::int32, {2, 4096});
/// assert(ids.is_present() && !jit::TensorView{}.is_present());
/// assert(jit::size_of(jit::parse_dtype("fp8_e4m3")) == 1 && jit::to_string(keys.dtype) == "bf16");
/// @endcode
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace jit {

/// Element types. q, k and v are bf16, fp16 or FP8, as in the OCP "8-bit Floating Point Specification"; e4m3 has no
/// infinities. int8 and the types after it occur only in KV caches (docs/kv-caches.md), int8 also in o. An element of
/// int4, nvfp4 and mxfp4 is a byte with two numbers, the first one in the low half; sizes and strides count bytes, also
/// for latents, rows of 656, 584 or 528 bytes. The other types occur in LSE and in tensors of masks and scores.
enum class DType : std::uint8_t {
  bf16,
  fp16,
  fp32,
  int32,
  int64,
  uint8,
  fp8_e4m3,
  fp8_e5m2,
  int8,
  int4,
  nvfp4,
  mxfp4,
  latent_656,
  latent_584,
  latent_528
};

/// "bf16", "fp16", ….
std::string_view to_string(DType dtype);
/// Inverse of to_string; throws Error invalid_argument naming what is accepted.
DType parse_dtype(std::string_view text);
/// Bytes of one element.
int size_of(DType dtype);

/// The largest number of dimensions of a tensor.
inline constexpr int max_rank = 4;

/// The sizes of q, k, v or o: {.batch = 2, .seqlen = 4096, .heads = 32, .head_dim = 128}.
struct Shape {
  std::int64_t batch = 1;     ///< batch entries
  std::int64_t seqlen = 1;    ///< tokens of each
  std::int64_t heads = 1;     ///< heads
  std::int64_t head_dim = 1;  ///< elements of a head
};

/// Pointer, element type, shape and strides. A default-constructed view means "no tensor".
struct TensorView {
  void* data = nullptr;                 ///< address on the device of the first element; not owned
  DType dtype = DType::bf16;            ///< element type
  int rank = 0;                         ///< number of dimensions; 0: no tensor
  std::int64_t shape[max_rank] = {};    ///< sizes of the dimensions
  std::int64_t strides[max_rank] = {};  ///< distance of neighbors in each dimension, in elements

  /// A dense tensor (batch, seqlen, heads, head_dim): the layout that flash-attention calls BSHD.
  static TensorView bshd(void* data, DType dtype, const Shape& shape);
  /// A dense tensor of four sizes over memory laid out as (batch, heads, seqlen, head_dim), as PyTorch's SDPA
  /// has it.
  static TensorView bhsd(void* data, DType dtype, const Shape& shape);
  /// A dense fp32 tensor (batch, heads, seqlen), as LSE is written.
  static TensorView bhs(void* data, std::int64_t batch, std::int64_t heads, std::int64_t seqlen);
  /// A dense tensor of one to four dimensions. Throws Error invalid_argument for more.
  static TensorView dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape);

  /// Whether there is a tensor.
  bool is_present() const { return rank != 0; }
  /// Type, shape and strides as text: "bf16 (2, 4096, 8, 128) strides (4194304, 1024, 128, 1)".
  std::string to_string() const;
};

}  // namespace jit
