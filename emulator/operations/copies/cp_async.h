// The state of a warp's cp.async copies (PTX ISA, "Data Movement and Conversion Instructions: Non-bulk
// copy").
#pragma once

#include <cstdint>
#include <deque>

#include "machine/warp.h"

namespace jit::emulator {

struct CpAsyncState {
  virtual ~CpAsyncState() = default;
  /// Called when the warp's last lane exits: reports copies that nobody waited for.
  virtual void finish(Warp& warp) = 0;

  /// Arrivals that wait for copies, in the order in which they were announced. One is never before another: it follows
  /// all copies that the other follows.
  std::deque<PendingOperation*> arrivals = {};
};

/// The copies that lanes had issued when cp.async.mbarrier.arrive was executed: what it signals the end of.
/// They no longer count as forgotten when the warp exits. Valid as long as the warp.
class TrackedCopies {
 public:
  TrackedCopies(Warp& warp, std::uint32_t lanes, std::uint64_t before)
      : warp_(&warp), lanes_(lanes), before_(before) {}

  /// Whether none of them is under way any more: they took effect, or there were none.
  bool empty() const;
  /// Lets those under way take effect, written to shared memory by `completion.agent` at `completion.time`
  /// (the mbarrier's agent() and write_time()). Returns what the arrival has to release
  /// besides: the thread's own writes for those copies that one of its waits completed before.
  Knowledge complete(const Access& completion) const;

 private:
  Warp* warp_;
  std::uint32_t lanes_;
  std::uint64_t before_;  // copies with a smaller number
};

/// All copies of `lanes` (usually warp.exec, or one bit of it) up to now.
TrackedCopies track_copies(Warp& warp, std::uint32_t lanes);

}  // namespace jit::emulator
