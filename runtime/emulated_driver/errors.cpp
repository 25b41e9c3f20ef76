// Names and texts of results.
#include <algorithm>
#include <array>
#include <iterator>

#include "runtime/emulated_driver/call.h"
#include "runtime/emulated_driver/entries.h"

namespace jit::emulated_driver {
namespace {

struct ResultName {
  CUresult result;
  const char* name;
  const char* text;
};

#define JIT_RESULT(result, text) \
  { result, #result, text }
constexpr ResultName result_names[] = {
    JIT_RESULT(CUDA_SUCCESS, "no error"),
    JIT_RESULT(CUDA_ERROR_INVALID_VALUE, "an argument is out of range"),
    JIT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, "memory is short"),
    JIT_RESULT(CUDA_ERROR_NO_DEVICE, "there is no device"),
    JIT_RESULT(CUDA_ERROR_INVALID_DEVICE, "there is no device of that number"),
    JIT_RESULT(CUDA_ERROR_INVALID_CONTEXT, "no context is current, or the handle is none of a context"),
    JIT_RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU, "the image has no code for this device"),
    JIT_RESULT(CUDA_ERROR_INVALID_PTX, "the PTX cannot be loaded"),
    JIT_RESULT(CUDA_ERROR_INVALID_HANDLE, "the handle is none of this driver's"),
    JIT_RESULT(CUDA_ERROR_ILLEGAL_STATE, "the object is in another state than the call needs"),
    JIT_RESULT(CUDA_ERROR_NOT_FOUND, "there is nothing of that name"),
    JIT_RESULT(CUDA_ERROR_NOT_READY, "the work in front of it has not ended"),
    JIT_RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "the device cannot access the other's memory"),
    JIT_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "the context accesses the other's memory already"),
    JIT_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "the context does not access the other's memory"),
    JIT_RESULT(CUDA_ERROR_LAUNCH_FAILED, "the kernel failed"),
    JIT_RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "blocks that must run at the same time do not fit"),
    JIT_RESULT(CUDA_ERROR_NOT_SUPPORTED, "an emulated device cannot do this"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the call is not allowed while a stream is captured"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was spoilt by an earlier call"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the call would join two captures"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture did not begin on this stream"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream was forked from the capture and not joined"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "captured work would depend on work outside"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the default stream would wait for a captured stream"),
    JIT_RESULT(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a captured stream"),
    JIT_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began on another thread"),
    JIT_RESULT(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef JIT_RESULT

// The failure of the thread's last call. Trivially destructible: calls may come during process exit, after
// thread-local objects are destroyed.
struct LastFailure {
  CUresult result = CUDA_SUCCESS;
  std::array<char, 4096> text = {};
};

LastFailure& last_failure() {
  thread_local LastFailure failure;
  return failure;
}

const ResultName* find_name(CUresult result) {
  const auto found = std::find_if(std::begin(result_names), std::end(result_names),
                                  [&](const ResultName& row) { return row.result == result; });
  return found == std::end(result_names) ? nullptr : found;
}

}  // namespace

void begin_call() noexcept {
  LastFailure& last = last_failure();
  last.result = CUDA_SUCCESS;
  last.text[0] = 0;
}

CUresult end_call(const Failure& failure) noexcept {
  LastFailure& last = last_failure();
  const std::size_t count = std::min(failure.text.size(), last.text.size() - 1);
  std::copy_n(failure.text.data(), count, last.text.data());
  last.text[count] = 0;
  return last.result = failure.result;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const ResultName* row = find_name(error);
  *name = row ? row->name : nullptr;
  return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  const LastFailure& last = last_failure();
  const ResultName* row = find_name(error);
  *text = row ? row->text : nullptr;
  if (error == last.result && last.text[0] != 0) *text = last.text.data();
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace jit::emulated_driver
