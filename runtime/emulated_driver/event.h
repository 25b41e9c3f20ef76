// Events: a point in a stream, and when it was reached.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

#include <emulator/group.h>

namespace jit::emulated_driver {

struct Capture;
struct Context;
struct Stream;

struct Event {
  using Clock = std::chrono::steady_clock;

  Event(Context& context, bool is_timed) : context(context), is_timed(is_timed) {}

  Context& context;
  const bool is_timed;

  std::mutex mutex;  // guards the time and the mark
  std::optional<Clock::time_point> time;
  emulator::Group::Mark mark;  ///< where it was recorded last, on a device with peers

  /// Where a capture recorded it last; guarded by Captures.
  struct CapturedAt {
    std::weak_ptr<Capture> capture;
    const Stream* stream = nullptr;
    std::size_t position = 0;  ///< of the stream's work
  };
  std::optional<CapturedAt> captured;
};

}  // namespace jit::emulated_driver
