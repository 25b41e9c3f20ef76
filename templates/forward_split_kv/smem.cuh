// A block's shared memory by name.
#pragma once

#include "base/prelude.cuh"
#include "forward_split_kv/smem_layout.cuh"
#include "forward_split_kv/step_list.cuh"
#include "forward_split_kv/traits.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

/// The block's shared memory.
template <class Config>
struct Smem {
  static constexpr SmemLayout layout = KernelTraits<Config>::layout;
  unsigned char* bytes;

  __device__ __forceinline__ unsigned char* stage(int step) const {
    return bytes + step % Config::stages * layout.stage_bytes;
  }
  __device__ __forceinline__ Info<Config>* splits() const {
    return reinterpret_cast<Info<Config>*>(bytes + layout.splits);
  }
  __device__ __forceinline__ StepInfo& info(int step) const {
    return reinterpret_cast<StepInfo*>(bytes + layout.steps)[place(step)];
  }
  __device__ __forceinline__ int* pages(int step) const {
    return reinterpret_cast<int*>(bytes + layout.pages) + place(step) * Config::tile_kv;
  }
  __device__ __forceinline__ StepList<Config>& steps() const {
    static_assert(sizeof(StepList<Config>) <= step_list_bytes, "a StepList has outgrown its place");
    return *reinterpret_cast<StepList<Config>*>(bytes + layout.step_list);
  }
  /// By a whole warp.
  __device__ __forceinline__ void clear_steps() const {
    static_assert(step_list_bytes == warp_size * sizeof(int), "a word for each lane");
    reinterpret_cast<int*>(bytes + layout.step_list)[lane_id()] = 0;
  }

 private:
  static __device__ __forceinline__ int place(int step) { return step % KernelTraits<Config>::known_steps; }
};

}  // namespace jit::forward_split_kv
