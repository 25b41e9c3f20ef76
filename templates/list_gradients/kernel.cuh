// Gradients of attention to lists of keys, with cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// Lists differ from query to query, so that no tile of keys has queries that all see it. A list's pass reads its queries once
// and leaves, for each of its keys, what it adds to that key's gradient. Which lists a key is in, transpose_lists tells; a last
// pass sums what they have left, in their order. Equal inputs give bitwise identical results.
#pragma once

#include "list_gradients/key_sums.cuh"
#include "list_gradients/list_pass.cuh"
#include "list_gradients/params.cuh"
#include "pipeline/dependent_launch.cuh"

namespace jit {

template <class Config>
JIT_DEVICE void list_gradients(const ListGradientsParams& params) {
  extern __shared__ __align__(128) unsigned char smem[];
  wait_on_dependent_grids();  // mutate: GradientsOfListsThatAreNotThere
  switch (params.step) {
    case ListGradientStep::lists:
      ListPass<Config>(params, smem_address(smem)).run();
      break;
    case ListGradientStep::keys:
      sum_keys<Config>(params);
      break;
    case ListGradientStep::sinks:
      sum_sinks<Config>(params, reinterpret_cast<float*>(smem));
      break;
  }
  launch_dependent_grids();
}

}  // namespace jit
