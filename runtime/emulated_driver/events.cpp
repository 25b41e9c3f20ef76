// Entry points of events. Times are the host's: how long emulation took.
#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

Event::Clock::time_point time_of(Event& event, const char* name) {
  machine().captures.refuse_captured(event);
  const std::lock_guard lock(event.mutex);
  if (!event.is_timed) {
    fail(CUDA_ERROR_INVALID_HANDLE, std::string(name) + " was created with CU_EVENT_DISABLE_TIMING");
  }
  if (!event.time && !event.mark.is_reached()) fail(CUDA_ERROR_NOT_READY);
  if (!event.time) fail(CUDA_ERROR_INVALID_HANDLE, std::string(name) + " was never recorded");
  return *event.time;
}

}  // namespace

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call([&] {
    require(event, "phEvent");
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if ((flags & ~known) != 0) {
      fail(CUDA_ERROR_INVALID_VALUE,
           "flags must be made of CU_EVENT_BLOCKING_SYNC and CU_EVENT_DISABLE_TIMING");
    }
    *event = machine().events.add(
        std::make_shared<Event>(current_context(), (flags & CU_EVENT_DISABLE_TIMING) == 0));
  });
}

CUresult cuEventDestroy(CUevent event) {
  return call([&] { machine().events.remove(event); });
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return call([&] {
    const std::shared_ptr<Event> event = machine().events.find(handle);
    const std::shared_ptr<Stream> stream = find_stream(stream_handle);
    if (&event->context != &stream->context) {
      fail(CUDA_ERROR_INVALID_HANDLE, "event and stream belong to different contexts");
    }
    if (machine().captures.record(*event, *stream)) return;
    if (machine().peers.has(stream->context)) {
      machine().peers.put(*stream, [&](const Place& place) {
        const std::lock_guard lock(event->mutex);
        event->time.reset();
        event->mark = place.group.call(place.queue, [event] {
          const std::lock_guard lock(event->mutex);
          event->time = Event::Clock::now();
        });
      });
      return;
    }
    stream->run([&](emulator::GridsInFront&) {
      const std::lock_guard lock(event->mutex);
      event->time = Event::Clock::now();
    });
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return call([&] {
    const std::shared_ptr<Event> waited = machine().events.find(event);
    machine().captures.refuse_captured(*waited);
    ++waited->context.waits;
    emulator::Group::Mark mark;
    {
      const std::lock_guard lock(waited->mutex);
      mark = waited->mark;
    }
    if (machine().peers.has(waited->context)) machine().peers.finish(waited->context, mark);
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return call([&] {
    require(milliseconds, "pMilliseconds");
    const auto from = time_of(*machine().events.find(start), "hStart");
    const auto to = time_of(*machine().events.find(end), "hEnd");
    *milliseconds = std::chrono::duration<float, std::milli>(to - from).count();
  });
}

}  // namespace jit::emulated_driver
