// What keys of 8 bits are multiplied by where each, or each block, has a scale of its own, copied beside tiles of keys.
#pragma once

#include "base/descale_params.cuh"
#include "base/prelude.cuh"
#include "forward_mma_sync/traits.cuh"
#include "ptx/cp_async.cuh"
#include "steps/block_factors.cuh"

namespace jit::forward_mma_sync {

/// Keys without scales of their own.
template <class Config, bool has_each = has_row_scales<Config>>
struct KeyScalesCopy {
  __device__ __forceinline__ KeyScalesCopy(const AttentionParams&, int /*batch*/, int /*kv_head*/,
                                           int /*seqlen_kv*/) {}
  /// Starts the copy of the scales of a tile's keys, from `first_key` on, to a shared address. By the whole block.
  __device__ __forceinline__ void load(unsigned /*target*/, int /*first_key*/) const {}
};

template <class Config>
struct KeyScalesCopy<Config, true> {
  __device__ __forceinline__ KeyScalesCopy(const AttentionParams& params, int batch, int kv_head,
                                           int seqlen_kv)
      : of_head_(params.descale.k + batch * params.descale.k_strides.batch +
                 kv_head * params.descale.k_strides.head),
        stride_(params.descale.k_strides.seq),
        seqlen_kv_(seqlen_kv) {}

  __device__ __forceinline__ void load(unsigned target, int first_key) const {
    constexpr int threads = KernelTraits<Config>::threads;
    constexpr int keys = has_block_scales<Config> ? keys_of_factor(Config::tile_kv) : 1;  // of a scale
    constexpr int count = Config::tile_kv / keys;
#pragma unroll
    for (int i = 0; i < count; i += threads) {
      const int place = i + static_cast<int>(threadIdx.x);
      if (count % threads != 0 && place >= count) break;
      const int key = first_key + place * keys;  // mutate: OneScaleATile
      // mutate: TokensOfTheFirstTile
      cp_async_zfill<4>(target + place * 4, of_head_ + key / rows_of_scale<Config> * stride_,
                        key < seqlen_kv_);
    }
  }

 private:
  const float* of_head_;
  long long stride_;
  int seqlen_kv_;
};

}  // namespace jit::forward_mma_sync
