// A pipeline in shared memory with the addresses of rows of keys, from the planner warp to the warps that copy them.
// Walking through the work takes many registers, and so does copying rows; in separate warps, rows are also found while
// others are copied.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/row_quads.cuh"
#include "pipeline/pipeline.cuh"
#include "problem/latent_rows.cuh"
#include "problem/paged_kv.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The rows of a tile. A row's number is page · page_size + row of the page, or the row of its batch entry; −1: it is none.
struct RowPlan {
  int batch;  ///< entry, where keys are dense
  int kv_head;
  bool is_last;  ///< of its split
};

/// One side's place in the pipeline. A Traits is that of a kernel family: its Config, and the layout of shared memory.
template <class Traits>
class RowPlans {
  using Config = typename Traits::Config;
  static constexpr int row_bytes = Config::tile_kv * 4, no_more = -1;

 public:
  JIT_DEVICE explicit RowPlans(unsigned smem) : pipeline_(smem, Traits::layout.plans) {}

  /// Writes a plan, for which lane l says the numbers of the rows l, l + 32, …. By a whole warp, as is what follows.
  JIT_DEVICE void put(const RowPlan& plan, const int (&numbers)[Config::tile_kv / warp_size]) {
    pipeline_.producer_acquire();
#pragma unroll
    for (int i = 0; i < Config::tile_kv / warp_size; ++i)
      store_shared(pipeline_.tile() + (i * warp_size + reread_lane()) * 4, numbers[i]);
    put_header(plan.batch, plan.kv_head, plan.is_last);
  }
  JIT_DEVICE void put_end() {
    pipeline_.producer_acquire();
    put_header(0, 0, no_more);
  }

  /// Waits for the next plan; false when there is none any more.
  JIT_DEVICE bool take(RowPlan& plan) const {
    pipeline_.consumer_wait();  // mutate: PlanTakenBeforeItIsThere
    const unsigned header = pipeline_.tile() + row_bytes;
    plan = {load_shared_by_warp(header), load_shared_by_warp(header + 4), false};
    const int flags = load_shared_by_warp(header + 8);
    plan.is_last = flags != 0;
    return flags != no_more;
  }
  /// The number of a row.
  JIT_DEVICE int number(int row) const { return load_shared(pipeline_.tile() + row * 4); }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

 private:
  JIT_DEVICE void put_header(int batch, int kv_head, int flags) {
    const unsigned header = pipeline_.tile() + row_bytes;
    if (lane_id() == 0) {
      store_shared(header, batch);
      store_shared(header + 4, kv_head);
      store_shared(header + 8, flags);
    }
    pipeline_.producer_commit();
    pipeline_.advance();
  }

  Pipeline<stages_plans, plan_bytes(Config::tile_kv)> pipeline_;
};

/// First element of a row; null for one that is none.
template <class Config>
JIT_DEVICE const RowElement<Config>* row_start(const AttentionParams& params, const RowPlan& plan,
                                               int number) {
  if (number < 0) return nullptr;
  constexpr int page_size = maximum(1, Config::page_size);
  const RowPlace place = PagedKv<Config>::has_pages
                             ? RowPlace{number % page_size, plan.kv_head, number / page_size}
                             : RowPlace{number, plan.kv_head, plan.batch};
  return static_cast<const RowElement<Config>*>(params.k) + PagedKv<Config>::offset(params.k_strides, place);
}

}  // namespace jit
