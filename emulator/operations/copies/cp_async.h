// The state of a warp's cp.async copies (PTX ISA, "Data Movement and Conversion Instructions: Non-bulk
// copy").
#pragma once

#include <cstdint>
#include <deque>

#include "machine/warp.h"

namespace jit::emulator {

struct CpAsyncState {
  virtual ~CpAsyncState() = default;
  /// Called when the warp's last lane exits: reports copies without a wait.
  virtual void finish(Warp& warp) = 0;

  /// Pending arrivals that follow copies, in the order of their announcement. None takes place before an
  /// earlier one, whose copies it also follows.
  std::deque<PendingOperation*> arrivals = {};
};

/// The copies that lanes had issued at a cp.async.mbarrier.arrive, whose end it signals. The warp's exit does
/// not report them. Valid as long as the warp.
class TrackedCopies {
 public:
  TrackedCopies(Warp& warp, std::uint32_t lanes, std::uint64_t before)
      : warp_(&warp), lanes_(lanes), before_(before) {}

  /// Whether none of them is pending.
  bool empty() const;
  /// Completes the pending ones; `completion.agent` writes shared memory at `completion.time` (the mbarrier's
  /// agent() and write_time()). Returns what the arrival must also release: the thread's own writes for
  /// copies that one of its waits had completed.
  Knowledge complete(const Access& completion) const;

 private:
  Warp* warp_;
  std::uint32_t lanes_;
  std::uint64_t before_;  // bound of the copies' numbers
};

/// All copies of `lanes` (usually warp.exec, or one bit of it) so far.
TrackedCopies track_copies(Warp& warp, std::uint32_t lanes);

}  // namespace jit::emulator
