// The parameters of the kernel of key masses by wgmma, and its shared memory, for the host and the device.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "base/params.cuh"
#include "key_mass/params.cuh"
#include "pipeline/smem_allocator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

struct KeyMassMaps {
  TensorMap q;  ///< boxes of mass_step_queries
  TensorMap k;  ///< boxes of mass_key_box
  KeyMassParams of_all;
};

/// A block owns keys of one head, some for each consumer, and all consumers multiply them by the queries of a step.
inline constexpr int mass_consumers = 2;
inline constexpr int mass_consumer_keys = 128;
inline constexpr int mass_block_keys = mass_consumers * mass_consumer_keys;
inline constexpr int mass_step_queries = rows_per_warpgroup;
inline constexpr int mass_threads = (mass_consumers + 1) * 128;

/// Keys that one box brings: those of a consumer, or what lies in one page.
JIT_HOST_DEVICE constexpr int mass_key_box(int page_size) { return box_rows(mass_consumer_keys, page_size); }
/// Whether lanes of a warp have a box each, which begins within a swizzle's pattern.
JIT_HOST_DEVICE constexpr bool has_mass_boxes(int page_size) {
  return mass_key_box(page_size) >= least_box_rows;
}

/// A step: what goes with its queries.
struct MassStep {
  int head;     ///< of queries; negative: there are no more
  int q_begin;  ///< first query
  int partial;  ///< whether some score must be dropped
};

struct KeyMassWgmmaSmem {
  PipelinePlace k;  ///< one stage, which is filled once
  PipelinePlace q;
  int lse;    ///< of the queries of each stage
  int steps;  ///< MassStep of each stage
  int sums;   ///< of each warp, for its warpgroup
  int total;
};

JIT_HOST_DEVICE constexpr KeyMassWgmmaSmem key_mass_wgmma_smem(int head_dim) {
  const int q_bytes = panel_tile_bytes(mass_step_queries, head_dim);
  const int k_bytes = panel_tile_bytes(mass_block_keys, head_dim);
  constexpr int room = 220 * 1024, most_stages = 6;
  const int fit = (room - k_bytes) / q_bytes, stages = fit < most_stages ? fit : most_stages;
  KeyMassWgmmaSmem smem{};
  SmemAllocator allocator;
  smem.k.tiles = allocator.tiles(k_bytes);
  smem.q.tiles = allocator.tiles(stages * q_bytes);
  smem.lse = allocator.words(stages * mass_step_queries * 4);
  smem.steps = allocator.words(stages * static_cast<int>(sizeof(MassStep)));
  smem.sums = allocator.rows(mass_consumers * 4 * mass_consumer_keys * 4);
  allocator.barriers(smem.k, 1);
  allocator.barriers(smem.q, stages);
  smem.total = allocator.total();
  return smem;
}

}  // namespace jit
