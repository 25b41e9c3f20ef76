// Products of tiles by wgmma, for one kernel. Generated: change the spec, not this file.
#pragma once

struct WgmmaProducts {
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
  template <class B, int steps>
  static __device__ __forceinline__ void wgmma_pv(float (&d)[4][4], const unsigned (&a)[steps][4], unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 B, {%28, %29}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %28, %30; mov.b64 B, {word, %29}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%20, %21, %22, %23}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %28, %31; mov.b64 B, {word, %29}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%24, %25, %26, %27}, B, yes, 1, 1, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]), "r"(a[1][2]), "r"(a[1][3]),
          "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]), "r"(b), "n"(B::upper_word()), "n"(B::row_step(1)), "n"(B::row_step(2)));
  }
  // The same without the upper half of the keys.
  template <class B, int steps>
  static __device__ __forceinline__ void wgmma_pv_lower(float (&d)[4][4], const unsigned (&a)[steps][4], unsigned b) {
    asm volatile(
        "{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\n"
        "setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\n"
        "mov.b64 B, {%24, %25}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, B, yes, 1, 1, 1;\n"
        "add.u32 word, %24, %26; mov.b64 B, {word, %25}; \n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%20, %21, %22, %23}, B, yes, 1, 1, 1;\n"
        "}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]), "r"(a[1][2]), "r"(a[1][3]),
          "r"(b), "n"(B::upper_word()), "n"(B::row_step(1)));
  }
};
