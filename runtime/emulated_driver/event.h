// Events: a point in a stream, and the time when it was reached.
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

  std::mutex mutex;  // guards time and mark
  std::optional<Clock::time_point> time;
  emulator::Group::Mark mark;  ///< the last recording, on a device with peers

  /// The last recording in a capture; guarded by Captures.
  struct CapturedAt {
    std::weak_ptr<Capture> capture;
    const Stream* stream = nullptr;
    std::size_t position = 0;  ///< number of works of the stream before it
  };
  std::optional<CapturedAt> captured;
};

}  // namespace jit::emulated_driver
