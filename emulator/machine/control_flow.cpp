#include "machine/control_flow.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

namespace jit::emulator {
namespace {

// Block numbers are ints, since −1 means none.
template <class T>
T& at(std::vector<T>& list, int index) {
  return list[static_cast<std::size_t>(index)];
}
template <class T>
const T& at(const std::vector<T>& list, int index) {
  return list[static_cast<std::size_t>(index)];
}

}  // namespace

FlowGraph flow_graph(const std::vector<InstructionInfo>& info) {
  const auto count = static_cast<std::uint32_t>(info.size());
  std::vector<bool> begins(count + 1, false);
  if (count > 0) begins[0] = true;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto& successors = info[i].successors;
    if (successors.size() == 1 && successors[0] == i + 1) continue;
    begins[i + 1] = true;
    for (const std::uint32_t target : successors) begins[target] = true;
  }
  FlowGraph graph;
  graph.block_of.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (begins[i]) graph.blocks.push_back({.begin = i, .end = i, .successors = {}, .predecessors = {}});
    graph.block_of[i] = static_cast<int>(graph.blocks.size()) - 1;
    graph.blocks.back().end = i + 1;
  }
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    for (const std::uint32_t target : info[graph.blocks[b].end - 1].successors) {
      if (target >= count) continue;
      const int to = graph.block_of[target];
      graph.blocks[b].successors.push_back(to);
      at(graph.blocks, to).predecessors.push_back(static_cast<int>(b));
    }
  }
  return graph;
}

std::vector<int> immediate_postdominators(const FlowGraph& graph) {
  // The exit has number `count`; blocks without successors lead to it.
  const auto count = static_cast<int>(graph.blocks.size());
  std::vector<std::vector<int>> successors(static_cast<std::size_t>(count));
  std::vector<std::vector<int>> predecessors(static_cast<std::size_t>(count) + 1);
  for (int b = 0; b < count; ++b) {
    auto& list = at(successors, b);
    list = at(graph.blocks, b).successors;
    if (list.empty()) list.push_back(count);
    for (const int to : list) at(predecessors, to).push_back(b);
  }
  // Postorder numbers of a walk from the exit over reversed edges.
  std::vector<int> number(static_cast<std::size_t>(count) + 1, -1);
  std::vector<int> order;
  std::vector<std::pair<int, std::size_t>> stack{{count, 0}};
  std::vector<char> visited(static_cast<std::size_t>(count) + 1, 0);
  at(visited, count) = 1;
  while (!stack.empty()) {
    auto& [block, next] = stack.back();
    const auto& list = at(predecessors, block);
    if (next == list.size()) {
      at(number, block) = static_cast<int>(order.size());
      order.push_back(block);
      stack.pop_back();
      continue;
    }
    const int to = list[next++];
    if (!at(visited, to)) {
      at(visited, to) = 1;
      stack.push_back({to, 0});
    }
  }
  std::vector<int> idom(static_cast<std::size_t>(count) + 1, -1);
  at(idom, count) = count;
  const auto intersect = [&](int a, int b) {
    while (a != b) {
      while (at(number, a) < at(number, b)) a = at(idom, a);
      while (at(number, b) < at(number, a)) b = at(idom, b);
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (*it == count) continue;
      int found = -1;
      for (const int to : at(successors, *it)) {
        if (at(idom, to) < 0) continue;
        found = found < 0 ? to : intersect(to, found);
      }
      if (found != at(idom, *it)) {
        at(idom, *it) = found;
        changed = true;
      }
    }
  }
  idom.pop_back();
  for (int& dominator : idom) {
    if (dominator == count) dominator = -1;
  }
  return idom;
}

Liveness::Liveness(const FlowGraph& graph, const std::vector<InstructionInfo>& info, std::uint32_t slots)
    : graph_(graph), info_(info) {
  const std::size_t words = (slots + 63) / 64;
  alive_out_.assign(graph.blocks.size(), std::vector<std::uint64_t>(words, 0));
  std::vector<std::vector<std::uint64_t>> alive_in = alive_out_;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t b = graph.blocks.size(); b-- > 0;) {
      std::vector<std::uint64_t>& out = alive_out_[b];
      for (const int to : graph.blocks[b].successors) {
        const auto& in = alive_in[static_cast<std::size_t>(to)];
        for (std::size_t w = 0; w < words; ++w) out[w] |= in[w];
      }
      std::vector<std::uint64_t> alive = out;
      for (std::uint32_t i = graph.blocks[b].end; i-- > graph.blocks[b].begin;) step_back(i, alive);
      if (alive != alive_in[b]) {
        alive_in[b] = std::move(alive);
        changed = true;
      }
    }
  }
}

void Liveness::step_back(std::uint32_t instruction, std::vector<std::uint64_t>& alive) const {
  const InstructionInfo& info = info_[instruction];
  // Under a guard, disabled lanes keep the old value.
  if (!info.guarded) {
    for (const Slot slot : info.writes) alive[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
  }
  for (const Slot slot : info.reads) alive[slot / 64] |= std::uint64_t{1} << slot % 64;
}

RegisterAssignment assign_registers(const FlowGraph& graph, const Liveness& liveness,
                                    const std::vector<InstructionInfo>& info, std::uint32_t slots,
                                    const std::vector<bool>& is_wide) {
  // Linear scan over live intervals, each from the first to the last position where a unit is named or live
  // (Poletto and Sarkar, 1999). Coarse, but a warp's registers only need to fit a cache.
  constexpr std::uint32_t nowhere = 0xffffffffu;
  std::vector<std::uint32_t> first(slots, nowhere), last(slots, 0);
  const auto touch = [&](Slot slot, std::uint32_t at) {
    first[slot] = std::min(first[slot], at);
    last[slot] = std::max(last[slot], at);
  };
  // An asynchronous operation uses its registers beyond their last mention, until a wait for it.
  std::vector<bool> pinned(slots, false);
  for (const InstructionInfo& instruction : info) {
    if (instruction.kind != InstructionClass::wgmma) continue;
    for (const Slot slot : instruction.reads) pinned[slot] = true;
    for (const Slot slot : instruction.writes) pinned[slot] = true;
  }
  const auto is_pinned = [&](Slot slot) { return pinned[slot] || (is_wide[slot] && pinned[slot + 1]); };
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    liveness.walk_back(static_cast<int>(b), [&](std::uint32_t i, const std::vector<std::uint64_t>& alive) {
      for (const Slot slot : info[i].reads) touch(slot, i);
      for (const Slot slot : info[i].writes) touch(slot, i);
      if (i + 1 != graph.blocks[b].end && i != graph.blocks[b].begin) return;
      for (std::size_t w = 0; w < alive.size(); ++w) {
        for (std::uint64_t bits = alive[w]; bits != 0; bits &= bits - 1) {
          touch(static_cast<Slot>(w * 64) + static_cast<Slot>(std::countr_zero(bits)), i);
        }
      }
    });
  }
  std::vector<Slot> by_first;
  RegisterAssignment assignment;
  assignment.place.assign(slots, 0);
  for (Slot slot = 0; slot < slots; slot += is_wide[slot] ? 2 : 1) {
    if (is_wide[slot]) {
      first[slot] = std::min(first[slot], first[slot + 1]);
      last[slot] = std::max(last[slot], last[slot + 1]);
    }
    if (first[slot] == nowhere) continue;
    if (is_pinned(slot)) {
      first[slot] = 0;
      last[slot] = nowhere;
    }
    by_first.push_back(slot);
  }
  std::stable_sort(by_first.begin(), by_first.end(), [&](Slot a, Slot b) { return first[a] < first[b]; });
  std::vector<Slot> free_narrow, free_wide;
  using Ending = std::pair<std::uint32_t, Slot>;
  std::vector<Ending> active;  // heap, earliest end on top
  for (const Slot slot : by_first) {
    while (!active.empty() && active.front().first < first[slot]) {
      const Slot ended = active.front().second;
      (is_wide[ended] ? free_wide : free_narrow).push_back(assignment.place[ended]);
      std::pop_heap(active.begin(), active.end(), std::greater<>());
      active.pop_back();
    }
    std::vector<Slot>& free = is_wide[slot] ? free_wide : free_narrow;
    if (free.empty()) {
      assignment.place[slot] = assignment.slots;
      assignment.slots += is_wide[slot] ? 2 : 1;
    } else {
      assignment.place[slot] = free.back();
      free.pop_back();
    }
    if (is_wide[slot]) assignment.place[slot + 1] = assignment.place[slot] + 1;
    active.push_back({last[slot], slot});
    std::push_heap(active.begin(), active.end(), std::greater<>());
  }
  return assignment;
}

}  // namespace jit::emulator
