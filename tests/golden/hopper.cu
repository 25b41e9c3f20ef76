// Attention forward: bf16 d128 mask=causal. Generated: change the spec, not this file.
#include "forward_wgmma/kernel.cuh"

using namespace jit;

struct Config {
  using Element = bf16;
  static constexpr int head_dim = 128;  // of q and k, elements
  static constexpr int head_dim_v = 128;  // of v and o, elements
  static constexpr int gqa_ratio = 1;  // query heads per KV head
  static constexpr int alignment = 16;  // of every row in global memory, bytes
  static constexpr int seqlen_q = 0;  // 0: a run-time argument
  static constexpr int seqlen_kv = 0;  // 0: a run-time argument
  using Mask = CausalMask<Alignment::bottom_right>;  // causal
  using Score = NoScore;  // none
  static constexpr int tile_q = 128;  // queries per block
  static constexpr int tile_kv = 128;  // keys per step
  static constexpr int stages_q = 2;  // buffers for Q tiles
  static constexpr int stages_k = 2;  // buffers for K tiles
  static constexpr int stages_v = 2;  // buffers for V tiles
  static constexpr bool q_in_registers = false;  // Q stays in registers, else in shared memory
  static constexpr bool p_in_registers = true;  // P V reads P from registers, else from shared memory
  static constexpr bool separate_o = false;  // O leaves through shared memory of its own, not Q's
  static constexpr bool direct_o = false;  // consumers write O from their registers, not by way of shared memory
  static constexpr bool overlap = true;  // softmax runs under the P V of the tile before
  static constexpr WarpgroupOrder order = WarpgroupOrder::ping_pong;  // how consumer warpgroups take turns
  static constexpr bool persistent = true;  // a block computes one tile of queries after another
  static constexpr bool dependent_launch = false;  // starts while the kernel before it on the stream ends, and waits for it
  static constexpr int polynomial_exp2 = 0;  // of 8 exponentials, how many are polynomials instead of ex2
  static constexpr Rescale rescale = Rescale::lazy;  // when the output is rescaled to a new row maximum
  static constexpr int blocks_per_sm = 1;  // blocks that must fit on a multiprocessor: caps the registers
  static constexpr int producer_registers = 40;  // per thread, once shared out; 0: as launched
  static constexpr int consumer_registers = 232;  // the same for consumers
  // D = A B: 64 rows of Q, tile_kv rows of K.
  template <class A, class B>
  static __device__ __forceinline__ void wgmma_qk(float (&d)[16][4], unsigned a, unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 A, {%64, %65}; mov.b64 B, {%66, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, no, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %68; mov.b64 A, {word, %65}; add.u32 word, %66, %69; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %70; mov.b64 A, {word, %65}; add.u32 word, %66, %71; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %72; mov.b64 A, {word, %65}; add.u32 word, %66, %73; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %74; mov.b64 A, {word, %65}; add.u32 word, %66, %75; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %76; mov.b64 A, {word, %65}; add.u32 word, %66, %77; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %78; mov.b64 A, {word, %65}; add.u32 word, %66, %79; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "add.u32 word, %64, %80; mov.b64 A, {word, %65}; add.u32 word, %66, %81; mov.b64 B, {word, %67}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "A, B, yes, 1, 1, 0, 0;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "r"(a), "n"(A::upper_word()), "r"(b), "n"(B::upper_word()), "n"(A::column_step(1)), "n"(B::column_step(1)), "n"(A::column_step(2)), "n"(B::column_step(2)),
          "n"(A::column_step(3)), "n"(B::column_step(3)), "n"(A::column_step(4)), "n"(B::column_step(4)), "n"(A::column_step(5)), "n"(B::column_step(5)), "n"(A::column_step(6)), "n"(B::column_step(6)),
          "n"(A::column_step(7)), "n"(B::column_step(7)));
  }
  // D += A B: tile_kv columns of P, tile_kv rows of V.
  template <class B, int steps>
  static __device__ __forceinline__ void wgmma_pv(float (&d)[16][4], const unsigned (&a)[steps][4], unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 B, {%96, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %98; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%68, %69, %70, %71}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %99; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%72, %73, %74, %75}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %100; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%76, %77, %78, %79}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %101; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%80, %81, %82, %83}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %102; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%84, %85, %86, %87}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %103; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%88, %89, %90, %91}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %96, %104; mov.b64 B, {word, %97}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%92, %93, %94, %95}, B, yes, 1, 1, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]), "r"(a[1][2]), "r"(a[1][3]),
          "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]), "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]),
          "r"(a[4][0]), "r"(a[4][1]), "r"(a[4][2]), "r"(a[4][3]), "r"(a[5][0]), "r"(a[5][1]), "r"(a[5][2]), "r"(a[5][3]),
          "r"(a[6][0]), "r"(a[6][1]), "r"(a[6][2]), "r"(a[6][3]), "r"(a[7][0]), "r"(a[7][1]), "r"(a[7][2]), "r"(a[7][3]),
          "r"(b), "n"(B::upper_word()), "n"(B::row_step(1)), "n"(B::row_step(2)), "n"(B::row_step(3)), "n"(B::row_step(4)), "n"(B::row_step(5)), "n"(B::row_step(6)),
          "n"(B::row_step(7)));
  }
  // The same without the upper half of the keys.
  template <class B, int steps>
  static __device__ __forceinline__ void wgmma_pv_lower(float (&d)[16][4], const unsigned (&a)[steps][4], unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 B, {%80, %81}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %80, %82; mov.b64 B, {word, %81}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%68, %69, %70, %71}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %80, %83; mov.b64 B, {word, %81}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%72, %73, %74, %75}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %80, %84; mov.b64 B, {word, %81}; \n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%76, %77, %78, %79}, B, yes, 1, 1, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]), "r"(a[1][2]), "r"(a[1][3]),
          "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]), "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]),
          "r"(b), "n"(B::upper_word()), "n"(B::row_step(1)), "n"(B::row_step(2)), "n"(B::row_step(3)));
  }
};
static_assert(sizeof(AttentionParams) == 448, "host and device disagree on the kernel's parameters");
static_assert(has_row_range<Config::Mask> == true, "host and device disagree on the mask's row_range");
static_assert(key_words<Config::Mask> == 0, "host and device disagree on the mask's key words");
static_assert(sizeof(forward_wgmma::TensorMaps) == 576, "host and device disagree on the tensor maps");
static_assert(forward_wgmma::KernelTraits<Config>::layout.total == 196928, "host and device disagree on shared memory");

extern "C" __global__ void __launch_bounds__(forward_wgmma::KernelTraits<Config>::threads, Config::blocks_per_sm)
attn_fwd_sm90_bf16_d128_causal_q128kv128k2v2(const __grid_constant__ AttentionParams params, const __grid_constant__ forward_wgmma::TensorMaps maps) {
  forward_wgmma::attention_forward<Config>(params, maps);
}
