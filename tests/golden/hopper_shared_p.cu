// Attention forward: fp16 d72/24 gqa2 score=softcap(30). Generated: change the spec, not this file.
#include "attention_forward_sm90.cuh"

using namespace jit;

struct SoftcapConstants0 {
  static constexpr float cap = 0x1.ep+4f;  // 30
};

struct Config {
  using Element = fp16;
  using Mask = NoMask;  // none
  using Score = SoftcapScore<SoftcapConstants0>;  // softcap(30)
  static constexpr int head_dim = 72;  // of q and k, elements
  static constexpr int head_dim_v = 24;  // of v and o, elements
  static constexpr int gqa_ratio = 2;  // query heads per KV head
  static constexpr int alignment = 16;  // of every row in global memory, bytes
  static constexpr int seqlen_q = 0;  // 0: a run-time argument
  static constexpr int seqlen_kv = 0;  // 0: a run-time argument
  static constexpr int tile_q = 192;  // queries per block
  static constexpr int tile_kv = 48;  // keys per step
  static constexpr int stages_q = 1;  // buffers for Q tiles
  static constexpr int stages_k = 2;  // buffers for K tiles
  static constexpr int stages_v = 1;  // buffers for V tiles
  static constexpr bool p_in_registers = false;  // P V reads P from registers, else from shared memory
  static constexpr bool separate_o = true;  // O leaves through shared memory of its own, not Q's
  static constexpr bool overlap = true;  // softmax runs under the P V of the tile before
  static constexpr WarpgroupOrder order = WarpgroupOrder::free;  // how consumer warpgroups take turns
  static constexpr bool persistent = false;  // a block computes one tile of queries after another
  static constexpr Rescale rescale = Rescale::always;  // when the output is rescaled to a new row maximum
  static constexpr int blocks_per_sm = 1;  // blocks that must fit on a multiprocessor: caps the registers
  static constexpr int producer_registers = 32;  // per thread, once shared out; 0: as launched
  static constexpr int consumer_registers = 160;  // the same for consumers
  // D (+)= A B: 64 rows of Q, tile_kv rows of K, 16 columns of each.
  static __device__ __forceinline__ void wgmma_qk(float (&d)[6][4], unsigned long long a, unsigned long long b, bool accumulate) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %26, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "%24, %25, p, 1, 1, 0, 0;}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3])
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
  }
  // D += A B: 16 columns of P, 16 rows of V.
  static __device__ __forceinline__ void wgmma_pv(float (&d)[4][4], unsigned long long a, unsigned long long b, bool accumulate) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, p, 1, 1, 0, 1;}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
  }
};
static_assert(sizeof(AttentionParams) == 448, "host and device disagree on the kernel's parameters");
static_assert(sizeof(TensorMaps) == 576, "host and device disagree on the tensor maps");
static_assert(ForwardTraitsSm90<Config>::layout.total == 113800, "host and device disagree on shared memory");

extern "C" __global__ void __launch_bounds__(ForwardTraitsSm90<Config>::threads, Config::blocks_per_sm)
attn_fwd_sm90_fp16_d72v24_gqa2_softcap_30_q192kv48k2v1(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMaps maps) {
  attention_forward<Config>(params, maps);
}
