/// @file
/// Streams of a device: work in order. For callers who have no CUDA headers of their own.
///
/// @code
/// const jit::CurrentDevice current(0);  // whose streams these are
/// const jit::Stream copies = nullptr;  // another stream
/// jit::wait_for(stream, copies);       // stream goes on after what copies has now
/// jit::synchronize(stream);            // the host waits for stream
/// @endcode
#pragma once

struct CUstream_st;

namespace jit {

/// A CUstream or cudaStream_t; null is the default stream of the current context.
using Stream = CUstream_st*;

/// Waits for all work that `stream` has. Throws Error driver_error, also for what failed on the stream
/// before.
void synchronize(Stream stream = nullptr);

/// Orders the work that `stream` gets from now on after what `other` has now, without waiting for either.
/// Throws Error driver_error.
void wait_for(Stream stream, Stream other);

}  // namespace jit
