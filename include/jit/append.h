/// @file
/// Append stores new keys and values in a KV cache, in one launch that also applies RMS norm and rotary embedding to
/// keys and queries: everything between the projections of a layer and its attention.
///
/// @code
/// const jit::AppendSpec spec{.head_dim = 128, .rotary_dim = 128};
/// const jit::TensorView k_cache = allocate(jit::DType::bf16, {1, 256, 4, 128});  // batch, capacity, heads, head_dim
/// const jit::TensorView v_cache = allocate(jit::DType::bf16, {1, 256, 4, 128});
/// const jit::TensorView cos_sin = allocate(jit::DType::fp32, {4096, 128});
/// const jit::AppendArguments arguments{.k = k, .v = v, .k_cache = k_cache, .v_cache = v_cache,
///                                      .seqused_k = int32_tensor({100}),  // keys of the request, with the new ones
///                                      .q = q, .cos_sin = cos_sin};
/// const jit::Append append = jit::append(spec);
/// append(arguments, stream);
/// @endcode
///
/// A row of q or k goes, in fp32, through RMS norm if there is one, x · weight / sqrt(mean(x²) + eps), then through the
/// rotary position embedding of its leading rotary_dim elements, then is rounded once. Equal inputs give bitwise
/// identical results.
///
/// @code
/// const jit::AppendSpec spec{.cache_dtype = jit::DType::fp8_e4m3, .head_dim = 128, .head_dim_v = 64};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// assert(spec.value_head_dim() == 64 && spec.stored_dtype() == jit::DType::fp8_e4m3 && !spec.has_sections());
/// const jit::AppendArguments arguments{.k = k, .v = allocate(jit::DType::bf16, {1, 64, 4, 64}),
///                                      .k_cache = allocate(jit::DType::fp8_e4m3, {1, 256, 4, 128}),
///                                      .v_cache = allocate(jit::DType::fp8_e4m3, {1, 256, 4, 64}),
///                                      .seqused_k = int32_tensor({100})};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::Append append = jit::append(spec);
/// append.prepare();  // loads the kernel on the current device, ahead of a capture
/// assert(append.spec() == spec && append.source().find("#include") != std::string::npos);
/// @endcode
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

/// The problem that an append kernel is specialized for. Sizes, strides, places of tokens, and whether there are
/// queries are known at a call.
struct AppendSpec {
  DType dtype = DType::bf16;  ///< of q, k and v: bf16 or fp16
  /// Type of the caches: bf16, fp16, fp8_e4m3, fp8_e5m2, int8, int4, nvfp4 or mxfp4; default: dtype. Or latent_656,
  /// latent_584 or latent_528 (docs/mla.md): k_cache alone; in its rows v comes first, with 512, 448 or 448 columns,
  /// and then the 64 columns of k.
  std::optional<DType> cache_dtype = {};
  /// The scales of FP8 and int8 caches. head: the caller gives one per head; token: the kernel computes one per token
  /// and head. int4 needs token; nvfp4 and mxfp4 need head, beside their block scales.
  ScaleKind scale_per = ScaleKind::head;
  int head_dim = 128;  ///< of q and k: a multiple of 8 from 8 to 1024
  int head_dim_v = 0;  ///< of v, same rule; 0: head_dim
  /// Bytes that every row of q, k, v, the caches, the table and the norms' weights is aligned to: 16, 8, 4 or 2. Rows
  /// of FP8 caches are aligned to half of it.
  int alignment = 16;

  int rotary_dim = 0;  ///< leading elements of a head that are rotated: even, up to head_dim; 0: none
  /// Which elements are a pair: (2j, 2j + 1), as GPT-J has it, or (j, j + rotary_dim / 2), as GPT-NeoX.
  bool rotary_interleaved = false;
  DType cos_sin_dtype = DType::fp32;  ///< of cosines and sines: fp32, bf16 or fp16
  /// M-RoPE: numbers of pairs whose position is that of the first, second and third axis; their sum is rotary_dim / 2.
  /// All 0: one axis.
  std::array<int, 3> mrope_sections = {};
  /// Whether the axes of pairs alternate, 0 1 2 0 1 2 …, until the sections of 1 and 2 end, and then stay 0, as in
  /// Qwen3-VL. Otherwise one section follows another, as in Qwen2-VL.
  bool mrope_interleaved = false;

  bool norm = false;               ///< RMS norm of every head of q and k before the rotation
  DType norm_dtype = DType::bf16;  ///< of the weights: bf16, fp16 or fp32
  bool norm_adds_one = false;      ///< x · (1 + weight), as Gemma has it
  float norm_eps = 1e-6f;          ///< positive; a run-time fact

  /// head_dim_v, or head_dim if it is 0.
  int value_head_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  /// Element type of the caches.
  DType stored_dtype() const { return cache_dtype.value_or(dtype); }
  /// Whether positions have three axes.
  bool has_sections() const { return mrope_sections != std::array<int, 3>{}; }
  bool operator==(const AppendSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const AppendSpec& spec);

/// The tensors of one call. The tokens of all requests are concatenated, (tokens, …); or all of q, k, v, q_out,
/// slot_mapping and positions are (batch, seqlen, …). All strides are allowed if the last one is 1; slot_mapping,
/// seqused_k, cu_seqlens_q, the weights, and positions (except for the axis) are dense. The caller owns the memory.
///
/// Arrays are read only on the device. A token is not stored if its slot, page or row in a page does not exist or is
/// −1, or if it belongs to no request. A token whose position is no row of the table is skipped, and so is its q.
/// Nothing else is ever written. Two tokens must not have the same place.
struct AppendArguments {
  TensorView k;  ///< new keys (tokens, heads_kv, head_dim)
  TensorView v;  ///< new values (tokens, heads_kv, head_dim_v)
  /// Written: the key cache, pages (pages, page_size, heads_kv, head_dim), or (batch, capacity, heads_kv, head_dim).
  TensorView k_cache;
  /// Written: the value cache, likewise with head_dim_v. Absent with latents, which k_cache has.
  TensorView v_cache = {};

  /// Where tokens go, either: int64 (tokens), page · page_size + row in the page.
  TensorView slot_mapping = {};
  /// Or: int32 (batch), number of keys of each request. The new tokens are its last keys.
  TensorView seqused_k = {};
  /// With seqused_k, unless k is (batch, seqlen, …): int32 (batch + 1), the first token of each request.
  TensorView cu_seqlens_q = {};
  /// With seqused_k: int32 (batch, max_pages), the pages of each request. Absent: cache entry b belongs to request b.
  TensorView page_table = {};

  /// Optional: queries (tokens, heads_q, head_dim), normalized and rotated in place, or into q_out. They must not
  /// overlap k or v.
  TensorView q = {};
  TensorView q_out = {};  ///< written: see q

  /// With rotary_dim: (max_pos, rotary_dim), for each position the cosines of rotary_dim / 2 pairs, then their sines.
  TensorView cos_sin = {};
  /// Instead of cos_sin: cosines and sines in two tensors (max_pos, rotary_dim / 2) of one type.
  TensorView cos = {};
  TensorView sin = {};  ///< see cos
  /// int64 (tokens), or (3, tokens) with sections: rows of the table. Optional with seqused_k: then a token's
  /// position is its place in its request.
  TensorView positions = {};
  TensorView q_norm_weight = {};  ///< with norm and q: (head_dim)
  TensorView k_norm_weight = {};  ///< with norm: (head_dim)

  /// With FP8, int8 and int4 caches: fp32, keys are divided by it, rounded to nearest even and saturated. With
  /// ScaleKind::head optional and read: (1) or (heads_kv). With ScaleKind::token written: (pages, page_size, heads_kv),
  /// any strides, so that scales may follow the elements of their row. A row's scale is its largest magnitude divided
  /// by the largest number (448, 57344; int8: 127), or 1 if that magnitude is below 2^-100. FP8 ignores NaN and counts
  /// an infinity as the largest float; with int8 NaN makes the token's scale NaN. An int4 scale is (max − min) / 15, at
  /// least 1e-6, with the zero point in its lowest four bits, as vLLM's int4_per_token_head.
  TensorView k_scale = {};
  TensorView v_scale = {};  ///< the same for v
  /// With nvfp4 and mxfp4 caches, written: uint8 (pages, page_size, heads_kv, head_dim / 16 or 32), last stride 1.
  /// nvfp4: the largest magnitude of 16 columns divided by 6, as e4m3. mxfp4: for 32 columns the power of two, from
  /// 2^-21 to 2^8, that leaves numbers below 8, as e8m0. NaN makes its block's scale NaN.
  TensorView k_block_scales = {};
  TensorView v_block_scales = {};  ///< the same for v
};

/// Checks the arguments of a call for `spec`, as the call itself does. It needs no device and reads no tensor. Throws
/// Error invalid_argument, whose field is the argument's name.
void check_arguments(const AppendSpec& spec, const AppendArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class Append {
 public:
  /// Stores the tokens on `stream`, on the device of the current context. The first call on a device, or `prepare`,
  /// loads the kernel there. Later calls only launch: they do not compile, allocate, lock, synchronize or read device
  /// memory. Without tokens nothing is launched. Throws Error invalid_argument, whose field is the argument's name,
  /// before anything is launched; not_prepared under capture if the kernel is not loaded; launch_failed.
  void operator()(const AppendArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device, also while some stream is being captured. Throws what append() throws.
  void prepare() const;

  /// The spec that it was made for.
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

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. A second call with the
/// same spec is a look-up without locks, which loads nothing. Thread safe. Throws Error invalid_spec before anything
/// else; unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
Append append(const AppendSpec& spec, const Context& context = default_context());

}  // namespace jit
