// The two wgmma products of a consumer warpgroup: S = Q Kᵀ and O += P V. Traits are a kernel family's: the operand
// types Key (of Q and K) and Weight (of P and V), and whether V has columns of ones.
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

  /// Packs P; of 16-bit P only the scores that `kept` keeps.
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

  /// Packs 8-bit P of one k-step, except for the words that `interpolated` has. Returns the packed words.
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

  /// O += P V, as one wgmma group; `lower` omits the upper half of the keys. With `sums_by_products` V has columns of
  /// ones, whose products are added to `sums`.
  template <class Sums>
  JIT_DEVICE void multiply_pv(typename Traits::Output& output, Sums& sums, unsigned v_tile,
                              bool lower) const {
    using V = typename Traits::VTile;
    constexpr bool sums_along_columns = is_fp8<typename Traits::Weight>;
    const unsigned v =
        lower_word(sums_along_columns ? V::along_columns(v_tile, 0, 0) : V::along_rows(v_tile, 0));
    // Both branches contain fence and commit: ptxas serializes a group that begins before a branch.
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

  /// Keeps P in its registers until P V has ended. Called after the wait for `multiply_pv`.
  JIT_DEVICE void hold() { wgmma_hold(registers_); }

 private:
  // Holds O: after a branch, the compiler would move it to its registers behind the fence.
  template <class Sums>
  static JIT_DEVICE void fence_before_pv(typename Traits::Output& output, Sums& sums) {
    wgmma_hold(output.registers[0]);
    if constexpr (Traits::sums_by_products) wgmma_hold(sums);
    wgmma_fence();
  }

  // Never read. Without these words the compiler schedules 16-bit kernels of forward_wgmma differently from the
  // measured ones.
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
  /// Whether rows are converted to fp16, each times a power of two.
  static constexpr bool has_factors = !is_same<Key, typename Config::Element>;

  /// Converts Q at shared address `tile` to fp16 in place; the warpgroup synchronizes at `barrier`. Returns the factors
  /// of products with the thread's rows.
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

  /// S by one warp for its own rows, by mma.sync: at half the speed, but without the other warps.
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

  unsigned spare_[4];  // never read, as Probabilities::spare_
};

}  // namespace jit
