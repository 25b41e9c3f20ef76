// Attention forward: fp16 d72/24 gqa2 score=softcap(30). Generated: change the spec, not this file.
#include "forward_wgmma/kernel.cuh"

using namespace jit;

struct SoftcapScoreConstants0 {
  static constexpr float cap = 0x1.ep+4f;  // 30
};

struct Config {
  using Element = fp16;
  static constexpr int head_dim = 72;  // of q and k, elements
  static constexpr int head_dim_v = 24;  // of v and o, elements
  static constexpr int gqa_ratio = 2;  // query heads per KV head
  static constexpr int alignment = 16;  // of every row in global memory, bytes
  static constexpr int seqlen_q = 0;  // 0: a run-time argument
  static constexpr int seqlen_kv = 0;  // 0: a run-time argument
  using Mask = NoMask;  // none
  using Score = SoftcapScore<SoftcapScoreConstants0>;  // softcap(30)
  static constexpr int tile_q = 192;  // queries per block
  static constexpr int tile_kv = 48;  // keys per step
  static constexpr int stages_q = 1;  // buffers for Q tiles
  static constexpr int stages_k = 2;  // buffers for K tiles
  static constexpr int stages_v = 1;  // buffers for V tiles
  static constexpr bool q_in_registers = false;  // Q stays in registers, else in shared memory
  static constexpr bool p_in_registers = false;  // P V reads P from registers, else from shared memory
  static constexpr bool separate_o = true;  // O leaves through shared memory of its own, not Q's
  static constexpr bool direct_o = false;  // consumers write O from their registers, not by way of shared memory
  static constexpr bool overlap = true;  // softmax runs under the P V of the tile before
  static constexpr WarpgroupOrder order = WarpgroupOrder::free;  // how consumer warpgroups take turns
  static constexpr bool persistent = false;  // a block computes one tile of queries after another
  static constexpr bool dependent_launch = false;  // starts while the kernel before it on the stream ends, and waits for it
  static constexpr int polynomial_exp2 = 0;  // of 8 exponentials, how many are polynomials instead of ex2
  static constexpr Rescale rescale = Rescale::always;  // when the output is rescaled to a new row maximum
  static constexpr int blocks_per_sm = 1;  // blocks that must fit on a multiprocessor: caps the registers
  static constexpr int producer_registers = 32;  // per thread, once shared out; 0: as launched
  static constexpr int consumer_registers = 160;  // the same for consumers
  // D = A B: 64 rows of Q, tile_kv rows of K.
  template <class A, class B>
  static __device__ __forceinline__ void wgmma_qk(float (&d)[6][4], unsigned a, unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 A, {%24, %25}; mov.b64 B, {%26, %27}; \n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "A, B, no, 1, 1, 0, 0;\n"
        "add.u32 word, %24, %28; mov.b64 A, {word, %25}; add.u32 word, %26, %29; mov.b64 B, {word, %27}; \n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %24, %30; mov.b64 A, {word, %25}; add.u32 word, %26, %31; mov.b64 B, {word, %27}; \n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %24, %32; mov.b64 A, {word, %25}; add.u32 word, %26, %33; mov.b64 B, {word, %27}; \n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %24, %34; mov.b64 A, {word, %25}; add.u32 word, %26, %35; mov.b64 B, {word, %27}; \n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3])
        : "r"(a), "n"(A::upper_word()), "r"(b), "n"(B::upper_word()), "n"(A::column_step(1)), "n"(B::column_step(1)), "n"(A::column_step(2)), "n"(B::column_step(2)),
          "n"(A::column_step(3)), "n"(B::column_step(3)), "n"(A::column_step(4)), "n"(B::column_step(4)));
  }
  // D += A B: tile_kv columns of P, tile_kv rows of V.
  template <class A, class B>
  static __device__ __forceinline__ void wgmma_pv(float (&d)[4][4], unsigned a, unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 A, {%16, %17}; mov.b64 B, {%18, %19}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "A, B, yes, 1, 1, 0, 1;\n"
        "add.u32 word, %16, %20; mov.b64 A, {word, %17}; add.u32 word, %18, %21; mov.b64 B, {word, %19}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "A, B, yes, 1, 1, 0, 1;\n"
        "add.u32 word, %16, %22; mov.b64 A, {word, %17}; add.u32 word, %18, %23; mov.b64 B, {word, %19}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "A, B, yes, 1, 1, 0, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a), "n"(A::upper_word()), "r"(b), "n"(B::upper_word()), "n"(A::column_step(1)), "n"(B::row_step(1)), "n"(A::column_step(2)), "n"(B::row_step(2)));
  }
  // The same without the upper half of the keys.
  template <class A, class B>
  static __device__ __forceinline__ void wgmma_pv_lower(float (&d)[4][4], unsigned a, unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 A, {%16, %17}; mov.b64 B, {%18, %19}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "A, B, yes, 1, 1, 0, 1;\n"
        "add.u32 word, %16, %20; mov.b64 A, {word, %17}; add.u32 word, %18, %21; mov.b64 B, {word, %19}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "A, B, yes, 1, 1, 0, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a), "n"(A::upper_word()), "r"(b), "n"(B::upper_word()), "n"(A::column_step(1)), "n"(B::row_step(1)));
  }
};
static_assert(sizeof(AttentionParams) == 448, "host and device disagree on the kernel's parameters");
static_assert(has_row_range<Config::Mask> == true, "host and device disagree on the mask's row_range");
static_assert(key_words<Config::Mask> == 0, "host and device disagree on the mask's key words");
static_assert(sizeof(forward_wgmma::TensorMaps) == 576, "host and device disagree on the tensor maps");
static_assert(forward_wgmma::KernelTraits<Config>::layout.total == 113936, "host and device disagree on shared memory");

extern "C" __global__ void __launch_bounds__(forward_wgmma::KernelTraits<Config>::threads, Config::blocks_per_sm)
attn_fwd_sm90_fp16_d72v24_gqa2_softcap_30_q192kv48k2v1(const __grid_constant__ AttentionParams params, const __grid_constant__ forward_wgmma::TensorMaps maps) {
  forward_wgmma::attention_forward<Config>(params, maps);
}
