#include "machine/worker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "machine/global_races.h"
#include "machine/group_order.h"
#include "machine/launch.h"
#include "machine/residency.h"
#include "machine/warp.h"
#include "operations/tcgen05/allocation.h"

namespace jit::emulator {
namespace {

// Budget after which a cluster yields, since it may be polling for another cluster's write.
constexpr std::uint64_t slice = std::uint64_t{1} << 22;
// When blocks read other blocks' writes, clusters run about so long before the next one begins: on a GPU they
// overlap, and some begin before others end.
constexpr std::uint32_t slices_of_beginners = 12;  // powers of 2

// Whether blocks of the grid may wait for others: the kernel has strong accesses to shared words.
bool asks_other_blocks(const Kernel& kernel) {
  return std::any_of(kernel.info.begin(), kernel.info.end(), [](const InstructionInfo& instruction) {
    return instruction.name.starts_with("ld.relaxed.gpu") || instruction.name.starts_with("ld.acquire.gpu") ||
           instruction.name.starts_with("ld.relaxed.sys") || instruction.name.starts_with("ld.acquire.sys") ||
           instruction.name.starts_with("ld.volatile.global");
  });
}

bool allocates_tensor_memory(const Kernel& kernel) {
  return std::any_of(kernel.info.begin(), kernel.info.end(), [](const InstructionInfo& instruction) {
    return instruction.name.starts_with("tcgen05.alloc");
  });
}

}  // namespace

std::string to_text(const Size3& size) { return fmt::format("({}, {}, {})", size[0], size[1], size[2]); }

Worker::Worker(Launch& launch, Grid& grid, std::size_t index)
    : launch_(launch),
      grid_(grid),
      index_(index),
      counts_(launch.kernel.code.size()),
      begin_together_(asks_other_blocks(launch.kernel)),
      shares_tensor_memory_(launch.options.blocks_per_multiprocessor > 1 &&
                            allocates_tensor_memory(launch.kernel)),
      random_(launch.options.seed + index) {}

void Worker::run() noexcept {
  const DefaultArithmetic arithmetic;
  try {
    while (true) {
      const std::uint64_t changes = launch_.residency->changes();
      const Turn turn = step();
      if (turn == Turn::ended) break;
      if (turn == Turn::only_polls) look_for_deadlock(changes);
    }
  } catch (const LaunchStopped&) {
    launch_.stopped = true;
  } catch (...) {
    launch_.stopped = true;
    failure_ = std::current_exception();
  }
  end();
}

Worker::Turn Worker::take_turn() noexcept {
  const DefaultArithmetic arithmetic;
  try {
    const Turn turn = step();
    if (turn == Turn::ended) end();
    return turn;
  } catch (const LaunchStopped&) {
    launch_.stopped = true;
  } catch (...) {
    launch_.stopped = true;
    failure_ = std::current_exception();
  }
  end();
  return Turn::ended;
}

void Worker::end() {
  launch_.residency->note_end(index_);
  steps_ = steps();
  // Blocks refer to each other's state: they must end before the launch does.
  resident_.clear();
}

std::uint64_t Worker::steps() const {
  std::uint64_t steps = steps_;
  for (const auto& cluster : resident_) steps += cluster->steps;
  return steps;
}

Worker::Turn Worker::step() {
  if (launch_.stopped) throw LaunchStopped();
  const bool has_begun = begin_cluster();
  bool only_poll = !has_begun;
  for (std::size_t i = resident_.size(); i-- > 0;) {
    const bool is_short = launch_.member || (begin_together_ && has_begun) || shares_tensor_memory_;
    if (!resident_[i]->run(is_short ? short_slice() : slice)) {
      only_poll = only_poll && resident_[i]->is_polling_in_vain();
      continue;
    }
    only_poll = false;
    for (const auto& block : resident_[i]->blocks) {
      if (launch_.member) {
        launch_.member->end_of(*block);
      } else if (launch_.races) {
        launch_.races->grids().end(*block);
      }
    }
    steps_ += resident_[i]->steps;
    resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
    launch_.residency->leave();
  }
  if (all_taken_ && resident_.empty()) return Turn::ended;
  return only_poll ? Turn::only_polls : Turn::goes_on;
}

// A random budget of any order of magnitude.
std::uint64_t Worker::short_slice() {
  return 1 + random_.below(std::uint32_t{1} << random_.below(slices_of_beginners));
}

// Assigns the blocks to a multiprocessor with room, when blocks share one.
void Worker::place(Cluster& cluster) {
  if (!shares_tensor_memory_) return;
  const auto most = static_cast<long>(launch_.options.blocks_per_multiprocessor);
  // Use count: one for the worker, and one for each block that runs there.
  auto found = std::find_if(multiprocessors_.begin(), multiprocessors_.end(),
                            [&](const auto& columns) { return columns.front().use_count() <= most; });
  if (found == multiprocessors_.end()) {
    found = multiprocessors_.emplace(found);
    for (std::size_t i = 0; i < cluster.blocks.size(); ++i)
      found->push_back(std::make_shared<TensorColumns>());
  }
  for (const auto& block : cluster.blocks) block->shared_columns = (*found)[block->rank];
}

// Returns false when no cluster is left, or the device is full.
bool Worker::begin_cluster() {
  if (all_taken_ || !launch_.residency->enter()) return false;
  const std::uint64_t number = grid_.take();
  if (number >= grid_.count()) {
    all_taken_ = true;
    launch_.residency->leave();
    return false;
  }
  const std::uint64_t seed = launch_.options.seed * 0x9e3779b97f4a7c15u + number;
  const std::uint64_t first = launch_.member  ? launch_.member->first_cluster()
                              : launch_.races ? launch_.races->grids().first_cluster()
                                              : 0;
  resident_.push_back(
      std::make_unique<Cluster>(launch_, first + number, grid_.first_block(number), seed, counts_));
  place(*resident_.back());
  if (!launch_.member) return true;
  for (const auto& block : resident_.back()->blocks) {
    for (const auto& warp : block->warps)
      warp->knowledge.acquire(all_lanes, Knowledge{{}, {}, launch_.member->before, {}});
  }
  return true;
}

std::string Worker::describe_polling() const {
  constexpr std::size_t told = 2;
  std::string waits;
  for (std::size_t i = 0; i < std::min(told, resident_.size()); ++i)
    waits += resident_[i]->describe_polling();
  return waits;
}

std::string Worker::describe_next() const {
  const std::uint64_t next = grid_.next();
  if (next >= grid_.count()) return "";
  return fmt::format(
      "; block {} has not begun, because the device runs {} blocks of this kernel at once: blocks may "
      "wait only for "
      "blocks of a grid that fits the device",
      to_text(grid_.first_block(next)), launch_.residency->most() * product(launch_.shape.cluster));
}

void Worker::look_for_deadlock(std::uint64_t changes) {
  const auto all = launch_.residency->note_polling(index_, changes, describe_polling());
  if (!all || resident_.empty()) return std::this_thread::yield();
  stop_polling_warp("no block can go on" + *all + describe_next());
}

void Worker::stop_polling_warp(std::string text) {
  if (resident_.empty()) throw LaunchStopped();
  const Warp* first = nullptr;
  for (const auto& block : resident_.front()->blocks) {
    for (const auto& warp : block->warps) {
      if (!first || (warp->is_polling() && !first->is_polling())) first = warp.get();
    }
  }
  launch_.stop(FindingKind::deadlock, *first, -1, std::move(text));
}

void Worker::stop_as_deadlock(std::string text) noexcept {
  try {
    stop_polling_warp(std::move(text));
  } catch (const LaunchStopped&) {
  } catch (...) {
    failure_ = std::current_exception();
  }
  launch_.stopped = true;
  end();
}

}  // namespace jit::emulator
