// Attention forward for sequences of any lengths, with their keys split over blocks: decoding, verifying, chunks of
// prefill, one call for all of them. cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80 on.
//
// A tile of rows holds the queries of all heads that share a KV head. Of a tile of keys each of key_warps warps has its
// own keys, and a softmax of its own over these; what warps and blocks have come to is merged in the end (results.cuh).
// Blocks stay, and take pieces of equal length of one line of work (scheduling/key_shares.cuh). The first warp looks
// ahead for all and leaves notes (step_list.cuh); loads run through a ring of stages, across units:
//
//     wait for tile n ─ barrier ─ load tile n + stages − 1 ─ S = Q Kᵀ ─ mask, softmax ─ O += P V ─ [merge, store]
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/masked_rows.cuh"
#include "forward_split_kv/results.cuh"
#include "forward_split_kv/split_params.cuh"
#include "forward_split_kv/step_list.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/softmax.cuh"
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
  __device__ __forceinline__ StepNote& note(int step) const {
    return reinterpret_cast<StepNote*>(bytes + layout.notes)[step % known_steps(Config::stages)];
  }
  __device__ __forceinline__ RowOffsets* rows(int step) const {
    return reinterpret_cast<RowOffsets*>(bytes + layout.row_offsets) +
           step % known_tiles(Config::stages) * Config::tile_kv;
  }
  __device__ __forceinline__ StepList<Config>& steps() const {
    static_assert(sizeof(StepList<Config>) <= step_list_bytes, "a StepList has outgrown its place");
    return *reinterpret_cast<StepList<Config>*>(bytes + layout.step_list);
  }
  __device__ __forceinline__ unsigned* ticket() const {
    return reinterpret_cast<unsigned*>(bytes + layout.ticket);
  }
};

/// Q of one warp as A fragments.
template <class Config>
struct QueryFragments {
  using Traits = KernelTraits<Config>;
  unsigned registers[Traits::head_dim_steps][4];

  __device__ __forceinline__ void load(unsigned tile, int row_warp) {
    const unsigned address =
        tile + Traits::QTile::offset(row_warp * rows_per_warp + lane_id() % 16, lane_id() / 16);
#pragma unroll
    for (int step = 0; step < Traits::head_dim_steps; ++step)
      ldmatrix_x4(registers[step], Traits::QTile::advance(address, 0, 2 * step));
  }

  __device__ __forceinline__ void get(unsigned (&a)[1][4], int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[0][i] = registers[step][i];
  }
};

/// Starts the loads of a step, and closes their group.
template <class Config>
__device__ __forceinline__ void load_step(const AttentionParams& params, const Smem<Config>& smem, int step) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  const StepNote& note = smem.note(step);
  const unsigned flags = note.flags, stage = smem_address(smem.stage(step));
  if (flags & step_has_tile) {
    const RowOffsets* const rows = smem.rows(step);
    const auto* const k = static_cast<const Element*>(params.k);
    const auto* const v = static_cast<const Element*>(params.v);
    copy_rows<typename Traits::KTile, Config::head_dim, Traits::threads, Config::alignment>(
        stage + Smem<Config>::layout.k, [&](int row) { return rows[row].k < 0 ? nullptr : k + rows[row].k; });
    copy_rows<typename Traits::VTile, Config::head_dim_v, Traits::threads, Config::alignment>(
        stage + Smem<Config>::layout.v, [&](int row) { return rows[row].v < 0 ? nullptr : v + rows[row].v; });
    if (flags & step_begins) {
      const int last_row = note.seqlen_q * Config::gqa_ratio;
      const auto* const q = static_cast<const Element*>(params.q);
      copy_rows<typename Traits::QTile, Config::head_dim, Traits::threads, Config::alignment>(
          stage, [&](int row) -> const Element* {
            const PackedRow<Config> place(note.kv_head, note.row_begin + row);
            if (note.row_begin + row >= last_row) return nullptr;
            return q + VariableSequences<Config>::query_offset(params.q_strides, note.batch, place.head,
                                                               note.q_begin + place.query);
          });
    }
  }
  cp_async_commit_group();
}

template <class Config>
__device__ __forceinline__ void attention_forward(const AttentionParams& params, const SplitParams& split) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  constexpr int ahead = Config::stages - 1;
  constexpr int rows_per_thread = (Config::tile_kv + Traits::threads - 1) / Traits::threads;
  extern __shared__ __align__(128) unsigned char bytes[];
  const Smem<Config> smem{bytes};
  const int row_warp = warp_id() % Config::row_warps, key_warp = warp_id() / Config::row_warps;

  if (warp_id() == 0) {
    StepList<Config> steps{};
    steps.begin(params);
    if (lane_id() == 0) smem.steps() = steps;
    __syncwarp();
#pragma unroll 1
    for (int step = 0; step <= Config::stages; ++step) advance(smem.steps(), params, smem.note(step));
  }
  __syncthreads();
#pragma unroll 4
  for (int i = threadIdx.x; i < Config::stages * Config::tile_kv; i += Traits::threads) {
    const int step = i / Config::tile_kv, row = i % Config::tile_kv;
    smem.rows(step)[row] =
        row_offsets<Config>(params, smem.note(step), row, ask_for_page<Config>(params, smem.note(step), row));
  }
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < ahead; ++step) load_step(params, smem, step);

  QueryFragments<Config> q;
  typename Traits::Output output;
  SoftmaxState<Traits::Output::rows> state;
  const float scale_log2 = exponent_scale<typename Config::Score>(params.softmax_scale);

#pragma unroll 1
  for (int step = 0;; ++step) {
    cp_async_wait_group<ahead - 1>();
    __syncthreads();
    const StepNote& note = smem.note(step);
    const unsigned flags = note.flags;
    if (flags & step_is_end) break;
    load_step(params, smem, step + ahead);
    const StepNote& note_ahead = smem.note(step + Config::stages);
    int pages[rows_per_thread];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i)
      pages[i] = ask_for_page<Config>(params, note_ahead, threadIdx.x + i * Traits::threads);
    if (warp_id() == 0) advance(smem.steps(), params, smem.note(step + Config::stages + 1));

    unsigned char* const stage = smem.stage(step);
    if (flags & step_begins) {
      output.clear();
      state = {};
    }
    if (flags & step_has_tile) {
      if (flags & step_begins) q.load(smem_address(stage), row_warp);
      const int first_key = key_warp * Traits::warp_keys;
      typename Traits::Scores scores;
      multiply_qk<Element, typename Traits::KTile, LdmatrixWidth::four>(
          scores, q, smem_address(stage) + Traits::layout.k + first_key * Traits::KTile::row_bytes);
      apply_row_functors<Config>(scores, params, note,
                                 {.row = note.row_begin + row_warp * rows_per_warp,
                                  .key = note.k_begin + first_key,
                                  .is_partial = (flags & step_is_partial) != 0});
      online_softmax<Config::rescale>(scores, output, state, scale_log2);
      multiply_pv<Element, typename Traits::VTile, LdmatrixWidth::four>(
          output, scores, smem_address(stage) + Traits::layout.v + first_key * Traits::VTile::row_bytes);
    }
    RowOffsets* const rows_ahead = smem.rows(step + Config::stages);
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int row = threadIdx.x + i * Traits::threads;
      if (row < Config::tile_kv) rows_ahead[row] = row_offsets<Config>(params, note_ahead, row, pages[i]);
    }
    if (flags & step_ends)
      finish_part<Config>(params, split, note, output, state, scale_log2, stage, smem.ticket());
  }
}

}  // namespace jit::forward_split_kv
