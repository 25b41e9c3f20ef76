// Streams: what is put on one is done at once, in the caller's thread, unless the stream is captured.
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

/// Something that a stream does. May be called again by graphs. Both throw Failure when it goes wrong.
struct Work {
  /// Does it; gets what launches have left in front of it.
  std::function<void(emulator::GridsInFront&)> now;
  /// Puts it into the queue of a device with peers.
  std::function<void(const Place&)> later;
};

struct Stream {
  enum class Kind {
    legacy,        ///< the default stream: it and blocking streams wait for each other
    blocking,      ///< a thread's default stream, or one created without CU_STREAM_NON_BLOCKING
    non_blocking,  ///< ordered with no other
  };

  Stream(Context& context, Kind kind);

  /// Does the work after what other threads are doing on this stream.
  void run(const std::function<void(emulator::GridsInFront&)>& work);

  Context& context;
  const Kind kind;
  const unsigned long long id;       ///< of no other stream of the process
  std::shared_ptr<Capture> capture;  // guarded by Captures
  int queue = -1;                    // in the group of peers; guarded by Peers

 private:
  void work_behind_waits(const std::function<void(emulator::GridsInFront&)>& work);
  std::uint64_t waits() const;

  std::mutex order_;
  emulator::GridsInFront grids_;
  std::uint64_t waits_ = 0;  // that had been when grids_ was last looked at
};

/// Handles of default streams mean those of the current context. Fails with CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<Stream> find_stream(CUstream handle);

/// Does the work on the stream, or puts it into its queue, or adds it to the stream's capture.
void enqueue(Stream& stream, const Work& work);
/// Work that begins when everything in front of it has ended, and ends before what is behind it begins.
Work alone(std::function<void()> now, std::function<void(const Place&)> later);

}  // namespace jit::emulated_driver
