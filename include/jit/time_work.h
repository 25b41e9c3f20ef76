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

/// Times pieces of work on the device by CUDA events, each `samples` times with a cold L2 cache, interleaved so that
/// changes of the GPU's clock affect all of them. Each piece launches on the stream that it is given, and runs once
/// untimed before. Throws Error unsupported_device for an emulated device, and what the work throws.
std::vector<Timing> time_work(std::span<const std::function<void(Stream)>> work, int samples, int device);

}  // namespace jit
