#include "operations/tcgen05/tensor_warp.h"

#include <algorithm>
#include <utility>

#include "operations/tcgen05/access.h"
#include "operations/tcgen05/state.h"

namespace jit::emulator {
namespace {

// Adds an agent to the cluster, followed by one for what fences publish about it.
Agent add_tensor_agent(Cluster& cluster) {
  const Agent agent = cluster.add_agent();
  cluster.add_agent();
  cluster.tensor_agents.push_back(agent);
  return agent;
}

}  // namespace

TensorWarp::TensorWarp(Warp& warp)
    : loads_(add_tensor_agent(warp.block.cluster)),
      stores_(add_tensor_agent(warp.block.cluster)),
      owner_(warp.launch().kernel.slots, 0),
      views_{View{all_lanes, {}}} {}

TensorWarp& TensorWarp::of(Warp& warp) {
  if (!warp.watch) warp.watch = std::make_unique<TensorWarp>(warp);
  return static_cast<TensorWarp&>(*warp.watch);
}

bool TensorWarp::is_strict(const Warp& warp) { return warp.launch().options.level == Level::strict; }

template <class F>
void TensorWarp::change(std::uint32_t lanes, F f) {
  for (std::size_t i = 0, count = views_.size(); i < count; ++i) {
    const std::uint32_t changed = views_[i].lanes & lanes;
    if (changed == 0) continue;
    if (changed != views_[i].lanes) {
      View part = views_[i];
      views_[i].lanes &= ~changed;
      part.lanes = changed;
      f(part);
      views_.push_back(std::move(part));
    } else {
      f(views_[i]);
    }
  }
}

const VectorClock& TensorWarp::ordered(Warp& warp, std::uint32_t lanes) {
  if (!is_strict(warp)) return warp.knowledge.common(lanes).past;
  const VectorClock* first = nullptr;
  for (const View& view : views_) {
    if ((view.lanes & lanes) == 0) continue;
    if (!first) {
      first = &view.ordered;
      continue;
    }
    common_ = VectorClock::meet(*first, view.ordered);
    first = &common_;
  }
  return *first;
}

TensorAccess TensorWarp::load_access(Warp& warp) {
  return {warp,
          warp.pc,
          -1,
          loads_,
          loads_issued_ + 1,
          ordered(warp, warp.exec),
          warp.knowledge.common(warp.exec).past};
}

TensorAccess TensorWarp::store_access(Warp& warp) {
  // A load has ended for its own warp once the warp has read a result register, regardless of fences.
  const VectorClock& before = ordered(warp, warp.exec);
  if (is_strict(warp)) {
    VectorClock own = before;
    own.raise(loads_, all_lanes, loads_over_);
    common_ = std::move(own);
  }
  return {warp,
          warp.pc,
          -1,
          stores_,
          stores_issued_ + 1,
          is_strict(warp) ? common_ : before,
          warp.knowledge.common(warp.exec).past};
}

TensorAccess TensorWarp::dealloc_access(Warp& warp) {
  const VectorClock& past = warp.knowledge.common(warp.exec).past;
  return {warp, warp.pc, -1, stores_, stores_issued_ + 1, past, past};
}

TensorWarp::Products& TensorWarp::products(Warp& warp, int lane) {
  Products& products = products_[static_cast<std::size_t>(lane)];
  if (products.agent == 0) products.agent = add_tensor_agent(warp.block.cluster);
  return products;
}

TensorAccess TensorWarp::product_access(Warp& warp, int lane) {
  const Products& own = products(warp, lane);
  return {warp,
          warp.pc,
          lane,
          own.agent,
          own.issued,
          ordered(warp, 1u << lane),
          warp.knowledge.of(lane).known.past};
}

void TensorWarp::issue_load(Warp& warp, const TensorAccessInstruction& instruction, TensorPlace place) {
  const TensorAccess access = load_access(warp);
  instruction.for_each_region(
      place, [&](const TensorRegion& region) { tensor_unit(warp.block).memory.note_read(access, region); });
  ++loads_issued_;
  pending_.push_back({&instruction, place, loads_issued_});
  instruction.for_each_result([&](Slot slot) {
    owner_[slot] = loads_issued_;
    std::fill_n(warp.r32(slot), warp_lanes, ~0u);
  });
}

void TensorWarp::end_load(Warp& warp, Load& load) {
  load.is_over = true;
  load.instruction->deliver(warp, load.place);
  load.instruction->for_each_result([&](Slot slot) {
    if (owner_[slot] == load.time) owner_[slot] = 0;
  });
  while (!pending_.empty() && pending_.front().is_over) {
    loads_over_ = pending_.front().time;
    pending_.pop_front();
  }
  if (!is_strict(warp)) warp.knowledge.acquire(all_lanes, loads_, all_lanes, loads_over_);
}

void TensorWarp::wait_for_loads(Warp& warp) {
  while (!pending_.empty()) end_load(warp, pending_.front());
  loads_over_ = loads_issued_;
  warp.knowledge.acquire(all_lanes, loads_, all_lanes, loads_over_);
  change(all_lanes, [&](View& view) { view.ordered.raise(loads_, all_lanes, loads_over_); });
}

void TensorWarp::issue_store(Warp& warp, const TensorAccessInstruction& instruction, TensorPlace place) {
  const TensorAccess access = store_access(warp);
  instruction.for_each_region(
      place, [&](const TensorRegion& region) { tensor_unit(warp.block).memory.begin_write(access, region); });
  ++stores_issued_;
  stored_.push_back({&instruction, place, instruction.take(warp)});
}

void TensorWarp::land_stores(Warp& warp) {
  TensorMemory& memory = tensor_unit(warp.block).memory;
  for (const Store& store : stored_) {
    store.instruction->put(memory, store.place, store.values);
    store.instruction->for_each_region(store.place, [&](const TensorRegion& region) { memory.land(region); });
  }
  stored_.clear();
}

void TensorWarp::wait_for_stores(Warp& warp) {
  land_stores(warp);
  warp.knowledge.acquire(all_lanes, stores_, all_lanes, stores_issued_);
  change(all_lanes, [&](View& view) { view.ordered.raise(stores_, all_lanes, stores_issued_); });
}

void TensorWarp::fence_before(Warp& warp) {
  if (!is_strict(warp)) return;
  for (const View& view : views_) {
    const std::uint32_t lanes = view.lanes & warp.exec;
    if (lanes == 0) continue;
    for (const Agent agent : warp.block.cluster.tensor_agents) {
      const std::uint32_t time = view.ordered.at(agent);
      if (time != 0) warp.knowledge.acquire(lanes, agent + 1, all_lanes, time);
    }
  }
}

void TensorWarp::fence_after(Warp& warp) {
  if (!is_strict(warp)) return;
  std::uint32_t left = warp.exec;
  while (left != 0) {
    const LaneKnowledge::View& known = warp.knowledge.of(std::countr_zero(left));
    const std::uint32_t lanes = known.lanes & left;
    left &= ~lanes;
    change(lanes, [&](View& view) {
      for (const Agent agent : warp.block.cluster.tensor_agents) {
        const std::uint32_t time = known.known.past.at(agent + 1);
        if (time != 0) view.ordered.raise(agent, all_lanes, time);
      }
    });
  }
}

void TensorWarp::watch(Warp& warp, const InstructionInfo& info) {
  if (pending_.empty()) return;
  const auto end = [&](Slot slot) {
    if (owner_[slot] == 0) return;
    const auto load = std::find_if(pending_.begin(), pending_.end(),
                                   [&](const Load& one) { return one.time == owner_[slot]; });
    end_load(warp, *load);
  };
  for (const Slot slot : info.reads) end(slot);
  for (const Slot slot : info.writes) end(slot);
}

void TensorWarp::finish(Warp& warp) { land_stores(warp); }

}  // namespace jit::emulator
