// Times work of any kind on a GPU, as the tuner and the benchmarks of the tool do.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <jit/error.h>
#include <jit/stream.h>
#include <jit/timing.h>

namespace jit {

/// Times pieces of work on the device by events, each `samples` times: one after another, over and over, so that a change
/// of the GPU's clock meets all. The L2 cache is cold each time. A piece gets the stream to launch on; it runs once more,
/// untimed, before. Throws Error unsupported_device for an emulated device, and what the work throws.
std::vector<Timing> time_work(std::span<const std::function<void(Stream)>> work, int samples, int device);

}  // namespace jit
