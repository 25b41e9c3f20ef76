// New keys and values into a cache, on the way normalized and rotated, and their queries with them: what stands between
// the projections of a layer and its attention, in one launch.
//
//   jit::AppendSpec spec{.head_dim = 128, .rotary_dim = 128};
//   jit::append(spec)({.k = k, .v = v, .k_cache = k_cache, .v_cache = v_cache, .slot_mapping = slots,
//                      .q = q, .cos_sin = table, .positions = positions}, stream);
//
// A row of q or k goes, in fp32, through RMS norm if there is one, x · weight / sqrt(mean(x²) + eps), then through the
// rotary position embedding of its leading rotary_dim elements, then is rounded once. Equal inputs give bitwise
// identical results.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/options.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// What an append kernel is made for. Sizes, strides, where tokens go and whether there are queries are run-time facts.
struct AppendSpec {
  DType dtype = DType::bf16;              ///< of q, k and v: bf16 or fp16
  std::optional<DType> cache_dtype = {};  ///< of the caches: bf16, fp16, fp8_e4m3 or fp8_e5m2; default: dtype
  /// With caches of fp8: scales are of heads, and given, or of each token and head, and found as these are stored.
  ScaleKind scale_per = ScaleKind::head;
  int head_dim = 128;  ///< of q and k: a multiple of 8 from 8 to 1024
  int head_dim_v = 0;  ///< of v, same rule; 0: head_dim
  /// Bytes that every row of q, k, v, the caches, the table and the norms' weights is aligned to: 16, 8, 4 or 2; rows of
  /// caches of fp8 to half of it.
  int alignment = 16;

  int rotary_dim = 0;  ///< leading elements of a head that are rotated: even, up to head_dim; 0: none
  /// Which elements are a pair: (2j, 2j + 1), as GPT-J has it, or (j, j + rotary_dim / 2), as GPT-NeoX.
  bool rotary_interleaved = false;
  DType cos_sin_dtype = DType::fp32;  ///< of cosines and sines: fp32, bf16 or fp16
  /// M-RoPE: how many pairs have the position of each of three axes; together rotary_dim / 2. All 0: one axis.
  std::array<int, 3> mrope_sections = {};
  /// Axes of pairs in turns, 0 1 2 0 1 2 …, for as long as the sections of 1 and 2 last, then 0, as Qwen3-VL has it;
  /// else one section after another, as Qwen2-VL.
  bool mrope_interleaved = false;

  bool norm = false;               ///< RMS norm of every head of q and k before the rotation
  DType norm_dtype = DType::bf16;  ///< of the weights: bf16, fp16 or fp32
  bool norm_adds_one = false;      ///< x · (1 + weight), as Gemma has it
  float norm_eps = 1e-6f;          ///< positive; a run-time fact

  int value_head_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  DType stored_dtype() const { return cache_dtype.value_or(dtype); }
  bool has_sections() const { return mrope_sections != std::array<int, 3>{}; }
  bool operator==(const AppendSpec&) const = default;
};

/// Throws Error invalid_spec with the first reason why `spec` cannot be served.
void validate(const AppendSpec& spec);

/// The tensors of one call. `tokens` are varlen: those of all requests, one after another. Instead of (tokens, …) all
/// of q, k, v, q_out, slot_mapping and positions may be (batch, seqlen, …). Any strides whose last is 1;
/// slot_mapping, seqused_k, cu_seqlens_q, the weights and, but for the axis, positions are dense.
///
/// What the arrays on the device say is not read by the host. A token whose slot, page or place in a page does not
/// exist, or is −1, or which belongs to no request, is not stored; one whose position is none of the table's is left
/// alone, q included. Nothing else is ever written. Two tokens must not have one place.
struct AppendArguments {
  TensorView k;  ///< (tokens, heads_kv, head_dim)
  TensorView v;  ///< (tokens, heads_kv, head_dim_v)
  TensorView
      k_cache;  ///< (pages, page_size, heads_kv, head_dim), or (batch, capacity, heads_kv, head_dim); written
  TensorView
      v_cache;  ///< (pages, page_size, heads_kv, head_dim_v), or (batch, capacity, heads_kv, head_dim_v); written

  /// Where tokens go: int64 (tokens), page · page_size + place in the page …
  TensorView slot_mapping = {};
  /// … or int32 (batch): keys of each request in the cache, the new tokens, which are the last of them, included, …
  TensorView seqused_k = {};
  TensorView cu_seqlens_q =
      {};  ///< … int32 (batch + 1), unless k is dense: where the requests' tokens begin, …
  TensorView page_table =
      {};  ///< … int32 (batch, max_pages): their pages; without it page b is all of request b.

  TensorView q = {};      ///< optional: (tokens, heads_q, head_dim), normalized and rotated in place …
  TensorView q_out = {};  ///< … or to here. Neither shares a byte with k or v.

  /// With rotary_dim: (max_pos, rotary_dim), rotary_dim / 2 cosines, then the sines …
  TensorView cos_sin = {};
  /// … or cosines and sines in two tensors of (max_pos, rotary_dim / 2), of one type.
  TensorView cos = {};
  TensorView sin = {};
  /// int64 (tokens), with sections (3, tokens): rows of the table. May be left out with seqused_k: then a token's position
  /// is that in its request.
  TensorView positions = {};
  TensorView q_norm_weight = {};  ///< with norm and q: (head_dim)
  TensorView k_norm_weight = {};  ///< with norm: (head_dim)

  /// With caches of fp8: what k and v are divided by as they are stored, fp32. Quotients are rounded to the nearest even,
  /// and too large ones to the largest number. With ScaleKind::head optional, and read: (1) or (heads_kv). With
  /// ScaleKind::token written: (pages, page_size, heads_kv), any strides, so that they may lie behind the elements of
  /// their row. A row's scale is its largest magnitude over the largest number (448, 57344), 1 where that magnitude is
  /// less than 2^-100. NaN takes no part in it, and an infinity counts as the largest float.
  TensorView k_scale = {};
  TensorView v_scale = {};
};

/// Checks what can be wrong with the arguments of a call for `spec`, as the call itself does. Needs no device. Throws
/// Error invalid_argument whose field is the argument's name.
void check_arguments(const AppendSpec& spec, const AppendArguments& arguments);

struct OperationState;

/// A spec's kernel on every GPU. Cheap to copy; thread safe.
class Append {
 public:
  /// Stores on `stream`, on the device of the current context. The first call on a device loads the kernel there, or
  /// `prepare`; later calls only launch: no compile, allocation, lock or synchronization, and nothing is read from
  /// device memory. Under capture Error not_prepared when the kernel is not loaded. Without tokens nothing is launched.
  /// Throws Error invalid_argument, naming the argument, before anything is launched; launch_failed.
  void operator()(const AppendArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device, also while some stream is being captured. Throws what append() throws.
  void prepare() const;

  const AppendSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  Append(const AppendSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  AppendSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel for `spec`, compiled or taken from the cache, and loaded on the current device. Asking again for the same
/// spec is a look-up without locks, which loads nothing. Throws Error invalid_spec before anything else;
/// unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
Append append(const AppendSpec& spec, const Context& context = default_context());

}  // namespace jit
