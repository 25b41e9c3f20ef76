// Grids of a stream where one may begin before its predecessors have ended (PTX ISA, "griddepcontrol"). A
// thread that has waited for them knows that they have ended, and so does every thread ordered after it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "machine/vector_clock.h"

namespace jit::emulator {

struct Block;
struct Warp;

/// Numbers the clusters of all these grids uniquely. Thread safe, except for begin().
class GridOrder {
 public:
  /// Begins a grid of `clusters` clusters: the first one, or one that may begin before the previous one has
  /// ended.
  void begin(std::string kernel, std::uint64_t clusters);

  /// The number of the first cluster of the running grid.
  std::uint32_t first_cluster() const { return grids_.back().number + 1; }
  /// Whether numbers are left for a grid of `clusters` clusters.
  bool has_numbers_for(std::uint64_t clusters) const;

  /// Whether a cluster belongs to a grid before the running one.
  bool is_in_front(std::uint32_t cluster) const { return cluster < grids_.back().number; }
  /// Whether `known` includes the end of a cluster of a previous grid.
  bool has_ended(std::uint32_t cluster, const GridClock& known) const;
  /// The kernel of a cluster that may still run when the running grid began.
  const std::string& kernel_of(std::uint32_t cluster) const;

  /// griddepcontrol.wait by the lanes `exec` of a warp.
  void wait(Warp& warp);
  /// griddepcontrol.launch_dependents: this block lets the next grid begin.
  void let_next_begin(Warp& warp);
  /// All threads of the block have ended.
  void end(const Block& block);

 private:
  struct Grid {
    std::string kernel;
    std::uint32_t number;      ///< agent number of its waits; its clusters have the following numbers
    std::uint32_t end;         ///< end of its clusters' numbers
    std::uint32_t waits_from;  ///< its waits cover clusters from this one on
    GridClock waited;          ///< knowledge that a wait gives
  };

  bool depends() const { return grids_.size() > 1; }

  std::vector<Grid> grids_;                       // those that may run, by number; the running one is last
  std::uint32_t end_ = 0;                         // end of the numbers given out
  std::atomic<bool> waits_ = false;               // a thread of the running grid has waited
  std::atomic<bool> next_begins_behind_ = false;  // the next grid begins after a wait of the running one
};

}  // namespace jit::emulator
