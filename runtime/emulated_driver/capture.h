// Stream capture: which streams record into which graph, and which calls a capture forbids (CUDA programming
// guide, "Stream Capture").
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <cuda.h>

#include "runtime/emulated_driver/graph.h"
#include "runtime/emulated_driver/stream.h"

namespace jit::emulated_driver {

struct Event;

/// A running capture. Guarded by Captures.
struct Capture {
  struct Member {
    std::shared_ptr<Stream> stream;
    std::size_t works = 0;  ///< number of works that the stream has recorded
    bool joined = false;    ///< whether later work of the capture depends on all of them
  };

  const Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::map<const Stream*, Member> members;  ///< the origin, and streams forked from it
  unsigned long long id = 0;                ///< unique
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  CUgraph handle = nullptr;  ///< handle of the graph, valid from the beginning
  bool is_invalid = false;
};

/// All running captures. Thread safe. A forbidden call fails and invalidates the affected captures.
class Captures {
 public:
  void begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode);
  /// Ends the capture and returns its graph. Fails if it is invalid or unjoined, but still ends it.
  CUgraph end(Stream& stream);
  CUstreamCaptureStatus status(const Stream& stream);
  /// The stream's capture, or null.
  std::shared_ptr<const Capture> capture_of(const Stream& stream);

  /// Records the work in the stream's capture; false if there is none.
  bool take(Stream& stream, const Work& work);
  /// Records the event in the stream's capture; false if there is none.
  bool record(Event& event, const Stream& stream);
  /// Makes the stream's further work wait for the event: a stream that waits for a captured one joins the
  /// capture. False if the event was not captured.
  bool wait(const std::shared_ptr<Stream>& stream, const Event& event);

  /// Refuses calls that may affect any stream, if a capture forbids them.
  void refuse_unsafe_call(const char* call);
  void refuse_waiting_for(const Stream& stream);
  void refuse_captured(const Event& event);
  /// Removes a stream that is being destroyed.
  void forget(Stream& stream);

 private:
  void refuse_implicit_wait(const Stream& stream, bool invalidate);  // Requires: mutex_ is held
  void close(const std::shared_ptr<Capture>& capture);               // Requires: mutex_ is held

  std::mutex mutex_;
  unsigned long long last_id_ = 0;
  std::vector<std::shared_ptr<Capture>> running_;
};

/// Sets how captures restrict the calls of this thread. Returns the previous mode.
CUstreamCaptureMode exchange_thread_capture_mode(CUstreamCaptureMode mode);

}  // namespace jit::emulated_driver
