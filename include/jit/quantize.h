// q, k and v of 16 or 32 bits made of 8, with scales that are found on the way: what stands between the projections of a
// layer and attention of fp8, in one launch.
//
//   jit::QuantizeSpec spec{.head_dim = 128, .rotate = true, .center_keys = true};
//   jit::quantize_qkv(spec)({.q = q, .k = k, .v = v, .q_out = q8, .k_out = k8, .v_out = v8, .q_descale = q_scales,
//                            .k_descale = k_scales, .v_descale = v_scales, .rotation_seed = 7}, stream);
//
// Of a row x of q, k or v, in fp32:
//
//   y = x · weight / sqrt(mean(x²) + eps)   with norm, of q and k
//   y = y with pairs turned by a position's angles, as jit/append.h has it   with rotary_dim, of q and k
//   y = y D H / sqrt(head_dim)   with rotate, of q and k: D has random signs, H is Sylvester's Hadamard matrix
//   y = y − mean                 with center_keys of k, with center_values of v: over the tokens of a head
//   element = round(y · (1 / scale)),  scale = largest |y| / largest element
//
// rounded to the nearest even, and what is too large to the largest element. Equal inputs give bitwise identical
// results.
//
// What does not change: q kᵀ, by the rotation. Softmax, by k's mean, which shifts all scores of a query by
// softmax_scale · lse_shift: LSE of what comes out plus that is LSE of what went in. With v's mean attention gives
// o − v_mean, because probabilities sum to 1; a row that sees no key gives 0.
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

/// What a quantizer is made for. Sizes, strides, lengths, given scales and the rotation's signs are run-time facts.
struct QuantizeSpec {
  DType dtype = DType::bf16;          ///< of q, k and v: bf16, fp16 or fp32
  DType out_dtype = DType::fp8_e4m3;  ///< of what is made: fp8_e4m3 or fp8_e5m2
  int head_dim = 128;                 ///< of q and k: a multiple of 8 from 8 to 256
  int head_dim_v = 0;                 ///< of v, same rule; 0: head_dim
  /// Bytes that every row of q, k and v is aligned to: 16, 8, 4 or 2; rows that are written to as many elements.
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

  bool rotate = false;         ///< q and k by one matrix; head_dim is a power of two then
  bool center_keys = false;    ///< k without its mean over the tokens of each head
  bool center_values = false;  ///< v without its mean over the tokens of each head

  /// What tells which rows belong to a sequence: nothing, all do (dense); seqused_q, seqused_k or both (padded); or
  /// cu_seqlens_q, cu_seqlens_k or both, with or without the former two (varlen).
  SequenceKind sequences = SequenceKind::dense;

  /// How what must be known of whole sequences is found: `always` needs a GPU of sm_90, scales of heads or channels, or a
  /// mean, dense sequences, rows aligned to 16 bytes, of 512 at most, and 40 elements or more. Changes no bit.
  KeepRows keep_rows = KeepRows::automatic;

  int value_head_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  bool operator==(const QuantizeSpec&) const = default;
};

/// Throws Error invalid_spec with the first reason why `spec` cannot be served.
void validate(const QuantizeSpec& spec);

struct QuantizeArguments;
/// QuantizeSpec::sequences of calls that have the lengths and boundaries of these arguments.
SequenceKind sequences_of(const QuantizeArguments& arguments);

/// The tensors of one call. All of q, k, v and what is made of them are (batch, seqlen, heads, head_dim), or varlen,
/// (tokens, heads, head_dim): then those of all sequences are one batch entry without "batch" in the sizes below, and one
/// mean is that of all. heads_q is a multiple of heads_kv. Any strides whose last is 1; of scales of heads and tokens any
/// at all. Means, shifts and scales of channels are dense.
///
/// Numbers: a scale of a largest magnitude below 2^-100 is 1. NaN stays NaN and takes no part in a scale. An infinity
/// becomes the largest element; its scale is that of the largest float, which leaves zeros of what shares it. A mean with
/// a NaN or an infinity makes its column NaN, or of an infinity's own sign.
struct QuantizeArguments {
  TensorView q;      ///< (batch, seqlen_q, heads_q, head_dim)
  TensorView k;      ///< (batch, seqlen_kv, heads_kv, head_dim)
  TensorView v;      ///< (batch, seqlen_kv, heads_kv, head_dim_v)
  TensorView q_out;  ///< like q, of out_dtype; written, as the two that follow
  TensorView k_out;
  TensorView v_out;

  /// fp32, what elements are multiplied by to be numbers again. Written: with scales = token (batch, seqlen_q, heads_q), of
  /// k (batch, seqlen_kv, heads_kv); with block (batch, ceil(seqlen_q / 64), heads_q) and so on; with head (batch, heads_kv), of q, too; with channel (batch, heads_kv, head_dim_v).
  /// Read where they are given: the same as of head, (heads_kv) or (1); without one it is 1. A scale that is 0, negative
  /// or none does to elements what a division by it does.
  TensorView q_descale = {};
  TensorView k_descale = {};
  TensorView v_descale = {};

  TensorView k_mean =
      {};  ///< with center_keys, optional: fp32 (batch, heads_kv, head_dim), of rotated k; written
  TensorView v_mean = {};  ///< with center_values: fp32 (batch, heads_kv, head_dim_v); written
  /// With center_keys, optional: fp32 (batch, heads_q, seqlen_q), varlen (heads_q, tokens): q · mean of k; written.
  TensorView lse_shift = {};

  TensorView q_norm_weight = {};  ///< with norm: (head_dim), aligned as rows are
  TensorView k_norm_weight = {};  ///< the same
  /// With rotary_dim: (max_pos, rotary_dim), rotary_dim / 2 cosines, then the sines; aligned as rows are.
  TensorView cos_sin = {};
  /// int64 (batch, seqlen_q): rows of the table; optional where q is not varlen: then a token's place in its batch
  /// entry. A row of q or k whose position is none of the table's becomes NaN, and is no part of scales.
  TensorView q_positions = {};
  TensorView k_positions = {};  ///< the same: (batch, seqlen_kv)

  /// Which rows belong to a sequence, int32, dense, read on the device alone; all do unless one is given, and
  /// spec.sequences says which ones are. Of varlen q sequence b has rows cu_seqlens_q[b] to cu_seqlens_q[b + 1], of
  /// others it is batch entry b; of these the first seqused_q[b] ones where that is given, beside cu_seqlens_q where q is
  /// varlen. Numbers are cut to the room that there is. Other rows are not read and take no part in scales and means;
  /// what would be made of them (elements, a scale of its own, a shift) stays what it was. Of no rows a mean is 0,
  /// and a scale is 1.
  TensorView cu_seqlens_q = {};  ///< (batch + 1)
  TensorView cu_seqlens_k = {};  ///< the same of k and v, of as many sequences
  TensorView seqused_q = {};     ///< (batch)
  TensorView seqused_k = {};

  /// With rotate: which columns change their signs, bits of Philox4x32-10 with this key, of counters 0 and 1.
  std::uint64_t rotation_seed = 0;
};

/// Checks what can be wrong with the arguments of a call for `spec`, as the call itself does. Needs no device. Throws
/// Error invalid_argument whose field is the argument's name.
void check_arguments(const QuantizeSpec& spec, const QuantizeArguments& arguments);

struct OperationState;

/// A spec's kernel on every GPU. Cheap to copy; thread safe.
class QuantizeQkv {
 public:
  /// Makes what is written on `stream`, on the device of the current context. The first call on a device loads the kernel
  /// there, or `prepare`; the first of a size on a stream may allocate what blocks leave for one another; later calls only
  /// launch. Nothing is read from device memory. Under capture Error not_prepared when the kernel is not loaded. Without
  /// batch entries or KV heads nothing is launched. Throws Error invalid_argument, naming the argument, before anything is
  /// launched; launch_failed, driver_error.
  void operator()(const QuantizeArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device, also while some stream is being captured. Throws what quantize_qkv() throws.
  void prepare() const;

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

/// The kernel for `spec`, compiled or taken from the cache, and loaded on the current device. Asking again for the same
/// spec is a look-up without locks, which loads nothing. Throws Error invalid_spec before anything else;
/// unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
QuantizeQkv quantize_qkv(const QuantizeSpec& spec, const Context& context = default_context());

}  // namespace jit
