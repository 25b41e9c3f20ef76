// Unions of the lists of neighboring queries: ascending, with a bit for each query that lists an entry.
//
// A block makes one list. Of a window of entries each has its bits in shared memory, which all lists are read to set; then
// warps count the entries with bits, each in its part of the window, and write them behind those before. A window holds
// 65,536 entries of up to 8 queries, so that lists of longer sequences are read again.
#pragma once

#include "base/prelude.cuh"
#include "key_union/params.cuh"
#include "pipeline/dependent_launch.cuh"

namespace jit {

template <class Config>
class KeyUnion {
  static constexpr int queries = Config::queries;
  static constexpr int bits = 8 * member_bytes(queries);  // of an entry
  static constexpr int per_word = 32 / bits, words = key_union_bytes / 4, window = words * per_word;
  static constexpr int warps = key_union_threads / warp_size, warp_words = words / warps;
  static_assert(words % key_union_threads == 0, "threads have as many words each");

 public:
  JIT_DEVICE KeyUnion(const KeyUnionParams& params, unsigned* window_words, int* warp_counts)
      : params_(params), words_(window_words), counts_(warp_counts) {}

  JIT_DEVICE void run() {
    const long long list = static_cast<long long>(blockIdx.x);
    int written = 0;
#pragma unroll 1
    for (int first = 0; first < params_.limit; first += minimum(window, params_.limit - first)) {
      for (int i = thread(); i < words; i += key_union_threads) words_[i] = 0;
      __syncthreads();  // mutate: BitsSetBeforeTheyAreCleared
      set_bits(first);
      __syncthreads();  // mutate: EntriesCountedBeforeTheirBits
      written = write_entries(list * params_.room, first, written);
    }
    if (thread() == 0) params_.list_counts[list] = written;
  }

 private:
  JIT_DEVICE void set_bits(int first) {
    const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(params_.heads));
    const int row = static_cast<int>(blockIdx.x / static_cast<unsigned>(params_.heads)) * queries;
#pragma unroll 1
    for (int query = 0; query < minimum(queries, params_.rows - row); ++query) {
      const int* const entries =
          params_.indices + (row + query) * params_.index_row + head * params_.index_head;
      int count = params_.entries;
      if (params_.counts != nullptr)
        count = minimum(count, params_.counts[(row + query) * params_.count_row + head * params_.count_head]);
#pragma unroll 1
      for (int i = thread(); i < count; i += key_union_threads) {
        const int entry = entries[i];
        if (entry < first || entry >= params_.limit || entry - first >= window) continue;
        const int at = entry - first;
        atomicOr(words_ + at / per_word, 1u << (at % per_word * bits + query));
      }
    }
  }

  // Writes the entries of a window that has some, behind `written` others; returns how many there are then.
  JIT_DEVICE int write_entries(long long place, int first, int written) {
    const int warp = warp_id(), begin = warp * warp_words;
    int own = 0;
    for (int i = begin + lane_id(); i < begin + warp_words; i += warp_size) own += entries_of(words_[i]);
    own = __reduce_add_sync(full_warp, own);
    if (lane_id() == 0) counts_[warp] = own;
    __syncthreads();  // mutate: PlacesBeforeCounts
    int before = 0, all = 0;
    for (int i = 0; i < warps; ++i) {
      if (i < warp) before += counts_[i];
      all += counts_[i];
    }
    int at = written + before;
#pragma unroll 1
    for (int i = begin + lane_id(); i < begin + warp_words; i += warp_size) {
      const unsigned word = words_[i];
      const int count = entries_of(word);
      int up_to = count;
#pragma unroll
      for (int step = 1; step < warp_size; step *= 2) {
        const int other = __shfl_up_sync(full_warp, up_to, step);
        if (lane_id() >= step) up_to += other;
      }
      int own_place = at + up_to - count;
#pragma unroll
      for (int part = 0; part < per_word; ++part) {
        const unsigned members = word >> part * bits & bits_of_entry();
        if (members == 0) continue;
        params_.lists[place + own_place] = first + i * per_word + part;
        params_.members[place + own_place] = members;
        ++own_place;
      }
      at += __shfl_sync(full_warp, up_to, warp_size - 1);
    }
    __syncthreads();  // mutate: NextWindowClearedUnderThisOne
    return written + all;
  }

  static JIT_DEVICE constexpr unsigned bits_of_entry() { return bits == 32 ? ~0u : (1u << bits % 32) - 1; }
  static JIT_DEVICE int entries_of(unsigned word) {
    int count = 0;
#pragma unroll
    for (int part = 0; part < per_word; ++part) count += (word >> part * bits & bits_of_entry()) != 0;
    return count;
  }
  static JIT_DEVICE int thread() { return static_cast<int>(threadIdx.x); }

  const KeyUnionParams& params_;
  unsigned* const words_;
  int* const counts_;
};

template <class Config>
JIT_DEVICE void unite_keys(const KeyUnionParams& params) {
  extern __shared__ __align__(128) unsigned char smem[];
  wait_on_dependent_grids();  // mutate: UnionOfListsThatAreNotThere
  KeyUnion<Config>(params, reinterpret_cast<unsigned*>(smem), reinterpret_cast<int*>(smem + key_union_bytes))
      .run();
  launch_dependent_grids();
}

}  // namespace jit
