// What the user wants: an attention problem, without a word on how it is computed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <jit/arch.h>
#include <jit/device.h>
#include <jit/mask.h>
#include <jit/options.h>
#include <jit/score.h>
#include <jit/tensor.h>

namespace jit {

/// The largest softmax_scale: with it, q and k of magnitude 1 have scores up to 2.6e7, of which floats still hold
/// differences of 2 (docs/kernels.md).
inline constexpr float max_softmax_scale = 1e5f;

/// The largest head_dim and head_dim_v, and with values_in_keys.
inline constexpr int max_head_dim = 256;
inline constexpr int max_latent_head_dim = 576, max_latent_head_dim_v = 512;

/// The largest page_size.
inline constexpr int max_page_size = 65536;

/// split_keys is a multiple of this.
inline constexpr int split_keys_step = 64;

/// What a kernel is specialized for. Batch, heads, lengths and strides are run-time facts and never cause a
/// compile.
struct AttentionSpec {
  /// Of q, of k and v unless kv_dtype says else, and of o unless out_dtype does: bf16 or fp16; or fp8_e4m3 or fp8_e5m2 of
  /// q, k and v alike (docs/fp8.md). Sums are fp32.
  DType dtype = DType::bf16;
  int head_dim = 128;  ///< of q and k: a multiple of 8 from 8 to 256, with values_in_keys to 576
  int head_dim_v = 0;  ///< of v and o, same rule; 0: head_dim
  int gqa_ratio = 1;   ///< query heads per KV head: 1 is MHA, heads_q is MQA
  int alignment = 16;  ///< bytes that every row of q, k, v and o is aligned to: 16, 8, 4 or 2; 16 is fastest
  int seqlen_q = 0;    ///< 0: given at run time; else baked into the kernel
  int seqlen_kv = 0;   ///< the same for keys
  SequenceKind sequences_q = SequenceKind::dense;   ///< how queries and outputs lie: dense or varlen
  SequenceKind sequences_kv = SequenceKind::dense;  ///< how keys and values lie: dense, varlen or paged
  int page_size = 0;   ///< rows of a page, from 1 to 65536; 0 unless sequences_kv is paged
  bool sinks = false;  ///< whether each head has a sink: a score without a value, in the sum of all its rows
  /// Whether probabilities are dropped at random, at the rate and with the seed of each call. Of dense and varlen
  /// sequences, without split_keys.
  bool dropout = false;
  /// 0: how sums over keys are cut is left to each call. Else the bits of a request depend on nothing but the request,
  /// and on whether TMA can read the call (docs/batch-invariance.md): its keys are summed in spans of so many, counted from its key 0. A multiple of
  /// 64; 512 to 2048 cost least.
  int split_keys = 0;
  /// Whether calls look at what lengths and page tables hold on the device, wait for it, and throw where it is out of range
  /// (docs/serving.md#checked-calls). For finding errors: slow.
  bool checked = false;
  /// Of k and v, where it is not dtype: fp8_e4m3 or fp8_e5m2, a cache of 8 bits (docs/fp8-cache.md). Forward
  /// alone, without dropout.
  std::optional<DType> kv_dtype = {};
  /// Of o; not given: dtype, or bf16 where that is fp8. Where dtype is fp8: bf16, fp16 or fp32; else dtype.
  std::optional<DType> out_dtype = {};
  ScaleKind descale_per = ScaleKind::
      head;  ///< what k_descale and v_descale have a scale for, of k and v of fp8; block of dense q, k and v of fp8 alone
  /// The same of v_descale where dtype is fp8, whose v never has a scale for each key: head, or channel.
  ScaleKind v_descale_per = ScaleKind::head;
  /// Whether v of fp8 has lost a mean of each column, which calls give, so that o has it again (docs/fp8.md#means). Where
  /// dtype is fp8.
  bool v_mean = false;
  /// Whether k of fp8 has lost its mean, and calls give what each query's scores have lost with it, so that LSE and what
  /// sinks weigh is right. Where dtype is fp8, with scores that add alone.
  bool lse_shift = false;
  /// Whether the values are the first head_dim_v columns of the keys, so that calls have no v: the latent cache of
  /// multi-head latent attention (docs/mla.md). Forward alone, without dropout, of 16-bit
  /// keys.
  bool values_in_keys = false;
  /// Whether all probabilities of q, k and v of fp8 are computed by ex2. Else forward_wgmma makes half of them, which are
  /// rounded to e4m3 anyway, by interpolation between powers of two: in calls that ask for no LSE, in tiles where nothing
  /// else is lost by it (docs/kernels-fp8.md#interpolated-exponentials). The other families always use ex2. Where dtype is fp8.
  bool exact_exponentials = false;
  Mask mask = {};    ///< which keys a query sees
  Score score = {};  ///< what happens to a score before the softmax
  /// Of q·k; default 1/sqrt(head_dim); positive, at most max_softmax_scale; a run-time fact too.
  std::optional<float> softmax_scale = {};

  int value_head_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  DType key_dtype() const { return kv_dtype.value_or(dtype); }
  float scale() const;
  bool operator==(const AttentionSpec&) const = default;
};

/// One line: "bf16 d128 causal".
std::string to_string(const AttentionSpec& spec);

/// The tensors that mask and score read, each name once, in the order of the kernel's parameters. Throws
/// Error invalid_spec when two of one name differ in dtype.
std::vector<FunctorTensorSpec> functor_tensors(const AttentionSpec& spec);

/// One reason why a spec cannot be served.
struct Refusal {
  std::string field;    ///< "head_dim"
  std::string value;    ///< "100"
  std::string rule;     ///< "must be a multiple of 8 from 8 to 256"
  std::string nearest;  ///< what would work: "104"
  std::string to_string() const;
};

/// All reasons why `spec` cannot be served on a GPU of this architecture; empty: it can. Pure, thread safe.
std::vector<Refusal> refusals_of(const AttentionSpec& spec, Arch arch);
std::vector<Refusal> refusals_of(const AttentionSpec& spec, const DeviceInfo& device);

/// Whether there is no such reason.
inline bool supports(const AttentionSpec& spec, Arch arch) { return refusals_of(spec, arch).empty(); }

/// Throws Error invalid_spec with the first refusal that holds on every GPU.
void validate(const AttentionSpec& spec);

}  // namespace jit
