// Attention forward: bf16 d128 mask=(causal || prefix_lengths) && document && !sliding_window(8, -1, top_left) score=softcap(30), alibi, bias(fp16). Generated: change the spec, not this file.
#include "forward_mma_sync/kernel.cuh"

using namespace jit;

#include "checks/mask_agreement.cuh"

struct SoftcapScoreConstants0 {
  static constexpr float cap = 0x1.ep+4f;  // 30
};

struct Config {
  using Element = bf16;
  static constexpr int head_dim = 128;  // columns of q and k
  static constexpr int head_dim_v = 128;  // columns of v and o
  static constexpr int gqa_ratio = 1;  // query heads per KV head
  static constexpr int alignment = 16;  // bytes, of every row in global memory
  static constexpr int seqlen_q = 0;  // 0: a run-time argument
  static constexpr int seqlen_kv = 0;  // 0: a run-time argument
  static constexpr SequenceKind sequences_q = SequenceKind::dense;  // layout of q and o
  static constexpr SequenceKind sequences_kv = SequenceKind::dense;  // layout of k and v
  static constexpr int page_size = 0;  // keys in a page; 0: no pages
  static constexpr bool sinks = false;  // each head has a sink
  static constexpr int split_keys = 0;  // keys in a span that is summed separately; 0: no spans
  static constexpr bool checked = false;  // arrays on the device are checked
  using Mask = AndMask<AndMask<OrMask<CausalMask<Alignment::bottom_right>, PrefixLengthsMask<0>>, DocumentMask<1, 2>>, NotMask<SlidingWindowMask<8, -1, Alignment::top_left>>>;  // (causal || prefix_lengths) && document && !sliding_window(8, -1, top_left)
  using Score = ThenScore<ThenScore<SoftcapScore<SoftcapScoreConstants0>, AlibiScore<3>>, BiasScore<4, fp16>>;  // softcap(30), alibi, bias(fp16)
  static constexpr int tile_q = 128;  // queries per block
  static constexpr int tile_kv = 64;  // keys per step
  static constexpr int warps = 4;  // warps per block; each owns tile_q / warps queries
  static constexpr int stages_k = 2;  // buffers for K tiles
  static constexpr int stages_v = 1;  // buffers for V tiles
  static constexpr bool q_in_registers = false;  // Q stays in registers, else in shared memory
  static constexpr Rescale rescale = Rescale::lazy;  // when the output is rescaled to a new row maximum
  static constexpr int blocks_per_sm = 1;  // blocks that must fit on a multiprocessor: caps the registers
};
static_assert(sizeof(AttentionParams) == 808, "host and device disagree on the kernel's parameters");
static_assert(is_whole<Config::Mask>, "all of the mask compiles");
static_assert(has_row_range<Config::Mask> == false, "host and device disagree on the mask's row_range");
static_assert(key_words<Config::Mask> == 1, "host and device disagree on the mask's key words");
static_assert(forward_mma_sync::smem_layout<Config>().total == 81920, "host and device disagree on shared memory");

extern "C" __global__ void __launch_bounds__(128, Config::blocks_per_sm)
attention_forward_mma_sync_bf16_d128_causal_prefix_lengths_document_sliding_w_softcap_30_alibi_bias_fp16_q128kv64w4k2v1(const __grid_constant__ AttentionParams params) {
  forward_mma_sync::attention_forward<Config>(params);
}
