/// @file
/// Times work of any kind on a GPU, as the tuner and the benchmarks of the tool do.
///
/// @code
/// // On a GPU: emulated devices have no times.
/// const jit::Attention attention = jit::attention({});
/// const std::function<void(jit::Stream)> work[] = {
///     [&](jit::Stream on) { attention({.q = q, .k = k, .v = v, .o = o}, on); }};
/// const std::vector<jit::Timing> timings = jit::time_work(work, 20, 0);
/// std::printf("%.1f us\n", timings.front().median_us);
/// @endcode
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
