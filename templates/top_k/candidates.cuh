// Candidates: the scores of a row that are at least a bound, in shared memory, in any order. The bound comes from a sample of
// the row, so that the row is read once. Where the sample was no good the row is read again, and the answer is the same.
#pragma once

#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "ptx/cluster.cuh"
#include "tiles/tile_copy.cuh"
#include "top_k/radix_select.cuh"
#include "top_k/row.cuh"

namespace jit {

/// Calls f(is_there, i) for each i below `count`, by whole warps.
template <class F>
JIT_DEVICE void for_each_of_block(int count, const F& f) {
#pragma unroll 4
  for (int first = 0; first < count; first += top_k_threads) {
    const int i = first + static_cast<int>(threadIdx.x);
    f(i < count, i);
  }
}

template <class Config>
class Candidates {
  using Element = typename Config::Element;
  static constexpr int capacity = top_k_capacity(Config::k);
  static constexpr TopKSmem layout = top_k_smem(Config::k);

 public:
  JIT_DEVICE Candidates(const TopKRow<Config>& row, unsigned* smem)
      : row_(row),
        keys_(smem + layout.keys),
        columns_(smem + layout.columns),
        numbers_(smem + layout.numbers),
        smem_(smem) {}

  /// A score that many more than `wanted` free columns of a long row reach, and not many more than there is room for; of a
  /// row that fits, that of every candidate. By the whole block.
  JIT_DEVICE unsigned bound() const {
    const int columns = row_.free_end - row_.free_begin;
    if (columns <= capacity) return no_key + 1;
    const int groups = minimum(capacity, maximum(2048, columns / 32)) / group;
    const int samples = groups * group;
    const long long target = (row_.wanted + capacity) / 2;
    const int rank = maximum(1, static_cast<int>(target * samples / columns));
    for_each_of_block(samples, [&](bool is_there, int i) {
      if (is_there)
        keys_[i] = row_.key(row_.free_begin +
                            static_cast<int>(static_cast<long long>(i / group) * (columns - group) / groups) +
                            i % group);
    });
    const Threshold found = radix_select(
        smem_ + layout.bins, smem_ + layout.sums, numbers_, no_key, 0xffffffffu, rank, [&](const auto& f) {
          for_each_of_block(samples, [&](bool is_there, int i) { f(is_there, is_there ? keys_[i] : 0); });
        });
    return maximum(found.ties == 0 ? found.key + 1 : found.key, no_key + 1);
  }

  /// Collects the free columns of a part of the row whose keys are at least `bound`. By the whole block, behind a barrier;
  /// `count()` and `largest()` are known behind another one.
  JIT_DEVICE void collect(unsigned bound, int begin, int end) {
    constexpr int per_load = 16 / static_cast<int>(sizeof(Element)), loads = 16 / per_load;
    constexpr int step = per_load * loads * warp_size, all = step * (top_k_threads / warp_size);
    // Scores that stand in front of a multiple of 16 bytes, and behind the last whole 16 bytes, come one by one.
    const auto address = reinterpret_cast<unsigned long long>(row_.scores + begin);
    const int front = static_cast<int>((16 - address % 16) % 16 / sizeof(Element));
    const int wide_begin = minimum(begin + front, end);
    const int wide = (end - wide_begin) / per_load;  // loads of 16 bytes
    const int wide_end = wide_begin + wide * per_load;
    if (warp_id() == 0) {
      const int lane = lane_id();
      const bool is_front = lane < wide_begin - begin,
                 is_behind = !is_front && lane >= 16 && lane - 16 < end - wide_end;
      const int column = is_front ? begin + lane : wide_end + lane - 16;
      append(is_front || is_behind ? row_.key(column) >= bound : 0, [&](int) { return column; });
    }
    const bool is_number = bound > nan_key;
    const float least = is_number ? score_of(bound) : 0;
#pragma unroll 1
    for (int first = wide_begin + warp_id() * step; first < wide_end; first += all) {
      alignas(16) Element x[loads][per_load];
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const int column = first + (i * warp_size + lane_id()) * per_load;
        if (column < wide_end)
          *reinterpret_cast<uint4*>(x[i]) = *reinterpret_cast<const uint4*>(row_.scores + column);
      }
      unsigned hits = 0;
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const bool is_there = first + (i * warp_size + lane_id()) * per_load < wide_end;
#pragma unroll
        for (int j = 0; j < per_load; ++j) {
          const float score = is_there ? to_float(x[i][j]) : negative_infinity();
          const bool is_hit = is_number ? score >= least : key_of(score) >= bound;
          hits |= static_cast<unsigned>(is_hit) << (i * per_load + j);
        }
      }
      append(hits, [&](int bit) {
        return first + (bit / per_load * warp_size + lane_id()) * per_load + bit % per_load;
      });
    }
    const unsigned largest = __reduce_max_sync(full_warp, largest_);
    if (lane_id() == 0 && largest != 0) atomicMax(&numbers_[5], largest);
  }

  JIT_DEVICE int count() const { return static_cast<int>(numbers_[4]); }
  JIT_DEVICE unsigned largest() const { return numbers_[5]; }
  /// By the whole block; a barrier follows.
  JIT_DEVICE void clear() const {
    if (threadIdx.x == 0) numbers_[4] = numbers_[5] = 0;
  }

  /// Adds those of the other blocks of the cluster to the first one's, as many as there is room for. By all blocks, behind
  /// `collect`, and in place of a barrier; only the first one has something left to do then.
  JIT_DEVICE void gather() {
    cluster_sync();  // mutate: CandidatesOfOthersReadEarly
    if (cluster_rank() == 0) {
      int all = count();
      unsigned most = largest();
#pragma unroll 1
      for (int rank = 1; rank < Config::cluster; ++rank) {
        const unsigned of_rank = cluster_address(smem_address(smem_), rank);
        const auto load = [&](int word) {
          return load_of_cluster(of_rank + static_cast<unsigned>(word) * 4);
        };
        const int more = static_cast<int>(load(layout.numbers + 4));
        most = maximum(most, load(layout.numbers + 5));
#pragma unroll 4
        for (int i = static_cast<int>(threadIdx.x); i < more && all + i < capacity; i += top_k_threads) {
          keys_[all + i] = load(layout.keys + i);
          columns_[all + i] = load(layout.columns + i);
        }
        all += more;
      }
      __syncthreads();  // mutate: CountOfAllBeforeItIsRead
      if (threadIdx.x == 0) {
        numbers_[4] = static_cast<unsigned>(all);
        numbers_[5] = most;
      }
    }
    cluster_sync();  // mutate: CandidatesGoneBeforeTheyAreRead
  }

  /// Calls f(is_there, key, column) for each, by whole warps.
  template <class F>
  JIT_DEVICE void for_each(int count, const F& f) const {
    for_each_of_block(count, [&](bool is_there, int i) {
      f(is_there, is_there ? keys_[i] : no_key, is_there ? static_cast<int>(columns_[i]) : 0);
    });
  }

  static constexpr int room = capacity;

 private:
  static constexpr int group = 4;  // samples side by side, of a sector

  // Stores the lane's hits, each a bit. By a whole warp. A hit's score is read again, from L1: in registers it would need to
  // be at a place that is known when the kernel is compiled.
  template <class ColumnOf>
  JIT_DEVICE void append(unsigned hits, const ColumnOf& column_of) {
    const int own = __popc(static_cast<int>(hits));
    const int up_to_lane = sum_up_to_lane(own);
    unsigned first = 0;
    if (lane_id() == warp_size - 1 && up_to_lane > 0)
      first = atomicAdd(&numbers_[4], static_cast<unsigned>(up_to_lane));
    unsigned place = __shfl_sync(full_warp, first, warp_size - 1) + static_cast<unsigned>(up_to_lane - own);
    for (; hits != 0; hits &= hits - 1, ++place) {
      if (place >= capacity) break;  // mutate: CandidatesBehindTheirRoom
      const int column = column_of(__ffs(static_cast<int>(hits)) - 1);
      const unsigned key = row_.key(column);
      keys_[place] = key;
      largest_ = maximum(largest_, key);
      columns_[place] = static_cast<unsigned>(column);
    }
  }

  const TopKRow<Config>& row_;
  unsigned* const keys_;
  unsigned* const columns_;
  unsigned* const numbers_;
  unsigned* const smem_;
  unsigned largest_ = 0;
};

}  // namespace jit
