#include "machine/grid_order.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "machine/warp.h"

namespace jit::emulator {

bool GridOrder::has_numbers_for(std::uint64_t clusters) const {
  return clusters < std::numeric_limits<std::uint32_t>::max() - end_;
}

void GridOrder::begin(std::string kernel, std::uint64_t clusters) {
  std::uint32_t waits_from = end_;
  if (!grids_.empty()) {
    const Grid& last = grids_.back();
    // Waiting for a grid includes the grids that it has waited for.
    waits_from = waits_ ? last.waits_from : last.number;
    // The next grid begins after every block has triggered it, thus after the last one.
    if (next_begins_behind_) {
      const std::uint32_t first = last.waits_from, end = last.number;
      std::erase_if(grids_, [=](const Grid& grid) { return first <= grid.number && grid.number < end; });
    }
  }
  VectorClock ended;
  ended.raise(0, all_lanes, 1);
  Grid grid{std::move(kernel), end_, end_ + 1 + static_cast<std::uint32_t>(clusters), waits_from, {}};
  grid.waited.learn(grid.number, std::move(ended));
  end_ = grid.end;
  grids_.push_back(std::move(grid));
  waits_ = next_begins_behind_ = false;
}

bool GridOrder::has_ended(std::uint32_t cluster, const GridClock& known) const {
  const auto is_of = [&](const Grid& grid) { return grid.number < cluster && cluster < grid.end; };
  if (std::none_of(grids_.begin(), grids_.end(), is_of)) return true;
  return std::any_of(grids_.begin(), grids_.end(), [&](const Grid& grid) {
    return cluster < grid.number && cluster >= grid.waits_from && known.of(grid.number);
  });
}

const std::string& GridOrder::kernel_of(std::uint32_t cluster) const {
  return std::find_if(grids_.rbegin(), grids_.rend(), [&](const Grid& grid) { return grid.number < cluster; })
      ->kernel;
}

void GridOrder::wait(Warp& warp) {
  waits_ = warp.block.waits_for_grids = true;
  if (depends()) warp.knowledge.acquire(warp.exec, Knowledge{{}, {}, grids_.back().waited, {}});
}

void GridOrder::let_next_begin(Warp& warp) {
  if (std::exchange(warp.block.lets_next_grid_begin, true) || !depends()) return;
  if (warp.knowledge.common(warp.exec).other_clusters.of(grids_.back().number)) next_begins_behind_ = true;
}

void GridOrder::end(const Block& block) {
  if (block.waits_for_grids && !block.lets_next_grid_begin) next_begins_behind_ = true;
}

}  // namespace jit::emulator
