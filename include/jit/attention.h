/// @file
/// Attention kernels that are generated, compiled and tuned at run time.
///
/// @code
/// jit::AttentionSpec spec;
/// spec.head_dim = 128;
/// spec.mask = jit::mask::causal();
/// const jit::Attention attention = jit::attention(spec);
/// attention({.q = q, .k = k, .v = v, .o = o, .lse = lse}, stream);
/// attention.backward({.d_o = d_o, .q = q, .k = k, .v = v, .o = o, .lse = lse, .dq = dq, .dk = dk, .dv = dv}, stream);
/// @endcode
///
/// o = softmax(mask(score(softmax_scale · q kᵀ))) v, per batch entry and head. Sums are fp32. A query that
/// sees no key has o = 0 and lse = −inf, or its sink. Equal inputs and an equal config give bitwise identical results.
///
/// @code
/// const jit::Attention attention = jit::attention_when_called({.mask = jit::mask::causal()});
/// const jit::AttentionArguments arguments{.q = q, .k = k, .v = v, .o = o, .lse = lse};
/// const jit::BackwardArguments gradients{.d_o = d_o, .q = q, .k = k, .v = v, .o = o, .lse = lse,
///                                        .dq = dq, .dk = dk, .dv = dv};
/// jit::check_inputs(attention.spec(), arguments);     // q, k and v; throws Error invalid_argument
/// jit::check_arguments(attention.spec(), arguments);  // all
/// jit::check_backward_arguments(attention.spec(), gradients);
/// attention.prepare(arguments);  // compiles: calls of these sizes only launch, also under capture
/// attention.prepare_backward(gradients);
/// std::puts(attention.kernel(arguments).name().c_str());
/// for (const jit::CompiledKernel& kernel : attention.backward_kernels(gradients)) std::puts(kernel.name().c_str());
/// @endcode
///
/// @code
/// jit::NamedTensors tensors{{"alibi_slopes", allocate(jit::DType::fp32, {4})}};
/// tensors.add({"bias", allocate(jit::DType::fp32, {1, 4, 64, 64})});
/// assert(tensors.end() - tensors.begin() == 2 && tensors.begin()->name == "alibi_slopes");
/// const jit::AttentionSpec spec{.score = jit::score::alibi().then(jit::score::bias())};
/// jit::attention(spec)({.q = q, .k = k, .v = v, .o = o, .tensors = tensors}, stream);
/// @endcode
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <jit/compiled_kernel.h>
#include <jit/context.h>
#include <jit/error.h>
#include <jit/spec.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// A tensor that a mask or score reads.
struct NamedTensor {
  std::string_view name;  ///< the name that the mask or score uses; not owned
  TensorView tensor;      ///< a view; its memory is the caller's
};

/// Up to eight named tensors, stored in place: it never allocates.
class NamedTensors {
 public:
  static constexpr std::size_t capacity = 8;  ///< the largest number of tensors

  NamedTensors() = default;
  /// Throws Error invalid_argument for more than eight.
  NamedTensors(std::initializer_list<NamedTensor> tensors);

  /// Adds one; throws Error invalid_argument when eight are there.
  void add(const NamedTensor& tensor);
  const NamedTensor* begin() const { return tensors_.data(); }         ///< the first tensor
  const NamedTensor* end() const { return tensors_.data() + count_; }  ///< behind the last tensor

 private:
  std::array<NamedTensor, capacity> tensors_;
  std::size_t count_ = 0;
};

/// The tensors of one call. All strides are allowed if the last one is 1. Rows of q, k, v and o are aligned to
/// spec.alignment bytes. The caller owns the memory, which stays valid until the work on the stream is complete.
///
/// Varlen, paged and padded sequences need arrays of boundaries and lengths, with flash-attention's names and meanings.
/// They are read only on the device: their contents may change between the call and its work on the stream, as in a
/// replayed graph. No content makes a kernel access memory outside the tensors: boundaries and lengths are clamped,
/// and a page that does not exist counts as zeros. Query i of a sequence has position seqlen_k − seqlen_q + i.
///
/// Tensors of masks and scores are sized for the longest possible sequence: seqlen_q is total_q if queries are varlen;
/// seqlen_kv is total_k if keys are varlen, max_pages · page_size if they are paged. Then mask::draft_tree() reads
/// (total_q, words), and with varlen keys mask::tree() reads (total_k).
///
/// Padding rows of o and lse are rows beyond seqused_q, and rows outside of the ranges of cu_seqlens_q. They are not
/// written, unless zero_padding sets them to 0 and −inf.
struct AttentionArguments {
  TensorView q;  ///< queries (batch, seqlen_q, heads_q, head_dim); varlen: (total_q, heads_q, head_dim)
  /// Keys (batch, seqlen_kv, heads_kv, head_dim), where heads_kv = heads_q / gqa_ratio; varlen: (total_k, heads_kv,
  /// head_dim); paged: (pages, page_size, heads_kv, head_dim).
  TensorView k;
  TensorView v = {};  ///< values, as k with head_dim_v; absent with values_in_keys
  TensorView o;       ///< the output, as q with head_dim_v; written; it must not overlap the inputs
  /// Optional, written: log Σ exp(score), natural logarithm, including sinks: fp32 (batch, heads_q, seqlen_q), or
  /// (heads_q, total_q) if queries are varlen.
  TensorView lse = {};
  NamedTensors tensors = {};  ///< the tensors that mask, score and output read

  /// int32 (batch + 1): sequence b of varlen q and o has rows cu_seqlens_q[b] to cu_seqlens_q[b + 1].
  TensorView cu_seqlens_q = {};
  TensorView cu_seqlens_k = {};  ///< int32 (batch + 1): the same for varlen k and v
  /// Optional, int32 (batch): queries of each sequence, if there is room for more.
  TensorView seqused_q = {};
  /// Optional, int32 (batch): keys of each sequence, including newly appended ones.
  TensorView seqused_k = {};
  /// Optional, int32 (batch): padding rows before the first key of each sequence.
  TensorView cache_leftpad = {};
  TensorView page_table = {};  ///< int32 (batch, max_pages): row b lists the pages of sequence b in order
  /// With spec.sinks: fp32 (heads_q), one extra logit per query head, in natural units, not multiplied by
  /// softmax_scale.
  TensorView sinks = {};
  /// Only with FP8 spec.dtype: fp32 dequantization scales of q, read on the device, any strides. With
  /// spec.descale_per = head those of its KV head, as k_descale; with token (batch, seqlen_q, heads_q), one per row;
  /// with block (batch, ceil(seqlen_q / 64), heads_q), one per 64 rows; without batch if varlen.
  TensorView q_descale = {};
  /// fp32 dequantization scales of 8- or 4-bit k, read on the device, any strides. With spec.descale_per = head
  /// (heads_kv), (1), or (batch, heads_kv), where each size may be 1; optional, 1 if absent. With token one per row:
  /// k's shape without head_dim. With block one per 64 rows: (batch, ceil(seqlen_kv / 64), heads_kv), without batch
  /// if varlen, for pages (pages, ceil(page_size / 64), heads_kv).
  TensorView k_descale = {};
  /// fp32 dequantization scales of 8- or 4-bit v, as k_descale; but with FP8 spec.dtype by spec.v_descale_per: head,
  /// or channel: (batch, heads_kv, head_dim_v), where batch and heads_kv may be 1, batch may be missing, and the last
  /// stride is 1.
  TensorView v_descale = {};
  /// With spec.kv_dtype nvfp4 or mxfp4: uint8, the scales of k's blocks of 16 (nvfp4, e4m3) or 32 columns (mxfp4,
  /// e8m0): k's shape with head_dim / 16 or head_dim / 32 as last size and stride 1 there. Rows of a multiple of 4
  /// bytes are aligned to 4 bytes.
  TensorView k_block_scales = {};
  TensorView v_block_scales = {};  ///< the same for v
  /// With spec.v_mean: fp32 (batch, heads_kv, head_dim_v), as v_descale with channel: the mean that was subtracted from
  /// v. It is added to o in fp32, weighted by the keys' part of the denominator if there is a sink. A row that sees no
  /// key keeps o = 0.
  TensorView v_mean = {};
  /// With spec.lse_shift: fp32, of lse's shape: q times the mean that was subtracted from k. softmax_scale times this
  /// is added to LSE.
  TensorView lse_shift = {};
  /// With spec.max_logit, in and out: fp32 (heads_q). Each element becomes the maximum of itself and the unmasked
  /// scores of its head, after scale and score functor, without sinks, before dropout. Initialize it to −inf with
  /// clear_output() (jit/outputs.h); later calls raise it further. NaN scores are ignored.
  TensorView max_logit = {};
  /// With spec.row_max, in and out: fp32, of lse's shape, any strides: likewise, one maximum per query. A row without
  /// keys and a padding row keep their values.
  TensorView row_max = {};
  /// Optional, with spec.output and 16-bit k and v, written: o before the output functor, of o's type and shape. Backward
  /// wants it as its o. Padding rows are not written.
  TensorView o_raw = {};
  /// With spec.mean_score, written: fp32, of lse's shape, any strides: Σ P · score over the keys of each query, after
  /// scale and score functor, before dropout. A sink reduces P, but its logit is not counted. 0 for a query without
  /// keys. Without a sink, the entropy is lse − mean_score.
  TensorView mean_score = {};
  /// With spec.out_dtype fp8_e4m3 or int8: fp32 dequantization scales of o. With spec.o_descale written, of lse's
  /// shape, any strides: a row's largest magnitude divided by the largest element, or 1 for magnitudes below 2^-100.
  /// Otherwise read: of lse's shape, where sizes may be 1, as (1, heads_q, 1); positive and finite. Elements saturate;
  /// NaN stays NaN in e4m3 and becomes 0 in int8.
  TensorView o_descale = {};
  /// With spec.running_lse, read and written: fp32, of lse's shape, any strides. Before the call: LSE of the keys of earlier
  /// calls, whose result is in o; −inf means no keys, and o is not read. After it: LSE of these and the call's keys. Padding
  /// rows of o and running_lse stay as they are.
  TensorView running_lse = {};
  float dropout_p = 0;  ///< rate of dropout, 0 ≤ dropout_p < 1; 0 unless spec.dropout
  /// With spec.dropout: int64 (2), seed and offset of the random numbers, read on the device. Equal states drop the
  /// same probabilities.
  TensorView rng_state = {};
  /// Largest number of thread blocks that share the keys of a query; 0: the library chooses.
  int num_splits = 0;
  bool zero_padding = false;  ///< whether padding rows are written: o = 0 and lse = −inf
};

/// Checks the arguments of a call for `spec`, as the call itself does. It needs no device and reads no tensor. Throws
/// Error invalid_argument, whose field is the argument's name.
void check_arguments(const AttentionSpec& spec, const AttentionArguments& arguments);

/// Checks only q, k and v, for callers that allocate o afterwards. Throws as check_arguments() does.
void check_inputs(const AttentionSpec& spec, const AttentionArguments& arguments);

/// The tensors of one backward call, which computes the gradients of q, k and v, and of others on request. Strides,
/// alignment and ownership are those of forward. Gradients must not overlap any other tensor.
///
/// Sequences may be dense or varlen, with arrays as in forward, read only on the device. Padding rows of dq, dk and dv
/// are not written.
struct BackwardArguments {
  TensorView d_o;                ///< the gradient of o, of o's shape, in spec.dtype ("do" in errors)
  TensorView q;                  ///< as in forward
  TensorView k;                  ///< as in forward
  TensorView v;                  ///< as in forward
  TensorView o;                  ///< forward's output; with spec.output its o_raw
  TensorView lse;                ///< forward's LSE, fp32
  TensorView dq;                 ///< written: the gradient of q, of q's shape; fp32 if spec.out_dtype is fp32
  TensorView dk;                 ///< written: as dq for k; summed over the query heads of a KV head
  TensorView dv;                 ///< written: as dq for v; summed over the query heads of a KV head
  NamedTensors tensors = {};     ///< the tensors that mask and score read
  TensorView cu_seqlens_q = {};  ///< as in forward
  TensorView cu_seqlens_k = {};  ///< as in forward
  TensorView seqused_q = {};     ///< as in forward
  TensorView seqused_k = {};     ///< as in forward
  float dropout_p = 0;           ///< as in forward
  TensorView rng_state = {};     ///< as in forward
  /// Whether equal inputs must give bitwise identical gradients. Otherwise blocks may add to dq in any order.
  bool deterministic = false;

  TensorView d_lse = {};    ///< optional: the gradient of lse, of its type and shape ("dlse" in errors)
  TensorView sinks = {};    ///< with spec.sinks: as in forward
  TensorView d_sinks = {};  ///< optional, written: the gradient of sinks, fp32 (heads_q)
  /// Optional, written: gradients of fp32, bf16 or fp16 tensors that the score or output functor reads, with the same
  /// names, types and shapes, any strides. Where a tensor has stride 0, each element has its own gradient. They are
  /// always deterministic. A score's take 8 bytes of workspace per element. An output functor's are those of tensors
  /// read as_o or as_row, of o's full size; their padding rows are not written.
  NamedTensors d_tensors = {};
  TensorView mean_score = {};    ///< with spec.mean_score: forward's, fp32, of lse's shape
  TensorView d_mean_score = {};  ///< with spec.mean_score: its gradient, of the same shape
};

/// Checks the arguments of a backward call for `spec`, as the call itself does. Throws Error invalid_spec if the spec
/// has no backward; invalid_argument, whose field is the argument's name.
void check_backward_arguments(const AttentionSpec& spec, const BackwardArguments& arguments);

struct AttentionState;

/// The kernels of one problem, on every GPU and for every size. Cheap to copy: copies share the kernels. Thread safe:
/// host threads may call at the same time, also on one stream, and each call computes what it would compute alone.
/// Kernels that share memory of a stream (counters, mailboxes, workspaces) are queued under a lock of that stream.
class Attention {
 public:
  /// Computes attention on `stream`, on the device of the current context. Returns once the work is queued.
  ///
  /// The first call of a size class (powers of two of lengths and batch · heads) on a GPU waits for `stream` and
  /// chooses the config: from a record, by tuning or by the cost model, as Settings::tuning says. Later calls only
  /// launch: they do not compile, allocate, read the environment or, unless spec.checked, synchronize.
  ///
  /// While `stream` is being captured, nothing is tuned or compiled: the config that was chosen before runs, otherwise
  /// the one that attention() loaded on this device; Error not_prepared if there is neither. A captured launch may run
  /// beside launches of other streams and graphs, but not beside itself, as in two instances of one graph. Its
  /// counters, mailboxes and workspace are shared by all calls that the same stream captured in the same capture; they
  /// exist until the graph and its instances are destroyed, or the context is.
  ///
  /// Throws Error invalid_argument, whose field is the argument's name, before anything is launched; launch_failed. The
  /// first call also throws what attention() throws.
  void operator()(const AttentionArguments& arguments, Stream stream = nullptr) const;

  /// Does everything but the launch: afterwards a call with these sizes only launches, also under capture. The
  /// tensors of mask and score must have their contents, because tuning reads them. Throws as a first call does.
  void prepare(const AttentionArguments& arguments) const;

  /// Computes dq, dk and dv on `stream`. On sm_90a and sm_100a, one kernel computes all three, between two that compute
  /// delta and round dq, if it serves the call; else one computes dq, and one dk and dv. With P = exp(score − lse) and
  /// f the score functor,
  ///
  ///     delta = rowsum(do ∘ o) − dlse    dS = P ∘ (do vᵀ − delta)        dq = softmax_scale · (dS ∘ f′) k
  ///     dv = Pᵀ do                       dk = softmax_scale · (dS ∘ f′)ᵀ q
  ///     dsink = −Σ exp(sink − lse) · delta    dT = Σ dS ∘ ∂f/∂T, for a tensor T that the score reads
  ///
  /// (see "FlashAttention-2", Dao). Kernels of their own compute the last two, only if they are asked for. With
  /// `deterministic`, equal inputs give bitwise identical gradients; without, dq may be summed in any order. A query
  /// without keys has dq = 0 and adds nothing to the other gradients; its dlse is ignored.
  ///
  /// The library differentiates built-in scores and texts. A text declares with `auto` every variable that depends on
  /// `score` or on a tensor whose gradient is wanted, or it states its derivative. The first call of a size class on a
  /// GPU chooses the kernels as Settings::tuning says, whatever config forward was given; later calls only launch.
  ///
  /// Throws Error invalid_spec with FP8, 8- or 4-bit or paged keys, 8-bit o, values_in_keys or list_block;
  /// invalid_argument, whose field is the argument's name, before anything is launched; compile_failed if a text loses
  /// a derivative; not_prepared under capture if nothing was prepared; launch_failed.
  void backward(const BackwardArguments& arguments, Stream stream = nullptr) const;

  /// Does everything that backward() does but the launch. Throws the same.
  void prepare_backward(const BackwardArguments& arguments) const;

  /// The kernels that a backward call with these arguments launches on the current device, in their order. They are
  /// prepared if necessary.
  std::vector<CompiledKernel> backward_kernels(const BackwardArguments& arguments) const;

  /// The kernel that a call with these arguments launches on the current device. It is prepared if necessary.
  CompiledKernel kernel(const AttentionArguments& arguments) const;
  /// The kernel for sizes without a chosen config, as under capture.
  CompiledKernel kernel() const;

  /// The spec that it was made for.
  const AttentionSpec& spec() const;

 private:
  friend struct Access;
  explicit Attention(std::shared_ptr<const AttentionState> state) : state_(std::move(state)) {}

  std::shared_ptr<const AttentionState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. If `config` is given,
/// it is used for all sizes and never tuned. A second call with the same spec is a look-up of less than 100 ns, which
/// loads nothing; on another device the first call or `prepare` loads the kernel. Thread safe.
///
/// Throws Error invalid_spec before anything else; unsupported_device, no_valid_config, compile_failed,
/// nvrtc_unavailable, driver_unavailable, load_failed, offline.
Attention attention(const AttentionSpec& spec, std::optional<KernelConfig> config = {},
                    const Context& context = default_context());

/// As attention(), but compiles nothing yet: the first call, or `prepare`, compiles the kernel for its own sizes,
/// where attention() and a call may compile two. Thread safe. Throws Error invalid_spec; the first call throws what
/// attention() throws.
Attention attention_when_called(const AttentionSpec& spec, const Context& context = default_context());

}  // namespace jit
