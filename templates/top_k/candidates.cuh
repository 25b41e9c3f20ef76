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

  /// A score that more than `wanted` free columns of a long row reach, and not more than there is room for; of a row that
  /// fits, that of every candidate. By the whole block.
  JIT_DEVICE unsigned bound() const {
    const int columns = row_.free_end - row_.free_begin;
    if (columns <= capacity) return no_key + 1;
    const int groups = minimum(capacity, maximum(1024, columns / 32)) / group, samples = groups * group;
    for_each_of_block(samples, [&](bool is_there, int i) {
      if (is_there)
        keys_[i] = row_.key(row_.free_begin +
                            static_cast<int>(static_cast<long long>(i / group) * (columns - group) / groups) +
                            i % group);
    });
    const int rank = sample_rank(samples, columns);
    const Threshold found = radix_select(
        smem_ + layout.bins, smem_ + layout.sums, numbers_, no_key, 0xffffffffu, rank,
        [&](const auto& f) {
          for_each_of_block(samples, [&](bool is_there, int i) { f(is_there, is_there ? keys_[i] : 0); });
        },
        rank / 8);
    return maximum(found.ties == 0 ? found.key + 1 : found.key, no_key + 1);
  }

  /// Collects the free columns of a part of the row whose keys are at least `bound`. By the whole block, behind a barrier;
  /// `count()` is known behind another one.
  JIT_DEVICE void collect(unsigned bound, int begin, int end) {
    if (bound > nan_key) {
      collect(begin, end, [least = score_of(bound)](float score) { return score >= least; });
    } else {
      collect(begin, end, [](float score) { return key_of(score) != no_key; });
    }
  }

  /// Reads the keys of the columns that were collected. Each thread, and behind a barrier all know `largest()`.
  JIT_DEVICE void read_keys() {
    unsigned largest = 0;
    for_each_of_block(minimum(count(), capacity), [&](bool is_there, int i) {
      if (!is_there) return;
      const unsigned key = row_.key(static_cast<int>(columns_[i]));
      keys_[i] = key;
      largest = maximum(largest, key);
    });
    largest = __reduce_max_sync(full_warp, largest);
    if (lane_id() == 0 && largest != 0) atomicMax(&numbers_[5], largest);
  }

  JIT_DEVICE int count() const { return static_cast<int>(numbers_[4]); }
  JIT_DEVICE unsigned largest() const { return numbers_[5]; }
  /// By the whole block; a barrier follows.
  JIT_DEVICE void clear() const {
    if (threadIdx.x == 0) numbers_[4] = numbers_[5] = 0;
  }

  /// Adds those of the other blocks of the cluster to the first one's, as many as there is room for. By all blocks, behind
  /// `read_keys`, and in place of a barrier; only the first one has something left to do then.
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

  static constexpr int per_load = 16 / static_cast<int>(sizeof(Element)), loads = 16 / per_load;
  static constexpr int step = per_load * loads * warp_size;  // columns that a warp looks at together
  struct Scores {
    alignas(16) Element x[loads][per_load];
  };

  // The rank of the bound in the sample: by five deviations more than `wanted` columns reach it, or as far as there is room.
  JIT_DEVICE int sample_rank(int samples, int columns) const {
    const float share = static_cast<float>(samples) / static_cast<float>(columns);
    const float least = static_cast<float>(row_.wanted) * share, most = static_cast<float>(capacity) * share;
    const float safe = least + 5 * sqrtf(least) + 13;
    return maximum(1, static_cast<int>(minimum(safe, (least + most) / 2)));
  }

  template <class IsHit>
  JIT_DEVICE void collect(int begin, int end, const IsHit& is_hit) {
    constexpr int all = step * (top_k_threads / warp_size);
    // Scores that stand in front of a multiple of 16 bytes, and behind the last whole 16 bytes, come one by one.
    const auto address = reinterpret_cast<unsigned long long>(row_.scores + begin);
    const int front = static_cast<int>((16 - address % 16) % 16 / sizeof(Element));
    const int wide_begin = minimum(begin + front, end);
    const int wide_end = wide_begin + (end - wide_begin) / per_load * per_load;
    if (warp_id() == 0) {
      const int lane = lane_id();
      const bool is_front = lane < wide_begin - begin,
                 is_behind = !is_front && lane >= 16 && lane - 16 < end - wide_end;
      const int column = is_front ? begin + lane : wide_end + lane - 16;
      append((is_front || is_behind) && is_hit(to_float(row_.scores[column])), [&](int) { return column; });
    }
    // The next scores are on their way while the present ones are looked at.
    int first = wide_begin + warp_id() * step;
    Scores present = load(first, wide_end);
#pragma unroll 1
    for (; first < wide_end; first += all) {
      const Scores next = load(first + all, wide_end);
      unsigned hits = 0;
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const bool is_there = column_of(first, i * per_load) < wide_end;
#pragma unroll
        for (int j = 0; j < per_load; ++j)
          hits |= static_cast<unsigned>(is_there && is_hit(to_float(present.x[i][j]))) << (i * per_load + j);
      }
      append(hits, [&](int bit) { return column_of(first, bit); });
      present = next;
    }
  }
  static JIT_DEVICE int column_of(int first, int bit) {
    return first + (bit / per_load * warp_size + lane_id()) * per_load + bit % per_load;
  }
  JIT_DEVICE Scores load(int first, int end) const {
    Scores scores{};
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int column = column_of(first, i * per_load);
      if (column < end)
        *reinterpret_cast<uint4*>(scores.x[i]) = *reinterpret_cast<const uint4*>(row_.scores + column);
    }
    return scores;
  }

  // Stores the columns of the lane's hits, each a bit. By a whole warp.
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
      columns_[place] = static_cast<unsigned>(column_of(__ffs(static_cast<int>(hits)) - 1));
    }
  }

  const TopKRow<Config>& row_;
  unsigned* const keys_;
  unsigned* const columns_;
  unsigned* const numbers_;
  unsigned* const smem_;
};

}  // namespace jit
