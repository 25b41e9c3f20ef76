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
/// not part of it: they are known at a call and never compile.
struct AttentionSpec {
  /// Element type of q, k, v and o: bf16 or fp16; or fp8_e4m3 or fp8_e5m2 for FP8 q, k and v. Sums are fp32. kv_dtype
  /// and out_dtype may differ from it.
  DType dtype = DType::bf16;
  int head_dim =
      128;  ///< of q and k: a multiple of 8 from 8 to 512 (with FP8 dtype to 256, with values_in_keys to 576)
  int head_dim_v = 0;  ///< of v and o, likewise; 0: head_dim
  int gqa_ratio = 1;   ///< query heads per KV head: 1 is MHA, heads_q is MQA
  int alignment = 16;  ///< bytes that every row of q, k, v and o is aligned to: 16, 8, 4 or 2; 16 is fastest
  int seqlen_q = 0;    ///< number of queries that is compiled into the kernel; 0: it is known at a call
  int seqlen_kv = 0;   ///< the same for keys
  SequenceKind sequences_q = SequenceKind::dense;   ///< how q and o are stored: dense or varlen
  SequenceKind sequences_kv = SequenceKind::dense;  ///< how k and v are stored: dense, varlen or paged
  int page_size = 0;  ///< rows of a page, from 1 to 65536; 0 unless sequences_kv is paged
  /// Whether each head has an extra logit in the softmax denominator, without a value vector.
  bool sinks = false;
  /// Whether calls drop probabilities, with a rate and a seed of each call. For dense and varlen sequences, without
  /// split_keys.
  bool dropout = false;
  /// A multiple of 64 (512 to 4096 cost least): keys are summed in spans of this length, counted from key 0 of a
  /// sequence, so that a sequence's result does not depend on the rest of the batch, nor, of most specs, on the layout
  /// and the kernel of a call (jit/bits.h, docs/batch-invariance.md). 0: each call cuts sums as is fastest.
  int split_keys = 0;
  /// Whether calls check lengths and page tables on the device and that the mask's functions agree, wait for it, and
  /// throw if something is wrong (docs/serving.md#checked-calls). Slow; for debugging.
  bool checked = false;
  /// Element type of k and v, if it is not dtype: fp8_e4m3, fp8_e5m2, int8, int4, nvfp4 or mxfp4 (docs/kv-caches.md).
  /// Forward only, without dropout.
  std::optional<DType> kv_dtype = {};
  /// Element type of o; default: dtype, or bf16 with FP8 dtype. With FP8 dtype: bf16, fp16, fp32; else fp32 (sm_90a), or
  /// fp8_e4m3 and int8, which have scales: see o_descale (docs/outputs.md).
  std::optional<DType> out_dtype = {};
  /// The elements of k and v of 8 or 4 bits that share a dequantization scale; block only for dense FP8 q, k and v, token
  /// with int4, head with nvfp4 and mxfp4.
  ScaleKind descale_per = ScaleKind::head;
  /// The granularity of the scales of v with FP8 dtype: head or channel.
  ScaleKind v_descale_per = ScaleKind::head;
  /// With FP8 dtype: whether the mean of each column was subtracted from v. Calls pass it, and it is added to o
  /// (docs/fp8.md).
  bool v_mean = false;
  /// With FP8 dtype and scores that add: whether the mean was subtracted from k. Calls pass what each query's scores
  /// lost by it, so that LSE and sinks are right.
  bool lse_shift = false;
  /// Whether the values are the first head_dim_v columns of the keys, so that calls have no v: the latent cache of
  /// multi-head latent attention (docs/mla.md). Forward only, without dropout, with 16-bit keys.
  bool values_in_keys = false;
  /// With FP8 dtype: whether half of the probabilities may be interpolated between powers of two, which is faster, and
  /// rounds them by a fifth more than e4m3 does alone (docs/kernels-fp8.md). forward_wgmma does so in calls without LSE, in
  /// rows that many keys share; all other kernels compute every probability by ex2.
  bool interpolated_exponentials = false;
  /// Whether calls say where queries stand in a sequence of which they have a part (docs/positions.md): masks, scores
  /// and dropout see these positions, and the lengths of whole sequences.
  bool q_positions = false;
  bool k_positions = false;  ///< the same for keys
  /// Whether keys and values come from other devices while the kernel computes, as jit/key_exchange.h brings them. Calls
  /// pass its tensor "key_arrivals". For dense 16-bit sequences, by forward_wgmma and backward_wgmma, unless gradients are
  /// deterministic. Gradients of keys that no rank needs are not written.
  bool key_arrivals = false;
  /// Whether each query has a list of the keys that it sees, in entries of so many keys, from 1 to 128; 0: there are none.
  /// Calls have tensors key_lists and key_counts (docs/sparse.md), with varlen queries. jit/list_gradients.h has gradients.
  int list_block = 0;
  /// With list_block: whether entry e names the keys that lie at e · list_block of varlen k, or of all pages one behind
  /// another, and not those that stand there in their sequence. Without mask and score.
  bool list_slots = false;
  /// With list_block: rows of q, from 1 to 32, that share a list. With more than 1, tensor key_members has a bit for each.
  int list_queries = 1;
  /// Whether calls raise AttentionArguments::max_logit, the largest score of each head (docs/outputs.md). For k and v of 16
  /// bits. Not every kernel family keeps largest scores.
  bool max_logit = false;
  bool row_max = false;  ///< the same for AttentionArguments::row_max, the largest score of each query
  /// Whether calls write AttentionArguments::mean_score, the mean of each query's scores under its probabilities. For k and v
  /// of 16 bits, without split_keys.
  bool mean_score = false;
  /// With out_dtype fp8_e4m3 or int8: whether calls find a scale for each row of o and write it to
  /// AttentionArguments::o_descale. Otherwise they read it there.
  bool o_descale = false;
  Mask mask = {};    ///< the keys that each query sees
  Score score = {};  ///< the function of a score that is applied before the softmax
  /// The function of o that is applied where o is written, as a gate (docs/outputs.md). With 16-bit q, by families that
  /// have it.
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

/// One line: "bf16 d128 causal".
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
