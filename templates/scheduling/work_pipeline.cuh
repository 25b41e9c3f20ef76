// Broadcasts the next tile of queries to the warps of a persistent block. A kernel family provides Traits: its Config, the Work
// that its warps broadcast, whether that has lengths, and the layout of shared memory.
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

/// Reads what `store_work` left. By a whole warp.
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

/// Context of a work tile that has been read, whose lengths are read once more, for the functors.
JIT_DEVICE BlockContext context_at(unsigned place, const AttentionParams& params, const WorkTile& work) {
  return {work.batch,
          work.head,
          params.heads_q,
          load_shared_by_warp(place + 20),
          load_shared_by_warp(place + 24),
          load_shared_by_warp(place + 12),
          params.tensors};
}

/// One warp's place in the pipeline by which the others learn what comes next: from the key producer, or from the
/// query producer where sequences may differ in length.
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

  /// The one that was taken, until it is released.
  JIT_DEVICE Work tile() const {
    Work work;
    load_work(pipeline_.tile(), work);
    return work;
  }

  /// Context of `work`, which is the one that was taken, for the functors.
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

  /// The side of the one who tells.
  JIT_DEVICE void put(const Work& tile) {
    pipeline_.producer_acquire();
    if (lane_id() == 0) store_work(pipeline_.tile(), tile);  // mutate: WorkTileOfAnotherLaneThanItsArrival
    pipeline_.producer_commit();
    pipeline_.advance();
  }

 private:
  const AttentionParams& params_;
  Pipeline<stages_work, sizeof(Work)> pipeline_;
  // Nothing reads it. Without it the compiler orders kernels with dropout otherwise than those that were measured.
  bool is_taken_ = false;
};

// How the key producer learns what comes next.

/// It finds out itself and tells the others.
template <class Traits>
class ScheduledWork {
 public:
  JIT_DEVICE ScheduledWork(const AttentionParams& params, const TileSchedule& schedule, unsigned smem)
      : scheduler_(params, schedule), pipeline_(params, smem), next_(scheduler_.tile()) {
    pipeline_.put(next_);
  }

  /// Once for each work tile that there was: asks for the next one, which `answer` waits for.
  JIT_DEVICE void ask() { scheduler_.ask(); }
  JIT_DEVICE void answer() {
    scheduler_.answer();
    next_ = scheduler_.tile();
    pipeline_.put(next_);
  }
  /// The first one, then the one that was asked for; no_work when none is left.
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
  /// Waits until it is asked for once more.
  JIT_DEVICE void wait() {
    mbarrier_wait_parity(barrier_, round_);
    round_ ^= 1;
  }

 private:
  unsigned barrier_;
  unsigned round_ = 0;
};

/// Where sequences may differ in length it takes longer to find out than keys can wait: the query producer does it.
template <class Traits>
class WorkByQueryProducer {
 public:
  JIT_DEVICE WorkByQueryProducer(const AttentionParams& params, const TileSchedule&, unsigned smem)
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
    typename ChosenType<Traits::has_lengths, WorkByQueryProducer<Traits>, ScheduledWork<Traits>>::type;

}  // namespace jit
