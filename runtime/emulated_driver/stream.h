// Streams: work runs at once, in the caller's thread, unless the stream is captured or its device has peers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <cuda.h>

#include <emulator/launch.h>

namespace jit::emulated_driver {

struct Capture;
struct Context;
struct Place;

/// An operation of a stream. Graphs may run it again. Both functions throw Failure on errors.
struct Work {
  /// Runs it; the argument has the grids before it that may still be running.
  std::function<void(emulator::GridsInFront&)> now;
  /// Appends it to the queue of a device with peers.
  std::function<void(const Place&)> later;
};

struct Stream {
  enum class Kind {
    legacy,        ///< the default stream: it and blocking streams wait for each other
    blocking,      ///< a thread's default stream, or one created without CU_STREAM_NON_BLOCKING
    non_blocking,  ///< not ordered with other streams
  };

  Stream(Context& context, Kind kind);

  /// Runs the work after that of other threads on this stream.
  void run(const std::function<void(emulator::GridsInFront&)>& work);

  Context& context;
  const Kind kind;
  const unsigned long long id;       ///< unique in the process
  std::shared_ptr<Capture> capture;  // guarded by Captures
  int queue = -1;                    // in the group of peers; guarded by Peers

 private:
  void work_behind_waits(const std::function<void(emulator::GridsInFront&)>& work);
  std::uint64_t waits() const;

  std::mutex order_;
  emulator::GridsInFront grids_;
  std::uint64_t waits_ = 0;  // value of waits() when grids_ was last used
};

/// The stream of a handle; default streams are the current context's. Fails with CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<Stream> find_stream(CUstream handle);

/// Runs the work on the stream, or queues it, or adds it to the stream's capture.
void enqueue(Stream& stream, const Work& work);
/// Work that starts after all previous work has ended, and ends before later work starts.
Work alone(std::function<void()> now, std::function<void(const Place&)> later);

}  // namespace jit::emulated_driver
