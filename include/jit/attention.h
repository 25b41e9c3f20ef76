// Attention kernels written, compiled and tuned while the program runs.
//
//   jit::AttentionSpec spec;
//   spec.head_dim = 128;
//   spec.mask = jit::mask::causal();
//   jit::Attention attention = jit::attention(spec);
//   attention({.q = q, .k = k, .v = v, .o = o, .lse = lse}, stream);
//
// o = softmax(mask(score(softmax_scale · q kᵀ))) v, per batch entry and head. Sums are fp32. A query that
// sees no key gets o = 0 and lse = −inf, or its sink. Equal inputs and an equal config give bit-identical outputs.
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

/// A tensor for a mask or score functor, under the name that the functor knows it by.
struct NamedTensor {
  std::string_view name;
  TensorView tensor;
};

/// Up to eight named tensors, held in place: building one allocates nothing.
class NamedTensors {
 public:
  static constexpr std::size_t capacity = 8;

  NamedTensors() = default;
  /// Throws Error invalid_argument for more than eight.
  NamedTensors(std::initializer_list<NamedTensor> tensors);

  /// Adds one; throws Error invalid_argument when eight are there.
  void add(const NamedTensor& tensor);
  const NamedTensor* begin() const { return tensors_.data(); }
  const NamedTensor* end() const { return tensors_.data() + count_; }

 private:
  std::array<NamedTensor, capacity> tensors_;
  std::size_t count_ = 0;
};

/// The tensors of one call. Any strides whose last is 1; rows of q, k, v and o aligned to spec.alignment bytes.
///
/// Where sequences are not dense, the rest says where they begin and end. The names and their meaning are those of
/// flash-attention. These arrays are read on the device alone: their values may change between the call and its
/// work on the stream, as in a graph that is replayed. Whatever they hold, nothing outside of the tensors is read
/// or written: boundaries and lengths are cut to what there is room for, and a page that does not exist counts as
/// zeros. Query i of a sequence stands at key seqlen_k − seqlen_q + i of its own sequence.
///
/// What mask and score read has the sizes of the longest sequences that there can be: seqlen_q is total_q where
/// queries are varlen, seqlen_kv is total_k, or max_pages · page_size. The bits of mask::draft_tree() are (total_q,
/// words) there.
///
/// Rows of o and lse that are no query's are those behind seqused_q, and of varlen ones those before, between and
/// behind the sequences of cu_seqlens_q. They stay as they are, or become 0 and −inf with zero_padding.
struct AttentionArguments {
  TensorView q;       ///< (batch, seqlen_q, heads_q, head_dim); varlen: (total_q, heads_q, head_dim)
  TensorView k;       ///< (batch, seqlen_kv, heads_q / gqa_ratio, head_dim); varlen: (total_k, …);
                      ///< paged: (pages, page_size, heads_q / gqa_ratio, head_dim)
  TensorView v = {};  ///< the same with head_dim_v; none with values_in_keys
  TensorView o;       ///< as q with head_dim_v, written; shares no byte with the inputs
  TensorView lse =
      {};  ///< optional: fp32 (batch, heads_q, seqlen_q), or (heads_q, total_q) where queries are
           ///< varlen, written: log Σ exp(score), natural log, sinks included
  NamedTensors tensors = {};  ///< what mask and score read

  TensorView cu_seqlens_q =
      {};  ///< int32 (batch + 1): where each sequence begins in varlen q and o, and ends
  TensorView cu_seqlens_k = {};  ///< the same for varlen k and v
  TensorView seqused_q =
      {};  ///< optional int32 (batch): queries of each sequence, where it has room for more
  TensorView seqused_k = {};  ///< optional int32 (batch): keys of each sequence, those just appended included
  TensorView cache_leftpad = {};  ///< optional int32 (batch): rows of k and v before the first key
  TensorView page_table = {};     ///< int32 (batch, max_pages): the pages of each sequence in order
  TensorView sinks = {};          ///< fp32 (heads_q), natural units, unscaled; if spec.sinks
  /// fp32, of k and v of fp8: what their elements are multiplied by, read on the device alone; any strides. With
  /// spec.descale_per = head (heads_kv), (1) for all heads, or (batch, heads_kv), each of which may be 1; optional, 1 where
  /// it is not given. With token, one for each row of k: as k without head_dim, such as (pages, page_size, heads_kv). With
  /// block, one for each 64 rows: (batch, ceil(seqlen_kv / 64), heads_kv).
  TensorView q_descale =
      {};  ///< with spec.dtype of fp8 alone: of its KV head, as k_descale; with token one for each row of q, with block for 64
  TensorView k_descale = {};
  /// The same for v; with spec.dtype of fp8 as spec.v_descale_per says, because a probability of 8 bits cannot take a
  /// scale: as with head, or with channel (batch, heads_kv, head_dim_v), of which batch and heads_kv may be 1 and batch
  /// may be missing; its last stride is 1.
  TensorView v_descale = {};
  /// If spec.v_mean: fp32 (batch, heads_kv, head_dim_v), as v_descale with channel. What v has lost: added to o, in fp32,
  /// times what keys have of the row's sum where there is a sink. A row that sees no key keeps o = 0.
  TensorView v_mean = {};
  /// If spec.lse_shift: fp32, as lse: q times the mean that k has lost. softmax_scale times it is added to LSE.
  TensorView lse_shift = {};
  float dropout_p = 0;  ///< the rate of dropout, at least 0 and less than 1; 0 unless spec.dropout
  /// int64 (2), if spec.dropout: seed and offset of the random numbers, read on the device alone. Equal ones drop equal
  /// probabilities (docs/kernels.md#dropout).
  TensorView rng_state = {};
  int num_splits = 0;         ///< blocks that may share the keys of some queries, at most; 0: as many as pay
  bool zero_padding = false;  ///< o = 0 and lse = −inf in rows that are no query's
};

/// Checks what can be wrong with the arguments of a call for `spec`, as the call itself does. Neither needs a
/// device nor reads what the tensors hold. Throws Error invalid_argument whose field is the argument's name.
void check_arguments(const AttentionSpec& spec, const AttentionArguments& arguments);

/// The part of these checks that concerns q, k and v alone, for callers who have yet to make room for o.
/// Throws the same. Allocates nothing unless it throws.
void check_inputs(const AttentionSpec& spec, const AttentionArguments& arguments);

/// The tensors of one backward call: the gradients of q, k and v, and of more if asked, by those of o and lse, given
/// what forward read and wrote. Strides and alignment as forward's; gradients that are written share no byte with any
/// other tensor.
///
/// Sequences may be varlen; then their arrays are as forward's, read on the device alone and cut to what there is room
/// for. Rows of dq, dk and dv that are no query's or no key's stay as they are.
struct BackwardArguments {
  TensorView d_o;  ///< "do" in errors: the gradient of o, as o
  TensorView q;    ///< as forward had it, as are k and v
  TensorView k;
  TensorView v;
  TensorView o;    ///< what forward wrote
  TensorView lse;  ///< the same, fp32, as forward had it; −inf, or the sink, for a query without keys
  TensorView dq;   ///< as q, written
  TensorView dk;   ///< as k, written: summed over the query heads that share a KV head
  TensorView dv;   ///< as v, written: the same
  NamedTensors tensors = {};     ///< what mask and score read
  TensorView cu_seqlens_q = {};  ///< as forward had it, as are the other three
  TensorView cu_seqlens_k = {};
  TensorView seqused_q = {};
  TensorView seqused_k = {};
  float dropout_p = 0;  ///< as forward had it, as is rng_state
  TensorView rng_state = {};
  /// Whether equal inputs must give bit-identical gradients. Otherwise sums over blocks of dq may be made in any order.
  bool deterministic = false;

  TensorView d_lse = {};    ///< "dlse" in errors, optional: the gradient of lse, of its type and shape
  TensorView sinks = {};    ///< as forward had it; if spec.sinks
  TensorView d_sinks = {};  ///< optional: the gradient of the sinks, fp32 (heads_q), written
  /// Gradients that are written of some of `tensors`, of fp32, bf16 or fp16 each and read by the score: under the same
  /// name, of the same type and shape, with any strides. Where the tensor has stride 0 each element counts by itself.
  /// Equal inputs always give bit-identical ones. Takes 8 bytes of workspace for each element.
  NamedTensors d_tensors = {};
};

/// Checks what can be wrong with the arguments of a backward call for `spec`, as the call itself does. Throws the same.
void check_backward_arguments(const AttentionSpec& spec, const BackwardArguments& arguments);

struct AttentionState;

/// A problem's kernel on every GPU and for every size. Cheap to copy; thread safe: host threads may call at the same time,
/// also on one stream, and each call computes what it computes alone. The kernels of a call that share memory of the stream
/// (counters, mailboxes, workspaces) are queued under a lock of that stream.
class Attention {
 public:
  /// Computes attention on `stream`, on the device of the current context. The first call for a size class
  /// (powers of two of lengths and batch · heads) on a GPU chooses the config: from a record, by tuning or by
  /// the cost model, as Settings::tuning says. Later calls only launch: no compile, allocation,
  /// environment or synchronization. While `stream` is being captured nothing is tuned or compiled: the
  /// config chosen before runs, else the one that attention() loaded on this device; Error not_prepared when
  /// there is neither. A captured launch may run beside those of other streams and graphs, but not beside itself, in
  /// two instances of one graph say. What it needs beside its tensors (counters, mailbox, workspace) it shares with
  /// others that were captured on the same stream in the same capture; that stays until the graph and all that was
  /// instantiated from it are destroyed, or the context is. Throws Error invalid_argument, naming the argument, before anything is launched; launch_failed.
  void operator()(const AttentionArguments& arguments, Stream stream = nullptr) const;

  /// Does all of the above but the launch: afterwards a call with these sizes only launches, also under
  /// capture. What mask and score read must be there: tuning reads it.
  void prepare(const AttentionArguments& arguments) const;

  /// Computes dq, dk and dv on `stream`: on sm_90a, where a kernel can serve the call that computes all of them, by
  /// that one between two that prepare and round; else by a kernel of dq and one of dk and dv. With P = exp(score −
  /// lse) and f the score functor,
  ///
  ///     delta = rowsum(do ∘ o) − dlse    dS = P ∘ (do vᵀ − delta)        dq = softmax_scale · (dS ∘ f′) k
  ///     dv = Pᵀ do                       dk = softmax_scale · (dS ∘ f′)ᵀ q
  ///     dsink = −Σ exp(sink − lse) · delta    dT = Σ dS ∘ ∂f/∂T, for a tensor T that the score reads
  ///
  /// ("FlashAttention-2", Dao, has those of the operands). The last two are computed by kernels of their own, and
  /// only when they are asked for. With `deterministic` equal inputs give bit-identical gradients;
  /// without, all are but dq where one kernel adds it up in any order. A query without keys gets dq = 0 and adds nothing
  /// to the others, its dlse is not looked at.
  /// Built-in scores and texts are differentiated by the library; a text computes with `auto` what depends on `score`,
  /// or on a tensor whose gradient is wanted, or gives its derivative. Whatever config was given for forward, kernels are
  /// chosen as Settings::tuning says, at the first call for a size class on a GPU; later calls only launch. Throws Error
  /// invalid_spec where keys are paged or there are split_keys; invalid_argument, naming the argument, before anything
  /// is launched; compile_failed where a text loses a derivative; not_prepared while the stream is being captured and
  /// nothing was prepared; launch_failed.
  void backward(const BackwardArguments& arguments, Stream stream = nullptr) const;

  /// Does all of the above but the launch.
  void prepare_backward(const BackwardArguments& arguments) const;

  /// The kernels that a backward call with these arguments runs on the current device, in their order, prepared if
  /// need be.
  std::vector<CompiledKernel> backward_kernels(const BackwardArguments& arguments) const;

  /// The kernel that a call with these arguments runs on the current device, prepared if need be.
  CompiledKernel kernel(const AttentionArguments& arguments) const;
  /// The kernel that runs for sizes that nothing was chosen for yet.
  CompiledKernel kernel() const;

  const AttentionSpec& spec() const;

 private:
  friend struct Access;
  explicit Attention(std::shared_ptr<const AttentionState> state) : state_(std::move(state)) {}

  std::shared_ptr<const AttentionState> state_;
};

/// The kernel for `spec` on the current device, compiled or taken from the cache, and loaded. A given
/// `config` is used for all sizes and never tuned. Asking again for the same spec is a look-up of less
/// than a hundred nanoseconds, which loads nothing on a device that has become current since: there the first
/// call or `prepare` loads the kernel. Throws Error invalid_spec before anything else; unsupported_device,
/// no_valid_config, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
Attention attention(const AttentionSpec& spec, std::optional<KernelConfig> config = {},
                    const Context& context = default_context());

/// The same for a program that calls at once: compiles nothing yet. The first call, or `prepare`, makes the kernel
/// for its own sizes, where attention() and a call may make two. The kernel for sizes that nothing was chosen for
/// is made when it is needed: by `kernel()`, and by a launch that is captured before any other. Throws Error
/// invalid_spec; what else attention() throws comes from these.
Attention attention_when_called(const AttentionSpec& spec, const Context& context = default_context());

}  // namespace jit
