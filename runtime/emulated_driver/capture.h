// Stream capture: which streams put their work into which graph, and which calls that forbids (CUDA
// programming guide, "Stream Capture").
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

/// A capture that runs. Guarded by Captures.
struct Capture {
  struct Member {
    std::shared_ptr<Stream> stream;
    std::size_t works = 0;  ///< that it has put into the graph
    bool joined = false;    ///< all of them come before some later work of the capture
  };

  const Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::map<const Stream*, Member> members;  ///< the origin and what was forked from it
  unsigned long long id = 0;                ///< of no other capture
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  CUgraph handle = nullptr;  ///< of the graph, from the beginning
  bool is_invalid = false;
};

/// All captures that run. Thread safe. What a call must not do makes it fail and invalidates the captures
/// concerned.
class Captures {
 public:
  void begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode);
  /// The graph of what was captured. When it is nothing of use, fails; the capture is over all the same.
  CUgraph end(Stream& stream);
  CUstreamCaptureStatus status(const Stream& stream);
  /// The stream's capture, null when there is none.
  std::shared_ptr<const Capture> capture_of(const Stream& stream);

  /// Adds the work to the stream's capture; false when there is none.
  bool take(Stream& stream, const Work& work);
  /// Notes where the event is in the stream's capture; false when there is none.
  bool record(Event& event, const Stream& stream);
  /// Orders the stream's further work behind the event: a stream that waits for a captured one joins the
  /// capture. False when the event was not captured.
  bool wait(const std::shared_ptr<Stream>& stream, const Event& event);

  /// For calls that may wait for or disturb any stream of the process.
  void refuse_unsafe_call(const char* call);
  void refuse_waiting_for(const Stream& stream);
  void refuse_captured(const Event& event);
  /// For a stream that is destroyed.
  void forget(Stream& stream);

 private:
  void refuse_implicit_wait(const Stream& stream, bool invalidate);  // Requires: mutex_ is held
  void close(const std::shared_ptr<Capture>& capture);               // Requires: mutex_ is held

  std::mutex mutex_;
  unsigned long long last_id_ = 0;
  std::vector<std::shared_ptr<Capture>> running_;
};

/// Sets how far captures restrict the calls of this thread. Returns what was set.
CUstreamCaptureMode exchange_thread_capture_mode(CUstreamCaptureMode mode);

}  // namespace jit::emulated_driver
