// Where the rows of a step's tiles lie in global memory.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "forward_split_kv/smem.cuh"
#include "forward_split_kv/traits.cuh"
#include "problem/variable_sequences.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/work_list.cuh"

namespace jit::forward_split_kv {

/// Where the rows of keys, or values, of a step begin, or their scales lie, of which so many rows share one; null for one that
/// does not exist.
template <class Config, class Element = KvElement<Config>, int rows_together = 1>
struct KvRows {
  const Element* first;  ///< row of the batch entry; of pages, of the first page of all
  TensorStrides strides;
  int count;         ///< rows that there are
  int place;         ///< of the first in its page, plus whole pages
  const int* pages;  ///< of the tile's rows
  int page_count;    ///< that there are

  __device__ __forceinline__ KvRows(const AttentionParams& params, const PartNote& part, int k_begin,
                                    const int* tile_pages, const void* data, const TensorStrides& tensor)
      : strides(tensor),
        count(part.seqlen_kv - k_begin),
        place(part.kv_begin + k_begin),
        pages(tile_pages),
        page_count(params.sequences.pages) {
    first = static_cast<const Element*>(data) + part.kv_head * strides.head;
    if (!KernelTraits<Config>::has_pages) first += part.batch * strides.batch;
  }

  /// Where there are pages.
  __device__ __forceinline__ const Element* operator()(int row) const {
    const int page = pages[minimum(row, Config::tile_kv - 1)];
    const bool exists = row < count && page >= 0 && page < page_count;
    const Element* start =
        first + page * strides.batch + (place + row) % Config::page_size / rows_together * strides.seq;
    return exists ? start : nullptr;
  }
  /// Where there are none.
  __device__ __forceinline__ DenseRows<const Element> dense() const {
    return {first + place * strides.seq, strides.seq};
  }
  /// Where there may be pages.
  __device__ __forceinline__ const Element* at(int row) const {
    if constexpr (KernelTraits<Config>::has_pages) {
      return (*this)(row);
    } else {
      return row < count ? first + (place + row) / rows_together * strides.seq : nullptr;
    }
  }
};

/// The pages of a step's rows, a thread for each of some, in two parts: they are on their way between them.
template <class Config>
class PageLoader {
  using Traits = KernelTraits<Config>;
  static constexpr int rows_per_thread =
      Traits::has_pages ? (Config::tile_kv + Traits::threads - 1) / Traits::threads : 0;

 public:
  __device__ __forceinline__ void ask(const AttentionParams& params, const Smem<Config>& smem, int step) {
    const StepNote note = smem.note(step);
    const Note<Config>& part = smem.parts()[note.part];
    const int keys = (note.flags & step_has_tile) != 0 ? part.seqlen_kv : 0;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int key = note.k_begin + row(i);
      pages_[i] = -1;
      if (row(i) >= Config::tile_kv || key >= keys) continue;
      pages_[i] = VariableSequences<Config>(params).page(part.batch, part.kv_begin + key);
      expect_page<Config>(params, unit_of<Config>(part, Traits::tile_rows), key, 1, pages_[i]);
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

}  // namespace jit::forward_split_kv
