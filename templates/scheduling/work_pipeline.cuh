// Broadcasts the next work tile to the warps of a persistent block. A kernel family provides Traits: its Config, the
// type Work of work tiles, `has_lengths`, and the layout of shared memory.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduling/tile_scheduler.cuh"
#include "scheduling/tile_sequences.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Writes a work tile at a shared address. By one thread.
JIT_DEVICE void store_work(unsigned place, const WorkTile& work) {
  store_shared(place, work.batch);
  store_shared(place + 4, work.head);
  store_shared(place + 8, work.q_begin);
}
JIT_DEVICE void store_work(unsigned place, const SequenceTile& work) {
  store_work(place, static_cast<const WorkTile&>(work));
  store_shared(place + 12, work.q.begin);
  store_shared(place + 16, work.kv.begin);
  store_shared(place + 20, work.q.length);
  store_shared(place + 24, work.kv.length);  // mutate: LengthsAreNotPassedOn
}

/// Reads a work tile that store_work() has written. By a whole warp.
JIT_DEVICE void load_work(unsigned place, WorkTile& work) {
  work.batch = load_shared_by_warp(place);
  work.head = load_shared_by_warp(place + 4);
  work.q_begin = load_shared_by_warp(place + 8);
}
JIT_DEVICE void load_work(unsigned place, SequenceTile& work) {
  load_work(place, static_cast<WorkTile&>(work));
  work.q.begin = load_shared_by_warp(place + 12);
  work.kv.begin = load_shared_by_warp(place + 16);
  work.q.length = load_shared_by_warp(place + 20);
  work.kv.length = load_shared_by_warp(place + 24);
}

/// The functors' context of `work`; reads the lengths of the work tile at shared address `place` again.
JIT_DEVICE BlockContext context_at(unsigned place, const AttentionParams& params, const WorkTile& work) {
  return {work.batch,
          work.head,
          params.heads_q,
          load_shared_by_warp(place + 20),
          load_shared_by_warp(place + 24),
          load_shared_by_warp(place + 12),
          params.tensors};
}

/// A warp's state in the work pipeline. Its producer is the key producer or, if sequences may differ in length, the
/// query producer.
template <class Traits>
class WorkPipeline {
  using Config = typename Traits::Config;
  using Work = typename Traits::Work;

 public:
  JIT_DEVICE WorkPipeline(const AttentionParams& params, unsigned smem)
      : params_(params), pipeline_(smem, Traits::layout.work) {}

  /// Waits for the next work tile, or no_work.
  JIT_DEVICE Work take() {
    pipeline_.consumer_wait();
    return tile();
  }

  /// The current work tile, until it is released.
  JIT_DEVICE Work tile() const {
    Work work;
    load_work(pipeline_.tile(), work);
    return work;
  }

  /// The functors' context of `work`, the current work tile.
  JIT_DEVICE BlockContext context(const WorkTile& work) const {
    if constexpr (Traits::has_lengths) {
      return context_at(pipeline_.tile(), params_, work);
    } else {
      return context_of<Config>(params_, work);
    }
  }

  JIT_DEVICE void release() {
    is_taken_ = true;
    pipeline_.consumer_release();  // mutate: WorkIsNeverTaken
    pipeline_.advance();
  }

  /// Writes and commits a work tile: the producer's side.
  JIT_DEVICE void put(const Work& tile) {
    pipeline_.producer_acquire();
    if (lane_id() == 0) store_work(pipeline_.tile(), tile);  // mutate: WorkTileOfAnotherLaneThanItsArrival
    pipeline_.producer_commit();
    pipeline_.advance();
  }

 private:
  const AttentionParams& params_;
  Pipeline<stages_work, sizeof(Work)> pipeline_;
  // Never read. Without it, the compiler schedules kernels with dropout differently from the measured ones.
  bool is_taken_ = false;
};

// The key producer's source of work tiles.

/// The key producer runs the tile scheduler itself, and broadcasts its work tiles.
template <class Traits>
class ScheduledWork {
 public:
  JIT_DEVICE ScheduledWork(const AttentionParams& params, const TileSchedule& schedule, unsigned smem)
      : scheduler_(params, schedule), pipeline_(params, smem), next_(scheduler_.tile()) {
    pipeline_.put(next_);
  }

  /// Requests the next work tile, once per work tile; `answer` waits for it.
  JIT_DEVICE void ask() { scheduler_.ask(); }
  JIT_DEVICE void answer() {
    scheduler_.answer();
    next_ = scheduler_.tile();
    pipeline_.put(next_);
  }
  /// Returns the first work tile, later the last one requested; no_work if none is left.
  JIT_DEVICE WorkTile take() { return next_; }

 private:
  TileScheduler<typename Traits::Config> scheduler_;
  WorkPipeline<Traits> pipeline_;
  WorkTile next_;
};

/// The barrier at which the key producer asks the query producer for the next work tile.
template <class Traits>
class WantedWork {
 public:
  JIT_DEVICE explicit WantedWork(unsigned smem) : barrier_(smem + Traits::layout.work_wanted) {}
  JIT_DEVICE void ask() const {
    if (lane_id() == 0) mbarrier_arrive(barrier_);
  }
  /// Waits for the next request.
  JIT_DEVICE void wait() {
    mbarrier_wait_parity(barrier_, phase_);
    phase_ ^= 1;
  }

 private:
  unsigned barrier_;
  unsigned phase_ = 0;
};

/// The query producer runs the tile scheduler of varying lengths, which takes longer than keys can wait.
template <class Traits>
class QueryProducerWork {
 public:
  JIT_DEVICE QueryProducerWork(const AttentionParams& params, const TileSchedule&, unsigned smem)
      : wanted_(smem), pipeline_(params, smem) {}

  JIT_DEVICE void ask() { wanted_.ask(); }
  JIT_DEVICE void answer() {}
  JIT_DEVICE SequenceTile take() {
    const SequenceTile work = pipeline_.take();
    pipeline_.release();
    return work;
  }

 private:
  WantedWork<Traits> wanted_;
  WorkPipeline<Traits> pipeline_;
};

template <class Traits>
using NextWork =
    typename ChosenType<Traits::has_lengths, QueryProducerWork<Traits>, ScheduledWork<Traits>>::type;

}  // namespace jit
