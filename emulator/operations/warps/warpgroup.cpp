#include "operations/warps/warpgroup.h"

#include <algorithm>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

// A warp so far ahead is in a loop that the others never enter.
constexpr std::size_t most_steps = 1 << 16;

}  // namespace

bool RegisterPool::is_over(std::uint64_t token) const {
  return static_cast<std::uint64_t>(std::max(block_.free_registers, 0)) >= token;
}

std::string RegisterPool::describe(std::uint64_t token) const {
  return fmt::format("{} registers of the block's pool, which has {}", token, block_.free_registers);
}

Warpgroup::Warpgroup(Warp& warp)
    : block_(warp.block), first_warp_(warp.id / warpgroup_warps * warpgroup_warps), pool_(warp.block) {
  const auto& shape = warp.launch().shape.block;
  const unsigned threads = shape[0] * shape[1] * shape[2];
  const unsigned needed = static_cast<unsigned>(first_warp_ + warpgroup_warps) * warp_lanes;
  if (threads < needed) {
    warp.stop(FindingKind::illegal_instruction, -1,
              fmt::format("it takes a warpgroup of 128 threads; warp {} is in one of {}, as the block has {}",
                          warp.id, threads - static_cast<unsigned>(first_warp_) * warp_lanes, threads));
  }
}

Warpgroup& Warpgroup::of(Warp& warp) {
  if (!warp.group) {
    const auto group = std::make_shared<Warpgroup>(warp);
    const auto first = static_cast<std::size_t>(warp.id / warpgroup_warps * warpgroup_warps);
    for (std::size_t i = first; i < first + warpgroup_warps; ++i) warp.block.warps[i]->group = group;
  }
  return *warp.group;
}

std::uint64_t Warpgroup::execute(Warp& warp, const Operands& operands) {
  if (!warp.whole()) {
    warp.report(FindingKind::illegal_instruction, -1,
                fmt::format("all 32 threads of a warp must execute it, only lanes {:#010x} do", warp.exec));
  }
  std::uint64_t& executed = executed_[member(warp)];
  if (differs_) return ++executed;
  const std::uint64_t index = executed++ - begin_;
  if (index == steps_.size()) {
    if (steps_.size() == most_steps) {
      warp.stop(FindingKind::barrier_divergence, -1,
                fmt::format("it has executed {} instructions of its warpgroup that another warp has not",
                            steps_.size()));
    }
    steps_.push_back({warp.pc, warp.id, operands});
    for (int i = 0; i < warpgroup_warps && !differs_; ++i) {
      const Warp& other = *block_.warps[static_cast<std::size_t>(first_warp_ + i)];
      if (other.alive == 0) report_missing(warp, other);
    }
    return executed;
  }
  const Step& step = steps_[index];
  if (step.pc != warp.pc) {
    differs_ = true;
    const Kernel& kernel = warp.launch().kernel;
    warp.report(
        FindingKind::barrier_divergence, -1,
        fmt::format("the four warps of a warpgroup must execute it together; warp {} executed {} at {} "
                    "instead",
                    step.warp, kernel.info[step.pc].name, place_of(kernel, step.pc)));
  } else if (step.operands != operands) {
    warp.report(FindingKind::bad_descriptor, -1,
                fmt::format("descriptors must be the same in the four warps of a warpgroup: {:#x} and {:#x} "
                            "here, {:#x} and {:#x} in warp {} (A, B)",
                            operands.a, operands.b, step.operands.a, step.operands.b, step.warp));
  }
  const std::uint64_t by_all = *std::min_element(executed_.begin(), executed_.end());
  for (; begin_ < by_all; ++begin_) steps_.pop_front();
  return executed;
}

void Warpgroup::exit(const Warp& warp) {
  for (int i = 0; i < warpgroup_warps && !differs_; ++i) {
    const Warp& other = *block_.warps[static_cast<std::size_t>(first_warp_ + i)];
    const std::uint64_t own = executed_[member(warp)], count = executed_[member(other)];
    if (count > own) report_missing(warp, warp);
    if (count < own && other.alive == 0) report_missing(warp, other);
  }
}

void Warpgroup::report_missing(const Warp& warp, const Warp& exited) {
  differs_ = true;
  const Step& missed = steps_[executed_[member(exited)] - begin_];
  warp.launch().report_at(
      missed.pc, FindingKind::barrier_divergence, warp, -1,
      fmt::format("the four warps of a warpgroup must execute {} together; warp {} exits without it",
                  warp.launch().kernel.info[missed.pc].name, exited.id));
}

bool Warpgroup::is_over(std::uint64_t token) const {
  return *std::min_element(executed_.begin(), executed_.end()) >= token;
}

std::string Warpgroup::describe(std::uint64_t token) const {
  std::string missing;
  for (int i = 0; i < warpgroup_warps; ++i) {
    if (executed_[static_cast<std::size_t>(i)] >= token) continue;
    missing += fmt::format("{}{}", missing.empty() ? "warp " : ", ", first_warp_ + i);
  }
  return fmt::format("wgmma operations that {} of its warpgroup has not issued", missing);
}

}  // namespace jit::emulator
