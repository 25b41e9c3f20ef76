/// @file
/// Quantization of q, k and v to FP8 in one launch, with scales that it computes: everything between the projections
/// of a layer and FP8 attention.
///
/// @code
/// const jit::QuantizeSpec spec{.head_dim = 128, .rotate = true, .center_keys = true};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::DType fp8 = jit::DType::fp8_e4m3, fp32 = jit::DType::fp32;
/// const jit::QuantizeArguments arguments{.q = q, .k = k, .v = v,
///                                        .q_out = allocate(fp8, {1, 64, 4, 128}),
///                                        .k_out = allocate(fp8, {1, 64, 4, 128}),
///                                        .v_out = allocate(fp8, {1, 64, 4, 128}),
///                                        .q_descale = allocate(fp32, {1, 64, 4}),  // one per row
///                                        .k_descale = allocate(fp32, {1, 64, 4}),
///                                        .v_descale = allocate(fp32, {1, 4}),  // one per head
///                                        .rotation_seed = 7};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::QuantizeQkv quantize = jit::quantize_qkv(spec);
/// quantize.prepare();  // loads the kernel on the current device, ahead of a capture
/// quantize(arguments, stream);
/// assert(quantize.spec() == spec && !quantize.source().empty() && spec.value_head_dim() == 128);
/// assert(jit::sequences_of(arguments) == jit::SequenceKind::dense);
/// assert(jit::parse_quantized_scales("token") == spec.scales && jit::to_string(spec.keep_rows) == "automatic");
/// @endcode
///
/// A row x of q, k or v becomes, in fp32:
///
///      y = x · weight / sqrt(mean(x²) + eps)   with norm, of q and k
///      y = rotary embedding of y, as in jit/append.h   with rotary_dim, of q and k
///      y = y D H / sqrt(head_dim)   with rotate, of q and k: D has random signs, H is Sylvester's Hadamard matrix
///      y = y − mean                 with center_keys of k, with center_values of v: over the tokens of a head
///      element = round(y · (1 / scale)),  scale = largest |y| / largest element
///
/// rounded to the nearest even, and what is too large to the largest element. Equal inputs give bitwise identical
/// results.
///
/// The rotation does not change q kᵀ. Without k's mean, all scores of a query lose softmax_scale · lse_shift, which
/// does not change the softmax; attention adds it to LSE. Without v's mean, attention computes o − v_mean, because
/// probabilities sum to 1, and then adds v_mean; a row that sees no key is 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/options.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// "given", "head", "token", "channel" or "block".
std::string_view to_string(QuantizedScales scales);
/// The inverse. Throws Error invalid_argument, of stage "parse", that lists the names.
QuantizedScales parse_quantized_scales(std::string_view text);

/// "automatic", "never" or "always".
std::string_view to_string(KeepRows keep_rows);

/// The problem that a quantization kernel is specialized for. Sizes, strides, lengths, given scales and the rotation's
/// signs are known at a call.
struct QuantizeSpec {
  DType dtype = DType::bf16;          ///< of q, k and v: bf16, fp16 or fp32
  DType out_dtype = DType::fp8_e4m3;  ///< of what is made: fp8_e4m3 or fp8_e5m2
  int head_dim = 128;                 ///< of q and k: a multiple of 8 from 8 to 256
  int head_dim_v = 0;                 ///< of v, same rule; 0: head_dim
  /// Bytes that every row of q, k and v is aligned to: 16, 8, 4 or 2; rows of outputs to the same number of elements.
  int alignment = 16;

  QuantizedScales scales = QuantizedScales::token;       ///< of q and k: given, head, token or block
  QuantizedScales value_scales = QuantizedScales::head;  ///< of v: given, head or channel

  bool norm = false;               ///< RMS norm of every head of q and k, before anything else
  DType norm_dtype = DType::bf16;  ///< of the weights: bf16, fp16 or fp32
  bool norm_adds_one = false;      ///< x · (1 + weight), as Gemma has it
  float norm_eps = 1e-6f;          ///< positive; a run-time fact
  int rotary_dim = 0;  ///< leading elements of q's and k's heads that are rotated by position: even; 0: none
  bool rotary_interleaved = false;    ///< pairs are (2j, 2j + 1), else (j, j + rotary_dim / 2)
  DType cos_sin_dtype = DType::fp32;  ///< of cosines and sines: fp32, bf16 or fp16

  bool rotate = false;         ///< q and k times one random Hadamard matrix; needs head_dim a power of two
  bool center_keys = false;    ///< k without its mean over the tokens of each head
  bool center_values = false;  ///< v without its mean over the tokens of each head

  /// Which rows belong to a sequence. dense: all rows. padded: those that seqused_q, seqused_k or both count. varlen:
  /// those of cu_seqlens_q, cu_seqlens_k or both, with or without the former two.
  SequenceKind sequences = SequenceKind::dense;

  /// How scales and means of whole sequences are computed. `always` needs sm_90, scales of heads or channels or a mean,
  /// dense sequences, and rows that are aligned to 16 bytes, of 40 elements to 512 bytes. The results are bitwise
  /// identical.
  KeepRows keep_rows = KeepRows::automatic;

  /// head_dim_v, or head_dim if it is 0.
  int value_head_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  bool operator==(const QuantizeSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const QuantizeSpec& spec);

struct QuantizeArguments;
/// QuantizeSpec::sequences of calls that have the lengths and boundaries of these arguments.
SequenceKind sequences_of(const QuantizeArguments& arguments);

/// The tensors of one call, owned by the caller. q, k, v and their outputs are (batch, seqlen, heads, head_dim), or all
/// varlen, (tokens, heads, head_dim): then all sequences form one batch entry, which shares means, and the sizes below
/// lack "batch". heads_q is a multiple of heads_kv. Any strides whose last is 1; scales of heads and tokens have any
/// strides. Means, shifts and scales of channels are dense.
///
/// Numbers: a scale of a largest magnitude below 2^-100 is 1. NaN stays NaN and takes no part in a scale. An infinity
/// becomes the largest element; its scale is that of the largest float, which leaves zeros of what shares it. A mean
/// with a NaN or an infinity makes its column NaN, or of an infinity's own sign.
struct QuantizeArguments {
  TensorView q;      ///< (batch, seqlen_q, heads_q, head_dim)
  TensorView k;      ///< (batch, seqlen_kv, heads_kv, head_dim)
  TensorView v;      ///< (batch, seqlen_kv, heads_kv, head_dim_v)
  TensorView q_out;  ///< written: FP8 queries, of q's shape, in out_dtype
  TensorView k_out;  ///< written: FP8 keys
  TensorView v_out;  ///< written: FP8 values

  /// fp32 dequantization scales. Written: with scales = token (batch, seqlen_q, heads_q), for k (batch, seqlen_kv,
  /// heads_kv); with block (batch, ceil(seqlen_q / 64), heads_q) and likewise for k; with head (batch, heads_kv), also
  /// for q; with channel (batch, heads_kv, head_dim_v). With given they are read: as with head, (heads_kv) or (1); 1 if
  /// absent. Elements are divided by a given scale even if it is 0, negative or NaN.
  TensorView q_descale = {};
  TensorView k_descale = {};  ///< the same for k
  TensorView v_descale = {};  ///< the same for v, by value_scales

  /// With center_keys, optional: fp32 (batch, heads_kv, head_dim), of rotated k; written.
  TensorView k_mean = {};
  TensorView v_mean = {};  ///< with center_values: fp32 (batch, heads_kv, head_dim_v); written
  /// With center_keys, optional: fp32 (batch, heads_q, seqlen_q), varlen (heads_q, tokens): q · mean of k; written.
  TensorView lse_shift = {};

  TensorView q_norm_weight = {};  ///< with norm: (head_dim), aligned as rows are
  TensorView k_norm_weight = {};  ///< the same
  /// With rotary_dim: (max_pos, rotary_dim), rotary_dim / 2 cosines, then the sines; aligned as rows are.
  TensorView cos_sin = {};
  /// int64 (batch, seqlen_q): rows of cos_sin. Optional unless q is varlen; default: the token's index in its batch
  /// entry. A row of q or k whose position is not in the table becomes NaN, and does not affect scales.
  TensorView q_positions = {};
  TensorView k_positions = {};  ///< the same: (batch, seqlen_kv)

  /// Which rows belong to a sequence: int32, dense, read only on the device; spec.sequences says which arrays are
  /// given. Sequence b of varlen q has rows cu_seqlens_q[b] to cu_seqlens_q[b + 1], otherwise it is batch entry b; with
  /// seqused_q it has the first seqused_q[b] of these. Numbers are clamped. Padding rows are neither read nor written,
  /// and are ignored by scales and means. The mean of no rows is 0, and their scale is 1.
  TensorView cu_seqlens_q = {};  ///< (batch + 1)
  TensorView cu_seqlens_k = {};  ///< the same of k and v, of as many sequences
  TensorView seqused_q = {};     ///< (batch)
  TensorView seqused_k = {};     ///< (batch)

  /// With rotate: which columns change their signs, bits of Philox4x32-10 with this key, of counters 0 and 1.
  std::uint64_t rotation_seed = 0;
};

/// Checks the arguments of a call for `spec`, as the call itself does. It needs no device and reads no tensor. Throws
/// Error invalid_argument, whose field is the argument's name.
void check_arguments(const QuantizeSpec& spec, const QuantizeArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class QuantizeQkv {
 public:
  /// Quantizes on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the
  /// kernel there; the first call of a size on a stream may allocate workspace; later calls only launch. No device
  /// memory is read by the host. Without batch entries or KV heads nothing is launched. Throws Error invalid_argument,
  /// whose field is the argument's name, before anything is launched; not_prepared under capture if the kernel is not
  /// loaded; launch_failed, driver_error.
  void operator()(const QuantizeArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device, also while some stream is being captured. Throws what quantize_qkv()
  /// throws.
  void prepare() const;

  /// The spec that it was made for.
  const QuantizeSpec& spec() const { return spec_; }
  /// The generated program; that which keeps no rows, which serves calls of all sizes.
  const std::string& source() const;

 private:
  friend struct Access;
  QuantizeQkv(const QuantizeSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  QuantizeSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. A second call with the
/// same spec is a look-up without locks, which loads nothing. Thread safe. Throws Error invalid_spec before anything
/// else; unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
QuantizeQkv quantize_qkv(const QuantizeSpec& spec, const Context& context = default_context());

}  // namespace jit
