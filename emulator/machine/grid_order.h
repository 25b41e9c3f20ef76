// Grids that follow each other on a stream, where one may begin before those in front of it have ended (PTX ISA,
// "griddepcontrol"). A thread that has waited for them knows that they have, and so does whoever is ordered behind it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "machine/vector_clock.h"

namespace jit::emulator {

struct Block;
struct Warp;

/// Gives the clusters of all these grids numbers that differ. Thread safe, except for begin().
class GridOrder {
 public:
  /// A grid begins, of `clusters` clusters: the first one, or one that may begin before the last one has ended.
  void begin(std::string kernel, std::uint64_t clusters);

  /// The number of the first cluster of the running grid.
  std::uint32_t first_cluster() const { return grids_.back().number + 1; }
  /// Whether a grid of `clusters` clusters could begin: there are numbers for them.
  bool has_numbers_for(std::uint64_t clusters) const;

  /// Whether a cluster is of a grid in front of the running one.
  bool is_in_front(std::uint32_t cluster) const { return cluster < grids_.back().number; }
  /// Whether a cluster of a grid in front has ended, as far as somebody with this knowledge can tell.
  bool has_ended(std::uint32_t cluster, const GridClock& known) const;
  /// The kernel of a cluster that may not have ended when the running grid began.
  const std::string& kernel_of(std::uint32_t cluster) const;

  /// griddepcontrol.wait by the lanes `exec` of a warp.
  void wait(Warp& warp);
  /// griddepcontrol.launch_dependents: the next grid may begin, as far as this block is concerned.
  void let_next_begin(Warp& warp);
  /// All threads of the block have ended.
  void end(const Block& block);

 private:
  struct Grid {
    std::string kernel;
    std::uint32_t number;      ///< stands for having waited; its clusters have those behind it
    std::uint32_t end;         ///< of its clusters' numbers
    std::uint32_t waits_from;  ///< its waits are for clusters from this one on
    GridClock waited;          ///< what a wait teaches
  };

  bool depends() const { return grids_.size() > 1; }

  std::vector<Grid> grids_;                       // those that may run, by number, the running one last
  std::uint32_t end_ = 0;                         // of the numbers that are given out
  std::atomic<bool> waits_ = false;               // some thread of the running grid has waited
  std::atomic<bool> next_begins_behind_ = false;  // the next grid begins behind a wait of the running one
};

}  // namespace jit::emulator
