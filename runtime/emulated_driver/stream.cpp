#include "runtime/emulated_driver/stream.h"

#include <atomic>
#include <map>
#include <shared_mutex>
#include <utility>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

unsigned long long next_id() {
  static std::atomic<unsigned long long> last = 0;
  return ++last;
}

std::shared_ptr<Stream> per_thread_stream(Context& context) {
  thread_local std::map<Context*, std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream>& stream = streams[&context];
  if (!stream) stream = std::make_shared<Stream>(context, Stream::Kind::blocking);
  return stream;
}

}  // namespace

void Stream::run(const std::function<void(emulator::GridsInFront&)>& work) {
  if (kind == Kind::legacy) {
    const std::unique_lock alone(context.legacy_order);
    ++context.legacy_works;
    work_behind_waits(work);
  } else if (kind == Kind::blocking) {
    const std::shared_lock beside(context.legacy_order);
    const std::lock_guard lock(order_);
    ++context.blocking_works;
    work_behind_waits(work);
  } else {
    const std::lock_guard lock(order_);
    work_behind_waits(work);
  }
}

void Stream::work_behind_waits(const std::function<void(emulator::GridsInFront&)>& work) {
  if (const std::uint64_t now = waits(); std::exchange(waits_, now) != now) grids_ = nullptr;
  work(grids_);
}

// A sum of counters that only grow, so that it changes whenever one does.
std::uint64_t Stream::waits() const {
  switch (kind) {
    case Kind::legacy:
      return context.waits + context.blocking_works;
    case Kind::blocking:
      return context.waits + context.legacy_works;
    case Kind::non_blocking:
      return context.waits;
  }
  return 0;
}

Stream::Stream(Context& context, Kind kind) : context(context), kind(kind), id(next_id()) {}

std::shared_ptr<Stream> find_stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return current_context().legacy_stream;
  if (handle == CU_STREAM_PER_THREAD) return per_thread_stream(current_context());
  return machine().streams.find(handle);
}

void enqueue(Stream& stream, const Work& work) {
  if (machine().captures.take(stream, work)) return;
  if (machine().peers.has(stream.context)) return machine().peers.put(stream, work.later);
  stream.run(work.now);
}

Work alone(std::function<void()> now, std::function<void(const Place&)> later) {
  return {[now = std::move(now)](emulator::GridsInFront& grids) {
            grids = nullptr;
            now();
          },
          std::move(later)};
}

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return call([&] {
    require(handle, "phStream");
    if (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING) {
      fail(CUDA_ERROR_INVALID_VALUE, "flags must be CU_STREAM_DEFAULT or CU_STREAM_NON_BLOCKING");
    }
    const auto kind = flags == CU_STREAM_DEFAULT ? Stream::Kind::blocking : Stream::Kind::non_blocking;
    *handle = machine().streams.add(std::make_shared<Stream>(current_context(), kind));
  });
}

CUresult cuStreamDestroy(CUstream handle) {
  return call([&] { machine().captures.forget(*machine().streams.remove(handle)); });
}

// Without peers, work is done before the call that enqueues it returns, so there is nothing to wait for; but
// earlier grids no longer overlap later ones.
CUresult cuStreamSynchronize(CUstream handle) {
  return call([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    machine().captures.refuse_waiting_for(*stream);
    if (machine().peers.has(stream->context)) return machine().peers.finish(*stream);
    stream->run([](emulator::GridsInFront& grids) { grids = nullptr; });
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return call([&] {
    require(context, "pctx");
    const Context& owner = find_stream(handle)->context;
    *context = machine().primary_handles[static_cast<std::size_t>(owner.device.ordinal)];
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return call([&] {
    require(id, "streamId");
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (machine().captures.status(*stream) != CU_STREAM_CAPTURE_STATUS_NONE)
      fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream that is being captured tells no id");
    *id = stream->id;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  return call([&] {
    if (flags != CU_EVENT_WAIT_DEFAULT) fail(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    const std::shared_ptr<Stream> stream = find_stream(handle);
    const std::shared_ptr<Event> waited = machine().events.find(event);
    if (machine().captures.wait(stream, *waited)) return;
    const std::lock_guard lock(waited->mutex);
    if (machine().peers.has(stream->context)) machine().peers.wait(*stream, waited->mark);
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call([&] {
    require(status, "captureStatus");
    *status = machine().captures.status(*find_stream(handle));
  });
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies,
                                std::size_t* dependency_count) {
  return call([&] {
    require(status, "captureStatus_out");
    if (dependencies != nullptr || dependency_count != nullptr)
      fail(CUDA_ERROR_NOT_SUPPORTED, "an emulated device does not tell dependencies");
    const std::shared_ptr<Stream> stream = find_stream(handle);
    *status = machine().captures.status(*stream);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
    const std::shared_ptr<const Capture> capture = machine().captures.capture_of(*stream);
    if (id != nullptr) *id = capture->id;
    if (graph != nullptr) *graph = capture->handle;
  });
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return call([&] { machine().captures.begin(find_stream(handle), mode); });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return call([&] {
    require(graph, "phGraph");
    *graph = nullptr;
    *graph = machine().captures.end(*find_stream(handle));
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call([&] {
    require(mode, "mode");
    *mode = exchange_thread_capture_mode(*mode);
  });
}

}  // namespace jit::emulated_driver
