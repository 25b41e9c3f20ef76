// The two products of a warpgroup that computes by wgmma: S = Q Kᵀ and O += P V. Traits are those of a kernel family.
#pragma once

#include "base/prelude.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/fp8.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "steps/e4m3_weights.cuh"
#include "steps/fp16_rows.cuh"
#include "steps/interpolated_weights.cuh"
#include "steps/no_dropout.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

/// What P is rounded to: as q, where Traits name nothing else.
template <class Traits>
struct WeightOf {
  using type = typename Traits::Config::Element;
};
template <class Traits>
requires requires { typename Traits::Weight; }
struct WeightOf<Traits> {
  using type = typename Traits::Weight;
};

/// What Q and keys are multiplied as, in the same way.
template <class Traits>
struct KeyOf {
  using type = typename Traits::Config::Element;
};
template <class Traits>
requires requires { typename Traits::Key; }
struct KeyOf<Traits> {
  using type = typename Traits::Key;
};

/// Whether V has columns of ones behind its own.
template <class Traits>
inline constexpr bool sums_by_products = false;
template <class Traits>
requires requires { Traits::sums_by_products; }
inline constexpr bool sums_by_products<Traits> = Traits::sums_by_products;
struct NoSums {};

/// P of one warpgroup as the A operand of P V: packed accumulators of S, in registers or in shared memory.
template <class Traits>
class Probabilities {
  using Config = typename Traits::Config;

 public:
  /// `tile` is the block's P in shared memory.
  __device__ __forceinline__ Probabilities(unsigned tile, int consumer) : tile_(tile), consumer_(consumer) {}

  /// Of P of 16 bits what `kept` keeps.
  template <class Kept = NoDropout>
  __device__ __forceinline__ void pack_scores(const typename Traits::Scores& scores, const Kept& kept = {}) {
    using Element = typename WeightOf<Traits>::type;
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step) {
      unsigned a[4];
      if constexpr (is_fp8<Element>) {
        pack_e4m3_step(scores, a, 0, step);
      } else {
        scores.template pack_step<Element>(a, 0, step);
        kept.drop_step(a, 0, step);
      }
      if constexpr (Traits::p_in_registers) {
#pragma unroll
        for (int i = 0; i < 4; ++i) registers_[step][i] = a[i];
      } else {
        const int lane = lane_id();
        const int row = threadIdx.x % warpgroup_size / warp_size * 16 + lane % 16;
        stmatrix_x4(
            Traits::PTile::chunk_address(tile_, consumer_ * rows_per_warpgroup + row, 2 * step + lane / 16),
            a);
      }
    }
    if constexpr (!Traits::p_in_registers) {
      fence_proxy_async_shared();
      bar_sync(Traits::probabilities_barrier + consumer_, warpgroup_size);
    }
  }

  /// The same of the columns of one step, of P of 8 bits, but for the words that `interpolated` has. Returns what they
  /// became.
  template <int interpolations>
  __device__ __forceinline__ const unsigned (&pack_step(const typename Traits::Scores& scores, int step,
                                                        const unsigned (&interpolated)[4]))[4] {
    static_assert(Traits::p_in_registers);
    if constexpr (interpolations == 0) {
      pack_e4m3_step(scores, registers_[step], 0, step);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        registers_[step][i] = is_interpolated<interpolations>(i % 2, 2 * step + i / 2)
                                  ? interpolated[i]
                                  : pack_e4m3_word(scores, 0, step, i);
      }
    }
    return registers_[step];
  }

  /// O += P V, as one group; `lower` leaves out the upper half of the keys. Where Traits say `sums_by_products` V has
  /// columns of ones behind its own, whose products are added to `sums`.
  template <class Sums>
  __device__ __forceinline__ void multiply_pv(typename Traits::Output& output, Sums& sums, unsigned v_tile,
                                              bool lower) const {
    using P = typename Traits::PTile;
    using V = typename Traits::VTile;
    const unsigned p = lower_word(P::along_columns(tile_, consumer_ * rows_per_warpgroup, 0));
    constexpr bool sums_along_columns = is_fp8<typename WeightOf<Traits>::type>;
    const unsigned v =
        lower_word(sums_along_columns ? V::along_columns(v_tile, 0, 0) : V::along_rows(v_tile, 0));
    // Fence and commit stand on both sides: the assembler serialises a group that begins before a branch.
    if constexpr (Traits::has_lower_tiles) {
      if (lower) {
        fence_before_pv(output, sums);
        if constexpr (sums_by_products<Traits>) {
          Config::template wgmma_pv_lower<V>(output.registers[0], sums[0], registers_, v);
        } else if constexpr (Traits::p_in_registers) {
          Config::template wgmma_pv_lower<V>(output.registers[0], registers_, v);
        } else {
          Config::template wgmma_pv_lower<P, V>(output.registers[0], p, v);
        }
        wgmma_commit_group();
        return;
      }
    }
    fence_before_pv(output, sums);
    if constexpr (sums_by_products<Traits>) {
      Config::template wgmma_pv<V>(output.registers[0], sums[0], registers_, v);
    } else if constexpr (Traits::p_in_registers) {
      Config::template wgmma_pv<V>(output.registers[0], registers_, v);
    } else {
      Config::template wgmma_pv<P, V>(output.registers[0], p, v);
    }
    wgmma_commit_group();
  }
  /// The same without sums.
  __device__ __forceinline__ void multiply_pv(typename Traits::Output& output, unsigned v_tile,
                                              bool lower) const {
    NoSums sums;
    multiply_pv(output, sums, v_tile, lower);
  }

  /// After the wait for `multiply_pv`: until then nobody else may have the registers.
  __device__ __forceinline__ void hold() {
    if constexpr (Traits::p_in_registers) wgmma_hold(registers_);
  }

 private:
  // Behind a branch the compiler would move O to the registers of the product behind the fence.
  template <class Sums>
  static __device__ __forceinline__ void fence_before_pv(typename Traits::Output& output, Sums& sums) {
    wgmma_hold(output.registers[0]);
    if constexpr (sums_by_products<Traits>) wgmma_hold(sums);
    wgmma_fence();
  }

  unsigned tile_;
  int consumer_;
  unsigned registers_[Traits::p_in_registers ? Traits::key_steps : 1][4];
};

/// Q of one warpgroup as the A operand of Q Kᵀ: in shared memory, or read from there once.
template <class Traits>
class Queries {
  using Config = typename Traits::Config;
  using Q = typename Traits::QTile;
  using K = typename Traits::KTile;
  using Key = typename KeyOf<Traits>::type;

 public:
  /// Whether rows are multiplied as a power of two of what they are.
  static constexpr bool has_factors = !is_same<Key, typename Config::Element>;

  /// Takes the Q at the shared address `tile`, which the others are given again: it would take a register.
  __device__ __forceinline__ void take(unsigned tile) {
    if constexpr (Traits::q_in_registers) {
#pragma unroll
      for (int step = 0; step < Traits::head_dim_steps; ++step) load_step(registers_[step], tile, step);
    }
  }

  /// The same where it becomes numbers of another type, in its place, too. The warpgroup meets at `barrier`. Leaves what
  /// products with each row of the thread are to be multiplied by.
  __device__ __forceinline__ void take(unsigned tile, int barrier, float (&factors)[2]) {
    unsigned registers[Traits::head_dim_steps][4];
#pragma unroll
    for (int step = 0; step < Traits::head_dim_steps; ++step) load_step(registers[step], tile, step);
#pragma unroll
    for (int half = 0; half < 2; ++half) factors[half] = row_to_fp16(registers, half);
#pragma unroll
    for (int step = 0; step < Traits::head_dim_steps; ++step) {
      stmatrix_x4(step_address(tile, step), registers[step]);
      if constexpr (Traits::q_in_registers) {
#pragma unroll
        for (int i = 0; i < 4; ++i) registers_[step][i] = registers[step][i];
      }
    }
    fence_proxy_async_shared();
    if constexpr (!Traits::q_in_registers) bar_sync(barrier, warpgroup_size);
  }

  /// S = Q Kᵀ, as one group.
  __device__ __forceinline__ void multiply_qk(typename Traits::Scores& scores, unsigned q_tile,
                                              unsigned k_tile) const {
    const unsigned k = lower_word(K::along_columns(k_tile, 0, 0));
    wgmma_fence();
    if constexpr (Traits::q_in_registers) {
      Config::template wgmma_qk<K>(scores.registers[0], registers_, k);
    } else {
      Config::template wgmma_qk<Q, K>(scores.registers[0], lower_word(Q::along_columns(q_tile, 0, 0)), k);
    }
    wgmma_commit_group();
  }

  /// The same by one warp for its own rows, at once, in half the speed, and without the other warps.
  __device__ __forceinline__ void multiply_qk_by_warp(typename Traits::Scores& scores, unsigned q_tile,
                                                      unsigned k_tile) const {
    const int lane = lane_id();
    scores.clear();
#pragma unroll 1
    for (int step = 0; step < Traits::head_dim_steps; ++step) {
      unsigned q[4];
      load_step(q, q_tile, step);
#pragma unroll
      for (int n = 0; n < Traits::Scores::column_blocks; n += 2) {
        unsigned k[4];  // two steps of 8 elements of 8 keys, the same of the next 8 keys
        const int key = n * 8 + lane / 16 * 8 + lane % 8;
        ldmatrix_x4(k, K::chunk_address(k_tile, key, 2 * step + lane / 8 % 2));
        mma_m16n8k16<Key>(scores.registers[0][n], q, k[0], k[1]);
        mma_m16n8k16<Key>(scores.registers[0][n + 1], q, k[2], k[3]);
      }
    }
  }

  /// After the wait for `multiply_qk`.
  __device__ __forceinline__ void hold() {
    if constexpr (Traits::q_in_registers) wgmma_hold(registers_);
  }

 private:
  // The warp's rows of 16 columns.
  __device__ __forceinline__ void load_step(unsigned (&q)[4], unsigned tile, int step) const {
    ldmatrix_x4(q, step_address(tile, step));
  }
  static __device__ __forceinline__ unsigned step_address(unsigned tile, int step) {
    const int lane = lane_id();
    const int row = threadIdx.x % warpgroup_size / warp_size * 16 + lane % 16;
    return Q::chunk_address(tile, row, 2 * step + lane / 16);
  }

  unsigned registers_[Traits::q_in_registers ? Traits::head_dim_steps : 1][4];
};

}  // namespace jit
