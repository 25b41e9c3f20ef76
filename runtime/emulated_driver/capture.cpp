#include "runtime/emulated_driver/capture.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/emulated_driver/call.h"
#include "runtime/emulated_driver/context.h"
#include "runtime/emulated_driver/event.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void require_mode(CUstreamCaptureMode mode) {
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
      mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return;
  }
  fail(CUDA_ERROR_INVALID_VALUE, "the mode is none of a capture");
}

// Whether the capture restricts calls of this thread.
bool concerns(const Capture& capture, CUstreamCaptureMode thread_mode) {
  const bool is_own =
      capture.thread == std::this_thread::get_id() && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return is_own ||
         (capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

[[noreturn]] void spoil(Capture& capture, CUresult result, std::string text = {}) {
  capture.is_invalid = true;
  fail(result, std::move(text));
}

void require_valid(const Capture& capture) {
  if (capture.is_invalid) fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// The result of ending a capture: success, or why its graph is unusable.
CUresult verdict_of(const Capture& capture) {
  if (capture.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  for (const auto& [member, state] : capture.members) {
    if (state.works > 0 && member != capture.origin && !state.joined)
      return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUstreamCaptureMode exchange_thread_capture_mode(CUstreamCaptureMode mode) {
  require_mode(mode);
  return std::exchange(thread_capture_mode(), mode);
}

void Captures::begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode) {
  require_mode(mode);
  const std::lock_guard lock(mutex_);
  if (stream->kind == Stream::Kind::legacy) {
    fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
  }
  if (stream->capture) fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured already");
  auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = ++last_id_;
  capture->handle = machine().graphs.add(capture->graph);
  capture->members[stream.get()].stream = stream;
  stream->capture = capture;
  running_.push_back(std::move(capture));
}

CUgraph Captures::end(Stream& stream) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) fail(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  if (capture->origin != &stream) spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
    spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  close(capture);
  if (const CUresult verdict = verdict_of(*capture); verdict != CUDA_SUCCESS) {
    machine().graphs.remove(capture->handle);
    fail(verdict);
  }
  return capture->handle;
}

void Captures::close(const std::shared_ptr<Capture>& capture) {
  for (auto& [member, state] : capture->members) state.stream->capture = nullptr;
  std::erase(running_, capture);
}

CUstreamCaptureStatus Captures::status(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  refuse_implicit_wait(stream, false);
  if (!stream.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

std::shared_ptr<const Capture> Captures::capture_of(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  return stream.capture;
}

bool Captures::take(Stream& stream, const Work& work) {
  const std::lock_guard lock(mutex_);
  refuse_implicit_wait(stream, true);
  if (!stream.capture) return false;
  Capture& capture = *stream.capture;
  require_valid(capture);
  capture.graph->nodes.push_back({work, &stream});
  Capture::Member& member = capture.members.at(&stream);
  ++member.works;
  member.joined = false;
  return true;
}

bool Captures::record(Event& event, const Stream& stream) {
  const std::lock_guard lock(mutex_);
  refuse_implicit_wait(stream, true);
  event.captured.reset();
  if (!stream.capture) return false;
  require_valid(*stream.capture);
  event.captured = {stream.capture, &stream, stream.capture->members.at(&stream).works};
  return true;
}

bool Captures::wait(const std::shared_ptr<Stream>& stream, const Event& event) {
  const std::lock_guard lock(mutex_);
  refuse_implicit_wait(*stream, true);
  if (!event.captured) {
    if (stream->capture) spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    return false;
  }
  const std::shared_ptr<Capture> capture = event.captured->capture.lock();
  if (!capture || std::find(running_.begin(), running_.end(), capture) == running_.end()) {
    fail(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture that is over");
  }
  require_valid(*capture);
  if (stream->capture && stream->capture != capture) {
    stream->capture->is_invalid = true;
    spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (stream->kind == Stream::Kind::legacy) spoil(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (!stream->capture) {
    capture->members[stream.get()].stream = stream;
    stream->capture = capture;
  }
  Capture::Member& recorded = capture->members.at(event.captured->stream);
  if (event.captured->stream != stream.get() && recorded.works == event.captured->position) {
    recorded.joined = true;
  }
  capture->graph->nodes.push_back(
      {{}, stream.get(), Graph::Node::Behind{event.captured->stream, event.captured->position}});
  return true;
}

void Captures::refuse_unsafe_call(const char* call) {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  const std::lock_guard lock(mutex_);
  bool refused = false;
  for (const auto& capture : running_) {
    if (!concerns(*capture, mode)) continue;
    capture->is_invalid = true;
    refused = true;
  }
  if (!refused) return;
  fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
       std::string(call) +
           " is not allowed while a stream is captured, unless this thread's capture mode is relaxed");
}

void Captures::refuse_waiting_for(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  refuse_implicit_wait(stream, true);
  if (stream.capture) {
    spoil(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "a stream that is being captured does nothing to wait for");
  }
}

void Captures::refuse_captured(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (event.captured) fail(CUDA_ERROR_CAPTURED_EVENT);
}

void Captures::forget(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (!stream.capture) return;
  const std::shared_ptr<Capture> capture = stream.capture;
  capture->is_invalid = true;
  if (capture->origin != &stream) return;
  close(capture);
  machine().graphs.remove(capture->handle);
}

void Captures::refuse_implicit_wait(const Stream& stream, bool invalidate) {
  if (stream.kind != Stream::Kind::legacy) return;
  for (const auto& capture : running_) {
    for (const auto& [member, state] : capture->members) {
      if (member->kind != Stream::Kind::blocking || &member->context != &stream.context) continue;
      if (invalidate) capture->is_invalid = true;
      fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
}

}  // namespace jit::emulated_driver
