#include "machine/block.h"

#include <algorithm>

#include <fmt/format.h>

#include "machine/warp.h"
#include "operations/barriers/barrier.h"
#include "operations/barriers/mbarrier.h"
#include "operations/copies/bulk.h"
#include "operations/copies/cp_async.h"
#include "operations/tcgen05/state.h"
#include "operations/warps/register_watch.h"

namespace jit::emulator {
namespace {

// Instructions of a warp's turn: few, so that warps interleave, and random, so that seeds differ.
constexpr std::uint32_t shortest_slice = 16;
constexpr std::uint32_t slice_spread = 240;
// One warp in every `clusters_alike`-th cluster, a different one each time, is held back for some
// `rounds_behind` rounds.
constexpr std::uint64_t clusters_alike = 2;
constexpr std::uint32_t rounds_behind = 1024;
// A cluster that only polls yields after `rounds_to_poll` rounds; a warp polls in vain after `reads_in_vain`
// equal reads.
constexpr int rounds_to_poll = 4;
constexpr std::uint64_t reads_in_vain = 10000;
// Lower in a group of devices, which detects whether anything has changed.
constexpr std::uint64_t reads_in_vain_of_group = 256;

}  // namespace

Block::Block(Cluster& own_cluster, unsigned own_rank, std::array<unsigned, 3> own_index)
    : cluster(own_cluster),
      rank(own_rank),
      index(own_index),
      shared(cluster.launch,
             cluster.launch.kernel.static_smem_bytes + cluster.launch.shape.dynamic_smem_bytes),
      barriers(std::make_unique<NamedBarriers>(*this)),
      mbarriers(std::make_unique<MbarrierTable>()) {
  const auto& shape = cluster.launch.shape.block;
  const unsigned threads = shape[0] * shape[1] * shape[2];
  for (unsigned first = 0; first < threads; first += warp_lanes) {
    warps.push_back(std::make_unique<Warp>(*this, static_cast<int>(first / warp_lanes)));
  }
}

Block::~Block() = default;

Cluster::Cluster(Launch& own_launch, std::uint64_t own_number, std::array<unsigned, 3> first,
                 std::uint64_t seed, Counts& own_counts)
    : launch(own_launch),
      number(static_cast<std::uint32_t>(own_number)),
      counts(own_counts),
      random(seed),
      barrier(std::make_unique<ClusterBarrier>(*this)),
      shape(own_launch.shape.cluster),
      first_block(first) {
  unsigned rank = 0;
  for (unsigned z = 0; z < shape[2]; ++z) {
    for (unsigned y = 0; y < shape[1]; ++y) {
      for (unsigned x = 0; x < shape[0]; ++x) {
        blocks.push_back(
            std::make_unique<Block>(*this, rank++, std::array{first[0] + x, first[1] + y, first[2] + z}));
      }
    }
  }
  if ((number + launch.options.seed) % clusters_alike != 0) return;
  const std::uint64_t warps = blocks.front()->warps.size();
  const std::uint64_t last = (number + launch.options.seed) / clusters_alike % (blocks.size() * warps);
  blocks[last / warps]->warps[last % warps]->is_held_back = true;
}

Cluster::~Cluster() = default;

const Path* Cluster::waits_outside(const Warp** waiting) const {
  for (const auto& block : blocks) {
    for (const auto& warp : block->warps) {
      for (const Path& path : warp->paths) {
        if (!path.wait || !path.wait.on->may_end_from_outside()) continue;
        if (waiting) *waiting = warp.get();
        return &path;
      }
    }
  }
  return nullptr;
}

bool Cluster::run(std::uint64_t budget) {
  const std::uint64_t end = steps + budget;
  int polling_rounds = 0;
  is_stuck_ = false;
  while (steps < end) {
    if (launch.stopped) throw LaunchStopped();
    if (run_round()) {
      polling_rounds = is_polling_ ? polling_rounds + 1 : 0;
      if (polling_rounds < rounds_to_poll) continue;
      // A polling warp does not delay copies that it does not wait for.
      if (!async.complete_one(random)) return false;
      polling_rounds = 0;
      continue;
    }
    const bool all_ended = std::all_of(blocks.begin(), blocks.end(), [](const auto& block) {
      return std::all_of(block->warps.begin(), block->warps.end(),
                         [](const auto& warp) { return warp->alive == 0; });
    });
    // Pending copies complete when no warp can continue without them.
    if (async.complete_one(random)) continue;
    if (all_ended) return true;
    is_stuck_ = waits_outside() != nullptr;
    if (is_stuck_) return false;
    report_deadlock();
  }
  // Slices may be shorter than so many rounds.
  if (is_polling_in_vain() && async.complete_one(random)) is_polling_ = false;
  return false;
}

// Runs each warp once; held-back warps run rarely, unless no other warp can. Returns whether any executed
// something.
bool Cluster::run_round() {
  is_polling_ = true;
  const bool any = run_warps(false);
  if (any && !is_polling_ && random.below(rounds_behind) != 0) return true;
  return run_warps(true) || any;
}

// Runs the warps, or the held-back ones, once in random order.
bool Cluster::run_warps(bool held_back) {
  std::vector<Warp*> order;
  for (const auto& block : blocks) {
    for (const auto& warp : block->warps) {
      if (warp->alive != 0 && warp->is_held_back == held_back) order.push_back(warp.get());
    }
  }
  std::uint64_t executed = 0;
  const Warp* last = nullptr;
  for (std::size_t left = order.size(); left > 0; --left) {
    std::swap(order[random.below(static_cast<std::uint32_t>(left))], order[left - 1]);
    Warp& warp = *order[left - 1];
    const std::uint64_t polls = warp.polling.count;
    const std::uint64_t count = warp.run(shortest_slice + random.below(slice_spread));
    if (count != 0) {
      last = &warp;
      warp.polling.steps_since = warp.polling.count == polls ? warp.polling.steps_since + count : 0;
      is_polling_ = is_polling_ && warp.is_polling();
    }
    executed += count;
  }
  steps += executed;
  if (last && steps > launch.options.step_limit) {
    launch.stop(FindingKind::step_limit, *last, -1,
                fmt::format("here the {} has executed {} warp instructions, {} is the limit",
                            blocks.size() > 1 ? "cluster" : "block", steps, launch.options.step_limit));
  }
  return executed > 0;
}

bool Cluster::is_polling_in_vain() const {
  if (is_stuck_) return true;
  if (!is_polling_) return false;
  bool is_in_vain = false;
  for (const auto& block : blocks) {
    for (const auto& warp : block->warps) {
      if (warp->alive == 0 || !warp->is_polling()) continue;
      if (warp->polling.in_a_row < (launch.member ? reads_in_vain_of_group : reads_in_vain)) return false;
      is_in_vain = true;
    }
  }
  return is_in_vain;
}

std::string Cluster::describe_polling() const {
  const Warp* waiting = nullptr;
  if (const Path* const path = is_stuck_ ? waits_outside(&waiting) : nullptr) {
    const auto& index = waiting->block.index;
    return fmt::format("; block ({}, {}, {}) warp {} waits at {} (PTX line {}) for {}", index[0], index[1],
                       index[2], waiting->id, place_of(launch.kernel, path->pc),
                       launch.kernel.info[path->pc].ptx_line, path->wait.on->describe(path->wait.token));
  }
  for (const auto& block : blocks) {
    for (const auto& warp : block->warps) {
      if (warp->alive == 0 || !warp->is_polling()) continue;
      const Warp::Polling::Read& read =
          *std::max_element(warp->polling.reads.begin(), warp->polling.reads.end(),
                            [](const auto& a, const auto& b) { return a.address < b.address; });
      return fmt::format("; block ({}, {}, {}) warp {} polls global memory at {} (PTX line {}): {}",
                         block->index[0], block->index[1], block->index[2], warp->id,
                         place_of(launch.kernel, read.pc), launch.kernel.info[read.pc].ptx_line,
                         launch.memory.describe(read.address));
    }
  }
  return {};
}

void Cluster::report_deadlock() {
  std::string waits;
  const Warp* first = nullptr;
  int count = 0;
  for (const auto& block : blocks) {
    for (const auto& warp : block->warps) {
      for (const Path& path : warp->paths) {
        if (!path.wait) continue;
        constexpr int shown = 8;
        if (!first) {
          first = warp.get();
          warp->pc = path.pc;
        }
        if (++count > shown) continue;
        const InstructionInfo& info = launch.kernel.info[path.pc];
        waits += fmt::format("; {}warp {} lanes {:#010x} at {} (PTX line {}) for {}",
                             blocks.size() > 1 ? fmt::format("block {} ", block->rank) : "", warp->id,
                             path.lanes, place_of(launch.kernel, path.pc), info.ptx_line,
                             path.wait.on->describe(path.wait.token));
      }
      for (const Join& join : warp->joins) {
        if (join.arrived == 0 || warp->paths.empty()) continue;
        if (++count <= 8) {
          waits +=
              fmt::format("; warp {} lanes {:#010x} for the others of their branch", warp->id, join.arrived);
        }
      }
    }
    block->mbarriers->report_missing(*block->warps.front());
  }
  launch.stop(FindingKind::deadlock, first ? *first : *blocks.front()->warps.front(), -1,
              "no warp can go on" + waits);
}

}  // namespace jit::emulator
