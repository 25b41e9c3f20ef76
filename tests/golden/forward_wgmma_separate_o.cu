// Attention forward: fp16 d72/24 gqa2 score=softcap(30). Generated: change the spec, not this file.
#include "forward_wgmma/kernel.cuh"
#include "wgmma_products.cuh"

using namespace jit;

struct SoftcapScoreConstants0 {
  static constexpr float cap = 0x1.ep+4f;  // 30
};

struct Config : WgmmaProducts {
  using Element = fp16;
  static constexpr int head_dim = 72;  // columns of q and k
  static constexpr int head_dim_v = 24;  // columns of v and o
  static constexpr int gqa_ratio = 2;  // query heads per KV head
  static constexpr int alignment = 16;  // bytes, of every row in global memory
  static constexpr int seqlen_q = 0;  // 0: a run-time argument
  static constexpr int seqlen_kv = 0;  // 0: a run-time argument
  static constexpr SequenceKind sequences_q = SequenceKind::dense;  // layout of q and o
  static constexpr SequenceKind sequences_kv = SequenceKind::dense;  // layout of k and v
  static constexpr int page_size = 0;  // keys in a page; 0: no pages
  static constexpr bool sinks = false;  // each head has a sink
  static constexpr int split_keys = 0;  // keys in a span that is summed separately; 0: no spans
  static constexpr bool checked = false;  // arrays on the device are checked
  using Mask = NoMask;  // none
  using Score = SoftcapScore<SoftcapScoreConstants0>;  // softcap(30)
  static constexpr int tile_q = 192;  // queries per block
  static constexpr int tile_kv = 48;  // keys per step
  static constexpr int stages_q = 1;  // buffers for Q tiles
  static constexpr int stages_k = 2;  // buffers for K tiles
  static constexpr int stages_v = 1;  // buffers for V tiles
  static constexpr OutputPlace output = OutputPlace::separate;  // the way of O to global memory: through the shared memory of Q, through its own, or directly
  static constexpr WarpgroupOrder order = WarpgroupOrder::free;  // the order of consumer warpgroups
  static constexpr Rescale rescale = Rescale::lazy;  // when the output is rescaled to a new row maximum
  static constexpr int blocks_per_sm = 1;  // blocks that must fit on a multiprocessor: caps the registers
  static constexpr Requests requests = Requests::all;  // the requests of this kernel, by their number of queries
  static constexpr int promote_every = 0;  // tiles of keys after which sums of FP8 products are added to fp32 registers; 0: never
  static constexpr int stages_stored = 0;  // buffers for tiles of 8-bit keys as they are stored, and as many for values
  static constexpr int converter_warps = 0;  // warps that upcast these, or transpose 8-bit values: 2 of the producers, or 4 in a separate warpgroup
  static constexpr bool upcast_ahead = false;  // a kernel before this one upcasts all keys and values, into a workspace
  static constexpr bool dropout_mask_ahead = false;  // a kernel before this one draws the dropout mask, into a workspace
  static constexpr bool descending = false;  // tiles of keys go from the last one to the first
  static constexpr bool sums_by_products = false;  // sums of P are a product with ones
  static constexpr int interpolated_exp2 = 0;  // interpolated exponentials of 8, where nothing else is lost
  static constexpr int producer_registers = 32;  // registers per producer thread after setmaxnreg; 0: as launched
  static constexpr int consumer_registers = 160;  // registers per consumer thread after setmaxnreg
};
static_assert(sizeof(AttentionParams) == 808, "host and device disagree on the kernel's parameters");
static_assert(has_row_range<Config::Mask> == true, "host and device disagree on the mask's row_range");
static_assert(key_words<Config::Mask> == 0, "host and device disagree on the mask's key words");
static_assert(sizeof(TensorMaps) == 576, "host and device disagree on the tensor maps");
static_assert(forward_wgmma::KernelTraits<Config>::layout.total == 89360, "host and device disagree on shared memory");

extern "C" __global__ void __launch_bounds__(forward_wgmma::KernelTraits<Config>::threads, Config::blocks_per_sm)
attention_forward_wgmma_fp16_d72v24_gqa2_softcap_30_q192kv48k2v1(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMaps maps) {
  forward_wgmma::attention_forward<Config>(params, maps);
}
