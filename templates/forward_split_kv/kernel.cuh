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
  __device__ __forceinline__ PartNote* parts() const {
    return reinterpret_cast<PartNote*>(bytes + layout.parts);
  }
  __device__ __forceinline__ StepNote& note(int step) const {
    return reinterpret_cast<StepNote*>(bytes + layout.steps)[place(step)];
  }
  __device__ __forceinline__ int* pages(int step) const {
    return reinterpret_cast<int*>(bytes + layout.pages) + place(step) * Config::tile_kv;
  }
  __device__ __forceinline__ StepList<Config>& steps() const {
    static_assert(sizeof(StepList<Config>) <= step_list_bytes, "a StepList has outgrown its place");
    return *reinterpret_cast<StepList<Config>*>(bytes + layout.step_list);
  }
  __device__ __forceinline__ unsigned* ticket() const {
    return reinterpret_cast<unsigned*>(bytes + layout.ticket);
  }

 private:
  static __device__ __forceinline__ int place(int step) { return step % KernelTraits<Config>::known_steps; }
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

/// Where the row of a key, or value, of a step begins; null where there is none.
template <class Config>
struct KvRows {
  using Element = typename Config::Element;
  const AttentionParams& params;
  const PartNote& part;
  int k_begin;
  const int* pages;  ///< of the tile's rows
  const Element* data;
  const TensorStrides& strides;

  __device__ __forceinline__ const Element* operator()(int row) const {
    const int key = k_begin + row;
    if (key >= part.seqlen_kv) return nullptr;
    const int page = KernelTraits<Config>::has_pages ? pages[row] : 0;
    const long long offset = VariableSequences<Config>(params).kv_offset(strides, part.batch, part.kv_head,
                                                                         part.kv_begin + key, page);
    return offset < 0 ? nullptr : data + offset;
  }
};

/// The same of the packed rows of queries.
template <class Config>
struct QueryRows {
  using Element = typename Config::Element;
  const AttentionParams& params;
  const PartNote& part;

  __device__ __forceinline__ const Element* operator()(int tile_row) const {
    const int row = part.row_begin + tile_row;
    if (row >= part.seqlen_q * Config::gqa_ratio) return nullptr;
    const PackedRow<Config> place(part.kv_head, row);
    return static_cast<const Element*>(params.q) +
           VariableSequences<Config>::query_offset(params.q_strides, part.batch, place.head,
                                                   part.q_begin + place.query);
  }
};

/// Starts the loads of a step, and closes their group.
template <class Config>
__device__ __forceinline__ void load_step(const AttentionParams& params, const Smem<Config>& smem, int step) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  const StepNote note = smem.note(step);
  const unsigned stage = smem_address(smem.stage(step));
  if (note.flags & step_has_tile) {
    const PartNote& part = smem.parts()[note.part];
    const auto rows = [&](const void* data, const TensorStrides& strides) -> KvRows<Config> {
      return {params, part, note.k_begin, smem.pages(step), static_cast<const Element*>(data), strides};
    };
    if (note.flags & step_begins) {
      copy_rows<typename Traits::QTile, Config::head_dim, Traits::threads, Config::alignment>(
          stage, QueryRows<Config>{params, part});
    }
    copy_rows<typename Traits::KTile, Config::head_dim, Traits::threads, Config::alignment>(
        stage + Traits::layout.k, rows(params.k, params.k_strides));
    copy_rows<typename Traits::VTile, Config::head_dim_v, Traits::threads, Config::alignment>(
        stage + Traits::layout.v, rows(params.v, params.v_strides));
  }
  cp_async_commit_group();
}

/// The pages of a step's rows, a thread for each of some, in two parts: they are on their way between them.
template <class Config>
class PageLoader {
  using Traits = KernelTraits<Config>;
  static constexpr int rows_per_thread = Traits::has_pages ? (Config::tile_kv + Traits::threads - 1) / Traits::threads : 0;

 public:
  __device__ __forceinline__ void ask(const AttentionParams& params, const Smem<Config>& smem, int step) {
    const StepNote note = smem.note(step);
    const PartNote& part = smem.parts()[note.part];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int key = note.k_begin + row(i);
      pages_[i] = -1;
      if ((note.flags & step_has_tile) != 0 && row(i) < Config::tile_kv && key < part.seqlen_kv)
        pages_[i] = VariableSequences<Config>(params).page(part.batch, part.kv_begin + key);
    }
  }
  __device__ __forceinline__ void put(const Smem<Config>& smem, int step) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      if (row(i) < Config::tile_kv) smem.pages(step)[row(i)] = pages_[i];
    }
  }

 private:
  static __device__ __forceinline__ int row(int i) { return threadIdx.x + i * Traits::threads; }

  int pages_[rows_per_thread + 1];
};

template <class Config>
__device__ __forceinline__ void attention_forward(const AttentionParams& params, const SplitParams& split) {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  constexpr int loads_ahead = Config::stages - 1, pages_ahead = Config::stages;
  extern __shared__ __align__(128) unsigned char bytes[];
  const Smem<Config> smem{bytes};
  const int row_warp = warp_id() % Config::row_warps, key_warp = warp_id() / Config::row_warps;

  if (warp_id() == 0) {
    StepList<Config> steps{};
    steps.work.begin(params);
    if (lane_id() == 0) smem.steps() = steps;
    __syncwarp();
  }
  QueryFragments<Config> q;
  typename Traits::Output output;
  SoftmaxState<Traits::Output::rows> state;
  const float scale_log2 = exponent_scale<typename Config::Score>(params.softmax_scale);

  // Before step 0 the same is done, as far as there is something to do: code that is there once is fetched once.
#pragma unroll 1
  for (int step = -Traits::steps_ahead;; ++step) {
    PageLoader<Config> pages;
    if (step >= 0) cp_async_wait_group<loads_ahead - 1>();
    __syncthreads();
    if (step + loads_ahead >= 0 && step > -Traits::steps_ahead) load_step(params, smem, step + loads_ahead);
    const bool has_pages_ahead = Traits::has_pages && step + pages_ahead >= 0 && step > -Traits::steps_ahead;
    if (has_pages_ahead) pages.ask(params, smem, step + pages_ahead);
    if (warp_id() == 0) {
      next_step(params, smem.steps(), smem.note(step + Traits::steps_ahead), smem.parts());
    }

    StepNote note{};
    if (step >= 0) note = smem.note(step);
    const PartNote& part = smem.parts()[note.part];
    unsigned char* const stage = smem.stage(maximum(step, 0));
    if (note.flags & step_begins) {
      output.clear();
      state = {};
    }
    if (note.flags & step_has_tile) {
      if (note.flags & step_begins) q.load(smem_address(stage), row_warp);
      const int first_key = key_warp * Traits::warp_keys;
      typename Traits::Scores scores;
      multiply_qk<Element, typename Traits::KTile, LdmatrixWidth::four>(
          scores, q, smem_address(stage) + Traits::layout.k + first_key * Traits::KTile::row_bytes);
      apply_row_functors<Config>(scores, params, part,
                                 {.row = part.row_begin + row_warp * rows_per_warp,
                                  .key = note.k_begin + first_key,
                                  .is_partial = (note.flags & step_is_partial) != 0});
      online_softmax<Config::rescale>(scores, output, state, scale_log2);
      multiply_pv<Element, typename Traits::VTile, LdmatrixWidth::four>(
          output, scores, smem_address(stage) + Traits::layout.v + first_key * Traits::VTile::row_bytes);
    }
    if (has_pages_ahead) pages.put(smem, step + pages_ahead);
    if (note.flags & step_ends)
      finish_part<Config>(params, split, part, output, state, scale_log2, stage, smem.ticket());
    if (note.flags & step_is_end) break;
  }
}

}  // namespace jit::forward_split_kv
