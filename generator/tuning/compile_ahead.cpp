#include "generator/tuning/compile_ahead.h"

#include <algorithm>
#include <utility>

namespace jit {

CompileAhead::CompileAhead(std::size_t count, std::function<void(std::size_t)> work,
                           std::function<bool(std::size_t)> is_wanted)
    : work_(std::move(work)), is_wanted_(std::move(is_wanted)), done_(count, false) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < std::min(cores, count); ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { take_turns(stop); });
}

CompileAhead::~CompileAhead() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void CompileAhead::take_turns(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (next_ < done_.size() && !stop.stop_requested()) {
    const std::size_t job = next_++;
    lock.unlock();
    if (is_wanted_(job)) work_(job);
    lock.lock();
    done_[job] = true;
    changed_.notify_all();
  }
}

std::size_t CompileAhead::wait(std::span<const std::size_t> jobs) {
  std::unique_lock lock(mutex_);
  auto first = jobs.begin();
  changed_.wait(lock, [&] {
    first = std::ranges::find_if(jobs, [&](std::size_t job) { return done_[job]; });
    return first != jobs.end();
  });
  return *first;
}

}  // namespace jit
