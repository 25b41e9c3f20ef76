// The two products of a warpgroup that computes by wgmma: S = Q Kᵀ and O += P V. Traits are those of a kernel family:
// they name the elements of Q and keys, Key, and of P and values, Weight, and say whether V has columns of ones behind
// its own.
#pragma once

#include "base/prelude.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/fp8.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "steps/e4m3_weights.cuh"
#include "steps/fp16_rows.cuh"
#include "steps/interpolated_weights.cuh"
#include "steps/no_dropout.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

struct NoSums {};

/// P of one warpgroup as the A operand of P V: packed accumulators of S.
template <class Traits>
class Probabilities {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE explicit Probabilities(int consumer) : spare_{0, consumer} {}

  /// Packs what `kept` keeps of 16-bit P.
  template <class Kept = NoDropout>
  JIT_DEVICE void pack_scores(const typename Traits::Scores& scores, const Kept& kept = {}) {
    using Element = typename Traits::Weight;
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step) {
      unsigned a[4];
      if constexpr (is_fp8<Element>) {
        pack_e4m3_step(scores, a, 0, step);
      } else {
        scores.template pack_step<Element>(a, 0, step);
        drop_step(kept, a, 0, step);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) registers_[step][i] = a[i];
    }
  }

  /// Packs 8-bit P of the columns of one step, but for the words that `interpolated` has. Returns what they
  /// became.
  template <int interpolations>
  JIT_DEVICE const unsigned (&pack_step(const typename Traits::Scores& scores, int step,
                                        const unsigned (&interpolated)[4]))[4] {
    if constexpr (interpolations == 0) {
      pack_e4m3_step(scores, registers_[step], 0, step);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        registers_[step][i] = is_interpolated<interpolations>(i % 2, 2 * step + i / 2)
                                  ? interpolated[i]  // mutate: WordsOfTheOtherRow
                                  : pack_e4m3_word(scores, 0, step, i);
      }
    }
    return registers_[step];
  }

  /// O += P V, as one group; `lower` leaves out the upper half of the keys. Where Traits say `sums_by_products` V has
  /// columns of ones behind its own, whose products are added to `sums`.
  template <class Sums>
  JIT_DEVICE void multiply_pv(typename Traits::Output& output, Sums& sums, unsigned v_tile,
                              bool lower) const {
    using V = typename Traits::VTile;
    constexpr bool sums_along_columns = is_fp8<typename Traits::Weight>;
    const unsigned v =
        lower_word(sums_along_columns ? V::along_columns(v_tile, 0, 0) : V::along_rows(v_tile, 0));
    // Fence and commit stand on both sides: the assembler serializes a group that begins before a branch.
    if constexpr (Traits::has_lower_tiles) {
      if (lower) {
        fence_before_pv(output, sums);
        if constexpr (Traits::sums_by_products) {
          Config::template wgmma_pv_lower<V>(output.registers[0], sums[0], registers_, v);
        } else {
          Config::template wgmma_pv_lower<V>(output.registers[0], registers_, v);
        }
        wgmma_commit_group();
        return;
      }
    }
    fence_before_pv(output, sums);  // mutate: NoFenceBeforeO
    if constexpr (Traits::sums_by_products) {
      Config::template wgmma_pv<V>(output.registers[0], sums[0], registers_, v);
    } else {
      Config::template wgmma_pv<V>(output.registers[0], registers_, v);
    }
    wgmma_commit_group();
  }
  /// P V without sums.
  JIT_DEVICE void multiply_pv(typename Traits::Output& output, unsigned v_tile, bool lower) const {
    NoSums sums;
    multiply_pv(output, sums, v_tile, lower);
  }

  /// After the wait for `multiply_pv`: until then nobody else may have the registers.
  JIT_DEVICE void hold() { wgmma_hold(registers_); }

 private:
  // Behind a branch the compiler would move O to the registers of the product behind the fence.
  template <class Sums>
  static JIT_DEVICE void fence_before_pv(typename Traits::Output& output, Sums& sums) {
    wgmma_hold(output.registers[0]);
    if constexpr (Traits::sums_by_products) wgmma_hold(sums);
    wgmma_fence();
  }

  // Two words that nothing reads. Without them the compiler orders 16-bit kernels of forward_wgmma otherwise than those that
  // were measured.
  int spare_[2];
  unsigned registers_[Traits::key_steps][4];
};

/// Q of one warpgroup as the A operand of Q Kᵀ, in shared memory.
template <class Traits>
class Queries {
  using Config = typename Traits::Config;
  using Q = typename Traits::QTile;
  using K = typename Traits::KTile;
  using Key = typename Traits::Key;

 public:
  /// Whether rows are multiplied as a power of two of what they are.
  static constexpr bool has_factors = !is_same<Key, typename Config::Element>;

  /// Makes numbers of another type of the Q at the shared address `tile`, in its place. The warpgroup meets at `barrier`.
  /// Leaves what products with each row of the thread are to be multiplied by.
  static JIT_DEVICE void convert(unsigned tile, int barrier, float (&factors)[2]) {
    unsigned registers[Traits::head_dim_steps][4];
#pragma unroll
    for (int step = 0; step < Traits::head_dim_steps; ++step) load_step(registers[step], tile, step);
#pragma unroll
    for (int half = 0; half < 2; ++half) factors[half] = row_to_fp16(registers, half);
#pragma unroll
    for (int step = 0; step < Traits::head_dim_steps; ++step)
      stmatrix_x4(step_address(tile, step), registers[step]);
    fence_proxy_async_shared();  // mutate: QueriesOfFp16NotSeen
    bar_sync(barrier, warpgroup_size);
  }

  /// S = Q Kᵀ, as one group.
  JIT_DEVICE void multiply_qk(typename Traits::Scores& scores, unsigned q_tile, unsigned k_tile) const {
    const unsigned k = lower_word(K::along_columns(k_tile, 0, 0));
    wgmma_fence();  // mutate: NoFenceBeforeS
    Config::template wgmma_qk<Q, K>(scores.registers[0], lower_word(Q::along_columns(q_tile, 0, 0)), k);
    wgmma_commit_group();
  }

  /// S by one warp for its own rows, at once, in half the speed, and without the other warps.
  static JIT_DEVICE void multiply_qk_by_warp(typename Traits::Scores& scores, unsigned q_tile,
                                             unsigned k_tile) {
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

 private:
  // The warp's rows of 16 columns.
  static JIT_DEVICE void load_step(unsigned (&q)[4], unsigned tile, int step) {
    ldmatrix_x4(q, step_address(tile, step));
  }
  static JIT_DEVICE unsigned step_address(unsigned tile, int step) {
    const int lane = lane_id();
    const int row = threadIdx.x % warpgroup_size / warp_size * 16 + lane % 16;
    return Q::chunk_address(tile, row, 2 * step + lane / 16);
  }

  unsigned spare_[4];  // which nothing reads, for the same reason as those of Probabilities
};

}  // namespace jit
