#include "runtime/emulated_driver/peers.h"

#include <algorithm>
#include <utility>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/interrupts.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

std::shared_ptr<Context> primary_of(const Device& device) {
  return machine().primary_contexts[static_cast<std::size_t>(device.ordinal)];
}

void note_failure(Context& context, const std::string& text) {
  const std::lock_guard lock(context.failures_mutex);
  context.failures += (context.failures.empty() ? "" : "; ") + text;
}

}  // namespace

emulator::Group::Ended Place::ended() const {
  return [context = context](const std::vector<emulator::Finding>& findings) {
    if (!findings.empty()) note_failure(*context, describe(findings));
  };
}

void Peers::join(Device& device) {
  if (std::find(joined_.begin(), joined_.end(), device.ordinal) != joined_.end()) return;
  group_.add_device(device.memory);
  joined_.push_back(device.ordinal);
}

void Peers::enable(Device& device, Device& other) {
  const std::lock_guard lock(mutex_);
  join(device);
  join(other);
  device.memory.enable_peer(other.memory);
  primary_of(device)->is_of_group = primary_of(other)->is_of_group = true;
}

void Peers::disable(Device& device, Device& other) { device.memory.disable_peer(other.memory); }

bool Peers::has(const Context& context) const { return context.is_of_group; }

Place Peers::place_of(Stream& stream) {
  if (stream.queue < 0) {
    const auto index =
        std::find(joined_.begin(), joined_.end(), stream.context.device.ordinal) - joined_.begin();
    stream.queue = group_.add_queue(static_cast<int>(index));
    stream.context.queues.push_back(stream.queue);
    if (stream.kind == Stream::Kind::blocking) stream.context.blocking_queues.push_back(stream.queue);
  }
  // The default stream and blocking streams wait for each other.
  if (stream.kind == Stream::Kind::legacy) {
    for (const int queue : stream.context.blocking_queues) group_.wait(stream.queue, group_.last(queue));
  } else if (stream.kind == Stream::Kind::blocking && stream.context.legacy_stream->queue >= 0) {
    group_.wait(stream.queue, group_.last(stream.context.legacy_stream->queue));
  }
  return {group_, stream.queue, primary_of(stream.context.device)};
}

void Peers::put(Stream& stream, const std::function<void(const Place&)>& put) {
  const std::lock_guard lock(mutex_);
  put(place_of(stream));
}

// Queues each captured stream separately, after the launching stream, which then waits for all of them.
void Peers::put(Stream& stream, const Graph& graph) {
  const std::lock_guard lock(mutex_);
  const Place place = place_of(stream);
  const Mark begin = group_.call(place.queue, nullptr);
  std::map<const Stream*, Place> places;
  std::map<const Stream*, std::vector<Mark>> marks;  // marks after each work
  for (const Graph::Node& node : graph.nodes) {
    if (!places.contains(node.stream)) {
      int queue = place.queue;
      if (!places.empty()) {
        const auto [branch, is_new] = branches_.try_emplace({place.queue, places.size()}, -1);
        if (is_new) {
          const auto index =
              std::find(joined_.begin(), joined_.end(), stream.context.device.ordinal) - joined_.begin();
          branch->second = group_.add_queue(static_cast<int>(index));
          stream.context.queues.push_back(branch->second);
        }
        queue = branch->second;
        group_.wait(queue, begin);
      }
      places.emplace(node.stream, Place{group_, queue, place.context});
      marks[node.stream] = {begin};
    }
    const Place& of = places.at(node.stream);
    if (node.waits_for) {
      const std::vector<Mark>& others = marks[node.waits_for->stream];
      if (node.waits_for->works < others.size()) group_.wait(of.queue, others[node.waits_for->works]);
    } else {
      node.work.later(of);
      marks[node.stream].push_back(group_.last(of.queue));
    }
  }
  for (const auto& [of, branch] : places) {
    if (branch.queue != place.queue) group_.wait(place.queue, group_.last(branch.queue));
  }
}

Peers::Mark Peers::last(Stream& stream) {
  const std::lock_guard lock(mutex_);
  return group_.last(place_of(stream).queue);
}

void Peers::wait(Stream& stream, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  group_.wait(place_of(stream).queue, mark);
}

void Peers::run_until(Context& context, const Mark& mark) {
  try {
    group_.run_until(mark, interrupt_check());
  } catch (const emulator::LaunchInterrupted& error) {
    take_failures(context);  // this call tells
    fail(CUDA_ERROR_LAUNCH_FAILED, error.what());
  }
}

void Peers::drain(Context& context) {
  std::vector<Mark> marks;
  {
    const std::lock_guard lock(mutex_);
    for (const int queue : context.queues) marks.push_back(group_.last(queue));
  }
  for (const Mark& mark : marks) run_until(context, mark);
}

void Peers::finish(Context& context, const Mark& mark) {
  run_until(context, mark);
  fail_with_findings(context);
}

void Peers::finish(Stream& stream) { finish(stream.context, last(stream)); }

void Peers::finish(Context& context) {
  drain(context);
  fail_with_findings(context);
}

std::string Peers::take_failures(Context& context) {
  Context& primary = *primary_of(context.device);
  const std::lock_guard lock(primary.failures_mutex);
  return std::exchange(primary.failures, {});
}

void Peers::fail_with_findings(Context& context) {
  const std::string text = take_failures(context);
  if (!text.empty()) fail(CUDA_ERROR_LAUNCH_FAILED, text);
}

void Peers::note_thread() { group_.note_thread(); }

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call([&] {
    require(can, "canAccessPeer");
    *can = &machine().device(device) != &machine().device(peer);
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return call([&] {
    if (flags != 0) fail(CUDA_ERROR_INVALID_VALUE, "Flags must be 0");
    Context& own = current_context();
    const std::shared_ptr<Context> other = machine().contexts.find(peer);
    machine().captures.refuse_unsafe_call("cuCtxEnablePeerAccess");
    if (&own == other.get()) {
      fail(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "a device is no peer of its own");
    }
    if (own.device.memory.is_peer(other->device.memory)) fail(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    machine().peers.enable(own.device, other->device);
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return call([&] {
    Context& own = current_context();
    const std::shared_ptr<Context> other = machine().contexts.find(peer);
    machine().captures.refuse_unsafe_call("cuCtxDisablePeerAccess");
    if (!own.device.memory.is_peer(other->device.memory)) fail(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    machine().peers.finish(own);
    machine().peers.disable(own.device, other->device);
  });
}

}  // namespace jit::emulated_driver
