#include "runtime/timer.h"

#include <algorithm>
#include <utility>

#include <jit/device.h>
#include <jit/error.h>
#include <jit/time_work.h>

#include "runtime/driver_api.h"

namespace jit {
namespace {

class Event {
 public:
  Event() { check(driver().cuEventCreate(&handle_, CU_EVENT_DEFAULT), "cuEventCreate"); }
  ~Event() {
    if (handle_) driver().cuEventDestroy(handle_);
  }
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  void record(CUstream stream) const { check(driver().cuEventRecord(handle_, stream), "cuEventRecord"); }
  float microseconds_since(const Event& start) const {
    float milliseconds = 0;
    check(driver().cuEventElapsedTime(&milliseconds, start.handle_, handle_), "cuEventElapsedTime");
    return milliseconds * 1000;
  }

 private:
  CUevent handle_ = nullptr;
};

// Linear interpolation between the two nearest samples; `sorted` is not empty.
double quantile(const std::vector<float>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Timing summarize(std::vector<float> samples_us) {
  Timing timing;
  timing.samples_us = std::move(samples_us);
  if (timing.samples_us.empty()) return timing;
  std::vector<float> sorted = timing.samples_us;
  std::sort(sorted.begin(), sorted.end());
  timing.min_us = sorted.front();
  timing.median_us = quantile(sorted, 0.5);
  if (timing.median_us > 0)
    timing.spread = (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / timing.median_us;
  return timing;
}

EventTimer::EventTimer(int device, L2 l2) : device_(device) {
  if (l2 == L2::cold) {
    // Twice the cache, so that nothing survives under any replacement policy.
    flush_buffer_ = DeviceBuffer(device, 2 * static_cast<std::size_t>(device_info(device).l2_bytes));
  }
  const CurrentDevice context(device);
  check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

EventTimer::~EventTimer() {
  if (stream_) driver().cuStreamDestroy(stream_);
}

void EventTimer::flush_l2() const { flush_buffer_.fill(0, stream_); }

Timing EventTimer::measure(const std::function<void(CUstream)>& work, int warm_ups, int samples) {
  const CurrentDevice context(device_);
  for (int i = 0; i < warm_ups; ++i) work(stream_);
  std::vector<std::pair<Event, Event>> events(static_cast<std::size_t>(std::max(samples, 0)));
  // Queues everything before it waits, so that the GPU never idles between the start event and the work.
  for (const auto& [start, stop] : events) {
    flush_l2();
    start.record(stream_);
    work(stream_);
    stop.record(stream_);
  }
  check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  std::vector<float> samples_us;
  for (const auto& [start, stop] : events) samples_us.push_back(stop.microseconds_since(start));
  return summarize(std::move(samples_us));
}

std::vector<Timing> time_work(std::span<const std::function<void(Stream)>> work, int samples, int device) {
  if (device_info(device).emulated) {
    throw Error(ErrorCode::unsupported_device, "tune", "device",
                "an emulated device does not model time; timing needs a GPU");
  }
  EventTimer timer(device);
  for (const auto& piece : work) timer.measure(piece, 1, 0);
  std::vector<std::vector<float>> samples_us(work.size());
  for (int sample = 0; sample < samples; ++sample) {
    for (std::size_t i = 0; i < work.size(); ++i)
      samples_us[i].push_back(static_cast<float>(timer.measure(work[i], 0, 1).median_us));
  }
  std::vector<Timing> timings;
  for (std::vector<float>& own : samples_us) timings.push_back(summarize(std::move(own)));
  return timings;
}

}  // namespace jit
