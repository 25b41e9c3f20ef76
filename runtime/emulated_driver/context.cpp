#include "runtime/emulated_driver/context.h"

#include <array>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

// Trivially destructible: contexts are pushed during process exit, after thread-local objects are destroyed.
struct ContextStack {
  std::array<CUcontext, 256> contexts = {};
  std::size_t depth = 0;
};

ContextStack& context_stack() {
  thread_local ContextStack stack;
  return stack;
}

CUcontext require_current() {
  const CUcontext current = current_context_handle();
  if (!current) fail(CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread");
  return current;
}

}  // namespace

Context::Context(Device& device_in)
    : device(device_in), legacy_stream(std::make_shared<Stream>(*this, Stream::Kind::legacy)) {}

CUcontext current_context_handle() {
  const ContextStack& stack = context_stack();
  return stack.depth == 0 ? nullptr : stack.contexts[stack.depth - 1];
}

// The handle was checked when pushed, and primary contexts are never destroyed.
Context& current_context() { return *machine().contexts.find(require_current()); }

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call([&] {
    require(context, "pctx");
    *context = machine().primary_handles[static_cast<std::size_t>(machine().device(device).ordinal)];
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return call([&] {
    require(context, "pctx");
    *context = current_context_handle();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return call([&] {
    require(device, "device");
    *device = current_context().device.ordinal;
  });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return call([&] {
    const std::shared_ptr<Context> pushed = machine().contexts.find(context);
    if (machine().peers.has(*pushed)) machine().peers.note_thread();
    ContextStack& stack = context_stack();
    if (stack.depth == stack.contexts.size()) {
      fail(CUDA_ERROR_OUT_OF_MEMORY, "contexts were pushed 256 times, and not popped");
    }
    stack.contexts[stack.depth++] = context;
  });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return call([&] {
    const CUcontext current = require_current();
    --context_stack().depth;
    if (context) *context = current;
  });
}

CUresult cuCtxSynchronize() {
  return call([&] {
    Context& context = current_context();
    machine().captures.refuse_unsafe_call("cuCtxSynchronize");
    ++context.waits;
    if (machine().peers.has(context)) machine().peers.finish(context);
  });
}

}  // namespace jit::emulated_driver
