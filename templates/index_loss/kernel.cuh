// The loss of an indexer (DeepSeek-V3.2) and its gradients, with cp.async, ldmatrix and mma.sync: runs on every GPU
// from sm_80 on.
//
// A list's pass reads its token once and leaves what it adds to the gradient of each of its keys. Which lists have a
// key, transpose_lists tells; a last pass sums what they have left, in their order. Equal inputs give bitwise
// identical results.
#pragma once

#include "index_loss/list_pass.cuh"
#include "index_loss/params.cuh"
#include "pipeline/dependent_launch.cuh"

namespace jit {

/// A thread sums four columns of the gradient of a key.
template <class Config>
JIT_DEVICE void sum_index_keys(const IndexLossParams& params) {
  using Element = typename Config::Element;
  constexpr int pieces = Config::head_dim / 4;
  const long long own = static_cast<long long>(blockIdx.x) * index_loss_threads + threadIdx.x;
  if (own >= static_cast<long long>(params.keys) * pieces) return;
  const int key = static_cast<int>(own / pieces), column = static_cast<int>(own % pieces) * 4;
  float4* const before = reinterpret_cast<float4*>(params.sums + own * 4);
  float4 sum = params.is_first ? make_float4(0, 0, 0, 0) : *before;  // mutate: IndexSumsOfEarlierListsLeftOut
  const int end = params.starts[key + 1];
#pragma unroll 2
  for (int i = params.starts[key]; i < end; ++i) {
    const float* const part = params.parts + static_cast<long long>(params.places[i]) * Config::head_dim;
    const float4 x = *reinterpret_cast<const float4*>(part + column);
    sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
  }
  if (params.is_last) {
    store_four<chunk_bytes / 2>(static_cast<Element*>(params.dk) + key * params.dk_row + column, sum);
  } else {
    *before = sum;
  }
}

template <class Config>
JIT_DEVICE void index_loss(const IndexLossParams& params) {
  extern __shared__ __align__(128) unsigned char smem[];
  wait_for_grids_before();  // mutate: IndexLossOfListsThatAreNotThere
  if (params.step == IndexLossStep::keys) {
    sum_index_keys<Config>(params);
  } else {
    IndexLossPass<Config>(params, smem_address(smem)).run();
  }
  let_next_grid_start();
}

}  // namespace jit
