// A launch while it runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <emulator/launch.h>

#include "machine/global_memory.h"
#include "machine/kernel.h"

namespace jit::emulator {

/// Unwinds a launch that cannot continue, after its finding was reported.
class LaunchStopped : public std::exception {};

struct GroupClock;
class Residency;
struct GroupMember;
struct Warp;

/// State that all blocks of a running launch share. Thread safe.
struct Launch {
  const Program& program;
  const Kernel& kernel;
  const LaunchShape shape;
  const std::span<const std::byte> parameters;
  GlobalMemory& memory;
  const std::uint64_t globals;
  const LaunchOptions options;

  std::uint64_t clusters() const;  ///< of the grid

  /// Adds a finding at the warp's current instruction, or at `pc`, unless its kind is allowed or that
  /// instruction already has one of the kind.
  void report(FindingKind kind, const Warp& warp, int lane, std::string message) const;
  void report_at(std::uint32_t pc, FindingKind kind, const Warp& warp, int lane, std::string message) const;
  /// Adds a finding and ends the launch: throws LaunchStopped.
  [[noreturn]] void stop(FindingKind kind, const Warp& warp, int lane, std::string message) const;
  [[noreturn]] void stop_at(std::uint32_t pc, FindingKind kind, const Warp& warp, int lane,
                            std::string message) const;

  struct Findings {
    std::mutex mutex;
    std::vector<Finding> list;
    std::set<std::pair<FindingKind, std::uint32_t>> seen;
  };
  Findings& findings;
  std::atomic<bool>& stopped;      ///< no further block begins
  GlobalRaces* races = nullptr;    ///< null: global memory is not checked
  Residency* residency = nullptr;  ///< null: the launch does not schedule clusters
  GroupMember* member = nullptr;   ///< null: not in a device group
  GroupClock* clock = nullptr;     ///< of the group
};

}  // namespace jit::emulator
