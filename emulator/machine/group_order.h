// Grids and copies of a group of devices, which run beside each other where no queue, event or value orders them. Each has a
// number that stands for its end: who knows it knows all that was done there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include <emulator/finding.h>
#include <emulator/launch.h>

#include "machine/shared_sync.h"
#include "machine/vector_clock.h"

namespace jit::emulator {

struct Block;
struct Kernel;
struct Program;
struct Warp;

/// A grid, or a copy, of one device.
struct GroupMember {
  std::uint32_t number = 0;  ///< stands for its end; its clusters have those behind it
  std::uint32_t end = 0;     ///< of its clusters' numbers
  int device = 0;            ///< in the group
  std::string name;          ///< of the kernel, or what it does
  std::shared_ptr<const Program> program = nullptr;  ///< keeps the kernel; null where it is none
  const Kernel* kernel = nullptr;
  LaunchShape shape = {};

  GridClock before = {};       ///< what its threads know when they begin
  GridClock behind_wait = {};  ///< and behind griddepcontrol.wait
  std::uint32_t in_front =
      0;                   ///< number of the grid that it may have begun before the end of; its own for none
  GridClock learned = {};  ///< what its threads knew when they ended
  bool lets_behind_wait = false;  ///< the next grid of its queue begins behind a wait

  std::uint32_t first_cluster() const { return number + 1; }
  // griddepcontrol by the lanes of a warp, and the end of a block.
  void wait(Warp& warp);
  void let_next_begin(Warp& warp);
  void end_of(const Block& block);
};

/// The time that %globaltimer tells a group: a nanosecond for each warp instruction, and more where all only wait.
struct GroupClock {
  std::uint64_t now = 0;
  std::uint64_t reads = 0;  ///< how often somebody has looked
};

/// Used by one thread at a time.
class GroupOrder {
 public:
  /// Makes room for a member of `clusters` clusters, or for a copy, which is one.
  GroupMember& add(std::uint64_t clusters);
  bool has_numbers_for(std::uint64_t clusters) const;

  const GroupMember& of(std::uint32_t cluster) const;
  /// The narrowest scope that takes in blocks of two clusters that differ.
  Scope between(std::uint32_t a, std::uint32_t b) const;
  /// Whether somebody with this knowledge is behind the end of the cluster's member.
  bool has_ended(std::uint32_t cluster, const GridClock& known) const;
  /// Knowledge of a member's end.
  static GridClock end_of(const GroupMember& member);

 private:
  std::deque<GroupMember> members_;  // by number
};

}  // namespace jit::emulator
