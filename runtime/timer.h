// Times work on the GPU by events. Host time is not included: it is hidden behind the L2 flush.
#pragma once

#include <functional>

#include <cuda.h>

#include <jit/device_buffer.h>
#include <jit/timing.h>

namespace jit {

/// Times work on one device. Owns a buffer of twice the L2 cache and a stream. Use from one thread at a time.
class EventTimer {
 public:
  enum class L2 {
    cold,
    warm
  };  ///< cold: the cache is overwritten before every sample, outside of the timed region

  explicit EventTimer(int device, L2 l2 = L2::cold);
  ~EventTimer();
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  /// The stream for the timed work.
  CUstream stream() const { return stream_; }

  /// Runs `work(stream())` `warm_ups` times untimed, then `samples` times timed, and waits. Exceptions of
  /// `work` and failures of the work itself (Error driver_error) propagate.
  Timing measure(const std::function<void(CUstream)>& work, int warm_ups, int samples);

 private:
  void flush_l2() const;

  int device_;
  CUstream stream_ = nullptr;
  DeviceBuffer flush_buffer_;
};

}  // namespace jit
