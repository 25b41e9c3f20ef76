// Grids and copies of a device group, which run concurrently where no queue, event or value orders them. Each
// has a number for its end: knowing the number means knowing all of its accesses.
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
  std::uint32_t number = 0;  ///< agent number of its end; its clusters have the following numbers
  std::uint32_t end = 0;     ///< end of its clusters' numbers
  int device = 0;            ///< in the group
  std::string name;          ///< kernel name, or the operation's
  std::shared_ptr<const Program> program = nullptr;  ///< keeps the kernel alive; null: no kernel
  const Kernel* kernel = nullptr;
  LaunchShape shape = {};

  GridClock before = {};       ///< knowledge of its threads when they begin
  GridClock behind_wait = {};  ///< knowledge after griddepcontrol.wait
  std::uint32_t in_front =
      0;                   ///< number of the grid that it may have begun before the end of; its own for none
  GridClock learned = {};  ///< knowledge of its threads when they ended
  bool lets_behind_wait = false;  ///< the next grid of its queue begins after a wait

  std::uint32_t first_cluster() const { return number + 1; }
  // griddepcontrol by a warp's lanes, and a block's end.
  void wait(Warp& warp);
  void let_next_begin(Warp& warp);
  void end_of(const Block& block);
};

/// %globaltimer of a group: a nanosecond for each warp instruction, and jumps while all work waits.
struct GroupClock {
  std::uint64_t now = 0;
  std::uint64_t reads = 0;  ///< number of reads
};

/// Not thread safe.
class GroupOrder {
 public:
  /// Adds a member with `clusters` clusters; a copy has one.
  GroupMember& add(std::uint64_t clusters);
  bool has_numbers_for(std::uint64_t clusters) const;

  const GroupMember& of(std::uint32_t cluster) const;
  /// The narrowest scope that includes blocks of two different clusters.
  Scope between(std::uint32_t a, std::uint32_t b) const;
  /// Whether `known` includes the end of the cluster's member.
  bool has_ended(std::uint32_t cluster, const GridClock& known) const;
  /// Knowledge of the member's end.
  static GridClock end_of(const GroupMember& member);

 private:
  std::deque<GroupMember> members_;  // by number
};

}  // namespace jit::emulator
