// The schedule of consumers with 64 keys each and a half of the columns of dQ: the products of step n in the order of
// issue. Work below "wait" overlaps with the products above it:
//
//     tensor cores   │ dQ(n−1) │ dP(n)  dV(n)          │ dK(n)   S(n+1)  dQ(n) …
//     consumer       │ P, W(n) │ wait dP ─ dS(n)       │ wait dV, wait S ─ …
//
// Products of scores are issued first whenever possible, because everything else depends on them.
#pragma once

#include "backward_wgmma/products.cuh"

namespace jit::backward_wgmma {

/// Waits for the last dV, behind which `behind` other products were issued, and stores it.
template <int behind, class Config, class LeaveDv>
JIT_DEVICE void finish_dv(GradientProducts<Config>& tile, const LeaveDv& leave_dv) {
  wgmma_wait_group<behind>();  // mutate: DvLeavesUnfinished
  wgmma_hold(tile.p);
  wgmma_hold(tile.dv.registers[0]);
  leave_dv();
}

/// Waits for all remaining products, and releases keys and queries.
template <class Config>
JIT_DEVICE void finish_dk(GradientProducts<Config>& tile, unsigned step) {
  wgmma_wait_group<0>();  // mutate: DqIsNotWaitedFor
  wgmma_hold(tile.ds);
  wgmma_hold(tile.dk.registers[0]);
  tile.pipelines.keys.consumer_release(tile.keys.round);
  tile.pipelines.q.consumer_release(step);  // mutate: TheLastQueriesAreKept
}

/// Finishes dK and a consumer's part of dQ, after the last dS. Returns the first step of the next tile of keys.
template <class Config, class LeaveDv>
JIT_DEVICE unsigned finish_with_dq(GradientProducts<Config>& tile, unsigned step, const LeaveDv& leave_dv) {
  tile.pipelines.arrive_values_empty(tile.keys.round);
  tile.start_dk(step);
  tile.start_dq(step);
  finish_dv<2>(tile, leave_dv);
  finish_dk(tile, step);
  tile.put_dq(step);
  tile.pass_dq(step);
  return uniform(step + 1);
}

/// Sums over all tiles of queries from step `step` on, the first of which has been taken. Calls `leave_dv` when dV is
/// complete. Returns the next step. Comments on waits name completed groups.
template <class Config, class LeaveDv>
JIT_DEVICE unsigned sum_rows(GradientProducts<Config>& tile, unsigned step, const LeaveDv& leave_dv) {
  tile.draw(step);
  tile.ask_mask(step);
  tile.start_scores(step);
  wgmma_wait_group<0>();
  tile.exponentiate(step);
  tile.pack_probabilities(step);
  tile.start_d_scores(step);
  while (true) {
    tile.start_dv(step);
    wgmma_wait_group<1>();  // dP
    tile.put_ds(step);
    tile.pass_ds(step);
    if (tile.is_last()) break;
    tile.start_dk(step);
    wgmma_wait_group<1>();  // dV
    wgmma_hold(tile.p);
    tile.take_queries(step + 1);
    tile.draw(step + 1);
    tile.ask_mask(step + 1);
    tile.start_scores(step + 1);
    tile.start_dq(step);
    wgmma_wait_group<1>();  // dK and S  // mutate: ScoresAreNotWaitedFor
    tile.exponentiate(step + 1);
    wgmma_hold(tile.ds);
    tile.pipelines.q.consumer_release(step);
    tile.pack_probabilities(step + 1);
    wgmma_wait_group<0>();  // dQ
    tile.put_dq(step);
    tile.start_d_scores(step + 1);
    tile.pass_dq(step);
    step = uniform(step + 1);  // else every descriptor would be moved from registers of its own
  }
  return finish_with_dq(tile, step, leave_dv);
}

// The schedule of consumers with 64 keys each, next to a dQ consumer (query_consumer.cuh). Products of the next step
// are issued as soon as registers are free, and the fence after dS follows them. The exponentials of the two consumers
// take turns, so that each computes while the other one's products run:
//
//     tensor cores   │ dV(n)                   │ S(n+1)  dK(n)  dP(n+1)                            │
//     consumer       │ wait dP │ dS(n)         │ fence behind dS │ wait S, its turn │ exp(n+1)     │

/// Gives the first turn to consumer 0: consumer 1 arrives at its barrier before the first step.
template <class Config>
JIT_DEVICE void begin_turns(const GradientProducts<Config>& tile) {
  if (tile.consumer == 1) bar_arrive(KernelTraits<Config>::turn_barriers, 2 * warpgroup_size);
}
template <class Config>
JIT_DEVICE void exponentiate_in_turn(GradientProducts<Config>& tile, unsigned step) {
  constexpr int barriers = KernelTraits<Config>::turn_barriers;
  bar_sync(barriers + tile.consumer, 2 * warpgroup_size);
  tile.exponentiate(step);
  bar_arrive(barriers + 1 - tile.consumer, 2 * warpgroup_size);
}

/// As sum_rows.
template <class Config, class LeaveDv>
JIT_DEVICE unsigned sum_beside_queries(GradientProducts<Config>& tile, unsigned step,
                                       const LeaveDv& leave_dv) {
  if (step == 0) begin_turns(tile);
  tile.load_keys();
  tile.start_scores(step);
  tile.draw(step);
  tile.start_d_scores(step);
  tile.ask_mask(step);
  wgmma_wait_group<1>();  // S
  exponentiate_in_turn(tile, step);
  tile.pack_probabilities(step);
  while (true) {
    tile.start_dv(step);
    wgmma_wait_group<1>();                     // dP  // mutate: DpIsNotWaitedFor
    tile.pipelines.ds.producer_acquire(step);  // mutate: NoWaitForThePlaceOfDs
    tile.put_ds(step);
    if (tile.is_last()) break;
    tile.take_queries(step + 1);
    tile.start_scores(step + 1);
    tile.ask_mask(step + 1);
    tile.draw(step + 1);
    tile.start_dk(step);
    tile.start_d_scores(step + 1);
    tile.pass_ds(step);
    wgmma_wait_group<2>();  // dV, S  // mutate: ScoresBesideQueriesAreNotWaitedFor
    wgmma_hold(tile.p);
    exponentiate_in_turn(tile, step + 1);
    wgmma_wait_group<1>();  // dK  // mutate: DkIsNotWaitedFor
    wgmma_hold(tile.ds);
    tile.pipelines.q.consumer_release(step);
    tile.pack_probabilities(step + 1);
    step = uniform(step + 1);
  }
  tile.pipelines.arrive_values_empty(tile.keys.round);
  tile.start_dk(step);
  tile.pass_ds(step);
  finish_dv<1>(tile, leave_dv);
  finish_dk(tile, step);
  return uniform(step + 1);
}

}  // namespace jit::backward_wgmma
