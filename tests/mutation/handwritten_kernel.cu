// A small attention kernel for sm_90a, for the tests of the emulator: TMA, mbarrier pipelines, a producer warp, two
// consumer warpgroups with wgmma, setmaxnreg, O stored by TMA. Tiles of 128 queries and 128 keys, head_dim
// 128, bf16. The lines that end in a "mutate:" comment are what the mutation tests change.
constexpr int tile_q = 128, tile_kv = 128, head_dim = 128, stages = 2, consumer_warps = 8;
constexpr int half_columns = 64;                    // of a 128-byte swizzled row
constexpr int half_bytes = 128 * half_columns * 2;  // one half of a tile
constexpr int tile_bytes = 2 * half_bytes;
constexpr int swizzle_rows_bytes = 8 * half_columns * 2;  // eight rows: one period of the swizzle

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

struct Smem {
  unsigned char q[tile_bytes];
  unsigned char k[stages][tile_bytes];
  unsigned char v[stages][tile_bytes];
  unsigned long long q_full, k_full[stages], k_empty[stages], v_full[stages], v_empty[stages];
};

__device__ unsigned shared_address(const void* pointer) {
  unsigned address;
  asm("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(address) : "l"(pointer));
  return address;
}

__device__ void mbarrier_init(unsigned long long& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
}
__device__ void mbarrier_arrive(unsigned long long& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ void mbarrier_expect(unsigned long long& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ void mbarrier_wait(unsigned long long& barrier, int parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

// Both halves of a tile of 128 rows from `row` of plane `plane`.
__device__ void load_tile(void* tile, const TensorMap& map, unsigned long long& full, int row, int plane) {
  for (int half = 0; half < 2; ++half) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3, %4}], [%5];" ::"r"(shared_address(tile) + half * half_bytes),
        "l"(&map), "r"(half * half_columns), "r"(row), "r"(plane), "r"(shared_address(&full))
        : "memory");
  }
}

// A shared-memory operand of wgmma with the 128-byte swizzle.
__device__ unsigned long long descriptor(unsigned address, int leading_bytes) {
  return (address & 0x3ffff) >> 4 | static_cast<unsigned long long>(leading_bytes >> 4) << 16 |
         static_cast<unsigned long long>(swizzle_rows_bytes >> 4) << 32 | 1ull << 62;
}

__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wgmma_wait_group() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// D (+)= A B, A and B in shared memory with their rows along the sum.
__device__ __forceinline__ void wgmma_qk(float (&d)[64], unsigned long long a, unsigned long long b,
                                         int accumulate) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(accumulate));
}

// D (+)= A B, A in registers, B with its rows across the sum.
__device__ __forceinline__ void wgmma_pv(float (&d)[64], const unsigned (&a)[4], unsigned long long b,
                                         int accumulate) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

__device__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ unsigned pack(float low, float high) {
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ float quad_max(float x) {
  float y = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(y, __shfl_xor_sync(0xffffffff, y, 2));
}
__device__ float quad_sum(float x) {
  float y = x + __shfl_xor_sync(0xffffffff, x, 1);
  return y + __shfl_xor_sync(0xffffffff, y, 2);
}

__device__ void produce(Smem& smem, const TensorMap& q_map, const TensorMap& k_map, const TensorMap& v_map,
                        int tiles, int q_begin, int plane) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  if (threadIdx.x != 0) return;
  mbarrier_expect(smem.q_full, tile_bytes);
  load_tile(smem.q, q_map, smem.q_full, q_begin, plane);
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % stages, parity = tile / stages % 2;
    mbarrier_wait(smem.k_empty[stage], parity ^ 1);   // mutate: ProducerWaits
    mbarrier_expect(smem.k_full[stage], tile_bytes);  // mutate: ExpectsBytes
    load_tile(smem.k[stage], k_map, smem.k_full[stage], tile * tile_kv, plane);
    mbarrier_wait(smem.v_empty[stage], parity ^ 1);
    mbarrier_expect(smem.v_full[stage], tile_bytes);
    load_tile(smem.v[stage], v_map, smem.v_full[stage], tile * tile_kv, plane);
  }
}

__device__ void consume(Smem& smem, const TensorMap& o_map, int tiles, int q_begin, int plane, int seqlen_kv,
                        float scale_log2) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int thread = threadIdx.x - 128, group = thread / 128, lane = thread % 32;
  const unsigned q = shared_address(smem.q) + group * (half_bytes / 2);
  float output[64] = {}, scores[64];
  float row_max[2] = {-1e30f, -1e30f}, row_sum[2] = {};
  mbarrier_wait(smem.q_full, 0);
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % stages, parity = tile / stages % 2;
    mbarrier_wait(smem.k_full[stage], parity);  // mutate: ConsumerWaits
    const unsigned k = shared_address(smem.k[stage]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < head_dim / 16; ++step) {
      const int offset = step / 4 * half_bytes + step % 4 * 32;
      wgmma_qk(scores, descriptor(q + offset, 16), descriptor(k + offset, 16), step > 0);
    }
    wgmma_commit_group();
    wgmma_wait_group();  // mutate: NoWgmmaWait
    if (lane == 0) mbarrier_arrive(smem.k_empty[stage]);

    unsigned p[8][4];
    for (int row = 0; row < 2; ++row) {
      float largest = row_max[row];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        float& score = scores[i / 2 * 4 + row * 2 + i % 2];
        const int key = tile * tile_kv + i / 2 * 8 + lane % 4 * 2 + i % 2;
        score = key < seqlen_kv ? score * scale_log2 : -1e30f;  // mutate: MaskOffByOne
        largest = fmaxf(largest, score);
      }
      largest = quad_max(largest);
      const float rescale = exp2_approx(row_max[row] - largest);
      row_max[row] = largest;
      row_sum[row] *= rescale;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        float& score = scores[i / 2 * 4 + row * 2 + i % 2];
        score = exp2_approx(score - largest);
        row_sum[row] += score;
        output[i / 2 * 4 + row * 2 + i % 2] *= rescale;
      }
    }
#pragma unroll
    for (int step = 0; step < tile_kv / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[step][i] = pack(scores[step * 8 + 2 * i], scores[step * 8 + 2 * i + 1]);
    }

    mbarrier_wait(smem.v_full[stage], parity);
    const unsigned v = shared_address(smem.v[stage]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < tile_kv / 16; ++step) {
      const auto rows = descriptor(v + step * 2 * swizzle_rows_bytes, half_bytes);  // mutate: DescriptorOfTheWrongStep
      wgmma_pv(output, p[step], rows, 1);
    }
    wgmma_commit_group();
    wgmma_wait_group();
    if (lane == 0) mbarrier_arrive(smem.v_empty[stage]);  // mutate: ArrivesAtEmpty
  }

  // O goes over Q, which nobody of this warpgroup reads any more, swizzled as the tensor map says.
  const float inverse[2] = {1 / quad_sum(row_sum[0]), 1 / quad_sum(row_sum[1])};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = thread % 128 / 32 * 16 + lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
    const unsigned place =
        column / half_columns * half_bytes + row * 128 +
        (((column % half_columns / 8) ^ (row % 8)) * 16 + column % 8 * 2);  // mutate: SwizzleOnOneSide
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(q + place),
                 "r"(pack(output[i / 2 * 4 + i % 2 * 2] * inverse[i % 2],
                          output[i / 2 * 4 + i % 2 * 2 + 1] * inverse[i % 2]))
                 : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");    // mutate: NoProxyFence
  asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // mutate: NoNamedBarrier
  if (thread % 128 == 0) {
    for (int half = 0; half < 2; ++half) {
      asm volatile(
          "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
              &o_map),
          "r"(half * half_columns), "r"(q_begin + group * 64), "r"(plane), "r"(q + half * half_bytes)
          : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // mutate: NoStoreWait
  }
}

// Grid: tiles of queries × planes (batch · heads). Maps: (head_dim, seqlen, planes), boxes of 64 × 128 (O: 64
// × 64), swizzle 128.
extern "C" __global__ void __launch_bounds__(384, 1)
    handwritten_kernel(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                       const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map,
                       int seqlen_kv, float scale_log2) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Smem& smem = *reinterpret_cast<Smem*>(bytes);
  const int tiles = (seqlen_kv + tile_kv - 1) / tile_kv, q_begin = blockIdx.x * tile_q, plane = blockIdx.y;
  if (threadIdx.x == 0) {
    mbarrier_init(smem.q_full, 1);
    for (int stage = 0; stage < stages; ++stage) {
      mbarrier_init(smem.k_full[stage], 1);
      mbarrier_init(smem.v_full[stage], 1);
      mbarrier_init(smem.k_empty[stage], consumer_warps);
      mbarrier_init(smem.v_empty[stage], consumer_warps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();  // mutate: NoBarrierAfterInit
  if (threadIdx.x < 128) {
    produce(smem, q_map, k_map, v_map, tiles, q_begin, plane);
  } else {
    consume(smem, o_map, tiles, q_begin, plane, seqlen_kv, scale_log2);
  }
}
