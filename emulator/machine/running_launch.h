// A launch with all the state of its run.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <emulator/launch.h>
#include <emulator/memory.h>

#include "machine/launch.h"
#include "machine/residency.h"
#include "machine/worker.h"

namespace jit::emulator {

class RunningLaunch {
 public:
  /// For at most `workers` host threads. `parameters` must outlive it. Throws std::invalid_argument, as
  /// `launch` does.
  RunningLaunch(const Function& function, const LaunchShape& shape, std::span<const std::byte> parameters,
                Memory& memory, const LaunchOptions& options, std::size_t workers);
  RunningLaunch(const RunningLaunch&) = delete;
  RunningLaunch& operator=(const RunningLaunch&) = delete;

  Launch& launch() { return launch_; }
  Residency& residency() { return residency_; }
  std::atomic<bool>& stopped() { return stopped_; }
  std::span<const std::unique_ptr<Worker>> workers() const { return workers_; }

  /// The result once all workers have ended. Rethrows a worker's exception.
  LaunchResult result();

 private:
  const Function function_;
  const LaunchOptions options_;
  Launch::Findings findings_;
  std::atomic<bool> stopped_ = false;
  Launch launch_;
  Grid grid_;
  Residency residency_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace jit::emulator
