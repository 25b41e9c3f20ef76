/// @file
/// The description of an attention problem. It says nothing about how the problem is computed.
///
/// @code
/// const jit::AttentionSpec spec{.head_dim = 64, .kv_dtype = jit::DType::fp8_e4m3, .mask = jit::mask::document()};
/// assert(spec.value_head_dim() == 64 && spec.key_dtype() == jit::DType::fp8_e4m3 && spec.scale() == 0.125f);
/// std::puts(jit::to_string(spec).c_str());
/// assert(jit::functor_tensors(spec).size() == 2);  // document_ids_q and document_ids_kv, which calls pass
/// jit::validate(spec);                             // throws Error invalid_spec with the first refusal
/// assert(jit::supports(spec, jit::parse_arch("sm_90a")));
/// for (const jit::Refusal& refusal : jit::refusals_of({.head_dim = 100}, jit::parse_arch("sm_90a")))
///   std::puts(refusal.to_string().c_str());
/// @endcode
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <jit/arch.h>
#include <jit/device.h>
#include <jit/mask.h>
#include <jit/options.h>
#include <jit/output_functor.h>
#include <jit/score.h>
#include <jit/tensor.h>

namespace jit {

/// The largest softmax_scale. With it, q and k of magnitude 1 have scores up to 2.6e7, at which floats are 2 apart.
inline constexpr float max_softmax_scale = 1e5f;

/// The largest head_dim and head_dim_v.
inline constexpr int max_head_dim = 512;
/// The largest of both with FP8 queries.
inline constexpr int max_fp8_head_dim = 256;
/// The largest of both with kv_dtype of 4 bits.
inline constexpr int max_packed_head_dim = 256;
/// The largest head_dim with values_in_keys.
inline constexpr int max_latent_head_dim = 576;

/// The largest page_size.
inline constexpr int max_page_size = 65536;

/// The largest list_block.
inline constexpr int max_list_block = 128;
/// The largest list_queries.
inline constexpr int max_list_queries = 32;

/// split_keys is a multiple of this.
inline constexpr int split_keys_step = 64;

/// The problem that a kernel is specialized for: a plain value. Batch size, number of heads, lengths and strides are
/// not part of it: each call has its own, and none of them causes a compilation.
struct AttentionSpec {
  /// Element type of q, k, v and o: bf16 or fp16; or fp8_e4m3 or fp8_e5m2 for FP8 q, k and v. Sums are fp32. kv_dtype
  /// and out_dtype may differ from it.
  DType dtype = DType::bf16;
  int head_dim =
      128;  ///< of q and k: a multiple of 8 from 8 to 512 (with FP8 dtype to 256, with values_in_keys to 576)
  int head_dim_v = 0;  ///< of v and o, likewise; 0: head_dim
  int gqa_ratio = 1;   ///< query heads per KV head: 1 is MHA, heads_q is MQA
  int alignment = 16;  ///< bytes that every row of q, k, v and o is aligned to: 16, 8, 4 or 2; 16 is fastest
  int seqlen_q = 0;    ///< queries, compiled into the kernel, for dense sequences; 0: known at a call
  int seqlen_kv = 0;   ///< the same for keys
  SequenceKind sequences_q = SequenceKind::dense;   ///< how q and o are stored: dense or varlen
  SequenceKind sequences_kv = SequenceKind::dense;  ///< how k and v are stored: dense, varlen or paged
  int page_size = 0;  ///< rows of a page, from 1 to 65536; 0 unless sequences_kv is paged
  /// Whether each head has an extra logit in the softmax denominator, without a value vector.
  bool sinks = false;
  /// Whether calls drop probabilities, with a rate and a seed of each call. For 16-bit q, k and v, dense and varlen
  /// sequences, without split_keys.
  bool dropout = false;
  /// A multiple of 64 up to 2^20 (512 to 4096 cost least), not with FP8 dtype: keys are summed in spans of this length,
  /// counted from key 0 of a sequence, so that its result does not depend on the rest of the batch, nor, for most
  /// specs, on the layout and the kernel of a call (jit/bits.h, docs/batch-invariance.md). Gradients ignore it. 0: each
  /// call splits sums in the fastest way.
  int split_keys = 0;
  /// Whether calls check lengths and page tables on the device and that the mask's functions agree, wait for it, and
  /// throw if something is wrong (docs/serving.md#checked-calls). Slow; for debugging.
  bool checked = false;
  /// Element type of k and v, if it is not dtype: fp8_e4m3, fp8_e5m2, int8, int4, nvfp4 or mxfp4 (docs/kv-caches.md);
  /// with values_in_keys latent_656, latent_584 or latent_528 (docs/mla.md). Forward only, without dropout.
  std::optional<DType> kv_dtype = {};
  /// Element type of o; default: dtype, or bf16 with FP8 dtype. With FP8 dtype: bf16, fp16, fp32. With 16-bit dtype:
  /// fp32 (sm_90a), which dq, dk and dv then have, too; fp8_e4m3 or int8 with scales, see o_descale (docs/outputs.md).
  std::optional<DType> out_dtype = {};
  /// The granularity of the dequantization scales of 8- or 4-bit k and v: head or token; block only with FP8 dtype;
  /// int4 has token, nvfp4 and mxfp4 have head.
  ScaleKind descale_per = ScaleKind::head;
  /// The granularity of the scales of v with FP8 dtype: head or channel.
  ScaleKind v_descale_per = ScaleKind::head;
  /// With FP8 dtype: whether the mean of each column was subtracted from v. Calls pass it, and it is added to o
  /// (docs/fp8.md).
  bool v_mean = false;
  /// With FP8 dtype and scores that only add: whether the mean was subtracted from k. Calls pass
  /// AttentionArguments::lse_shift, which corrects LSE and sinks.
  bool lse_shift = false;
  /// Whether the values are the first head_dim_v columns of the keys, so that calls have no v: the latent cache of
  /// multi-head latent attention (docs/mla.md). Forward only, without dropout, with 16-bit keys or latents. head_dim_v
  /// is at most head_dim; with head_dim above 512 it is a multiple of 128, and alignment is 16.
  bool values_in_keys = false;
  /// With FP8 dtype: whether forward_wgmma may interpolate half of the probabilities between powers of two, in calls
  /// without LSE and in rows of many keys. This is faster; the rounding error is a fifth larger than that of e4m3 alone
  /// (docs/kernels-fp8.md). Other kernels compute each exponential by ex2.
  bool interpolated_exponentials = false;
  /// Whether calls pass the positions of queries in a sequence of which they have a part, as tensor "q_positions"
  /// (docs/positions.md): masks, scores and dropout see these positions, and the lengths of whole sequences.
  bool q_positions = false;
  bool k_positions = false;  ///< likewise for keys, as tensor "k_positions"
  /// Whether keys and values come from other devices while the kernel computes, as jit/key_exchange.h brings them. Calls
  /// pass its tensor "key_arrivals". For dense 16-bit sequences, by forward_wgmma and backward_wgmma. Gradients of keys
  /// that no rank needs are not written.
  bool key_arrivals = false;
  /// Keys of an entry of the list of keys that each query has, from 1 to 128; 0: no lists. Calls pass the tensors
  /// key_lists and key_counts (docs/sparse.md). Queries are varlen, keys varlen or paged. jit/list_gradients.h has
  /// gradients.
  int list_block = 0;
  /// With list_block: whether entry e names rows of k, or of all pages in order, from e · list_block on, instead of
  /// keys of the query's sequence. Without mask and score; page_size is a multiple of list_block.
  bool list_slots = false;
  /// With list_block: rows of q, from 1 to 32, that share a list. Above 1, calls pass key_members with a bit per row.
  int list_queries = 1;
  /// Whether calls raise AttentionArguments::max_logit, the largest score of each head (docs/outputs.md). For k and v of 16
  /// bits. Not every kernel family keeps largest scores.
  bool max_logit = false;
  bool row_max = false;  ///< the same for AttentionArguments::row_max, the largest score of each query
  /// Whether calls write AttentionArguments::mean_score, the mean of each query's scores under its probabilities. For
  /// 16-bit k and v, without split_keys, values_in_keys and list_block.
  bool mean_score = false;
  /// With out_dtype fp8_e4m3 or int8 and head dims up to 256: whether calls compute a scale for each row of o and write
  /// it to AttentionArguments::o_descale. Otherwise they read scales there.
  bool o_descale = false;
  /// Whether calls add their keys to results over other keys: o, of fp32, and AttentionArguments::running_lse
  /// (docs/outputs.md). For 16-bit q, k and v, by forward_wgmma, without split_keys, values_in_keys, list_block, output
  /// functor and mean_score. Sinks belong to one of the calls.
  bool running_lse = false;
  Mask mask = {};    ///< the keys that each query sees
  Score score = {};  ///< the function of a score that is applied before the softmax
  /// The function that is applied to o in fp32 before it is rounded, such as a gate (docs/outputs.md). For 16-bit q,
  /// without values_in_keys, list_block and positions, by kernel families that support it.
  OutputFunctor output = {};
  /// Factor of q·k: positive, at most max_softmax_scale; default 1/sqrt(head_dim). It is not compiled in.
  std::optional<float> softmax_scale = {};

  /// head_dim_v, or head_dim if it is 0.
  int value_head_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  /// Element type of k and v.
  DType key_dtype() const { return kv_dtype.value_or(dtype); }
  /// softmax_scale, or its default.
  float scale() const;
  bool operator==(const AttentionSpec&) const = default;  ///< member by member
};

/// One line: "bf16 d128 mask=causal".
std::string to_string(const AttentionSpec& spec);

/// The tensors that positions, mask, score and output read, each name once, in the order of the kernel's parameters. Throws
/// Error invalid_spec when two of one name differ in dtype.
std::vector<FunctorTensorSpec> functor_tensors(const AttentionSpec& spec);

/// One reason why a spec cannot be served.
struct Refusal {
  std::string field;    ///< "head_dim"
  std::string value;    ///< "100"
  std::string rule;     ///< "must be a multiple of 8 from 8 to 512"
  std::string nearest;  ///< a value that would work: "104"
  /// All of it as one sentence.
  std::string to_string() const;
};

/// The reasons why the library does not serve `spec` on an architecture; empty if it does. Pure, thread safe.
std::vector<Refusal> refusals_of(const AttentionSpec& spec, Arch arch);
/// The reasons why the library does not serve `spec` on a device.
std::vector<Refusal> refusals_of(const AttentionSpec& spec, const DeviceInfo& device);

/// Whether the library serves `spec` on an architecture. Pure, thread safe.
inline bool supports(const AttentionSpec& spec, Arch arch) { return refusals_of(spec, arch).empty(); }

/// Throws Error invalid_spec with the first refusal that holds on every GPU.
void validate(const AttentionSpec& spec);

}  // namespace jit
