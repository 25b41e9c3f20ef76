// Devices with peer access. Their streams are queues of a group: work is queued until a call waits for it,
// then all queues run concurrently, so that earlier work may wait for later work of another queue.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cuda.h>

#include <emulator/group.h>

namespace jit::emulated_driver {

struct Context;
struct Device;
struct Graph;
struct Stream;

/// The queue for work, and the context that collects its findings until a call waits for it.
struct Place {
  emulator::Group& group;
  int queue = 0;
  std::shared_ptr<Context> context;

  /// A callback for finished work that stores its findings in the context.
  emulator::Group::Ended ended() const;
};

/// Thread safe.
class Peers {
 public:
  explicit Peers(std::uint64_t seed) : group_(seed) {}

  /// Lets kernels of the device access the other one's memory.
  void enable(Device& device, Device& other);
  void disable(Device& device, Device& other);
  /// Whether work of the context is queued.
  bool has(const Context& context) const;

  using Mark = emulator::Group::Mark;
  /// Calls put() with the stream's queue, ordered after its waits.
  void put(Stream& stream, const std::function<void(const Place&)>& put);
  void put(Stream& stream, const Graph& graph);
  Mark last(Stream& stream);
  /// Makes further work of the stream wait for the mark.
  void wait(Stream& stream, const Mark& mark);

  /// Runs all work of the context, and stores its findings until a call waits for it.
  void drain(Context& context);
  // Run the work up to a mark or all of it, then fail if the context has findings.
  void finish(Context& context, const Mark& mark);
  void finish(Stream& stream);
  void finish(Context& context);
  /// Registers this thread as one that may enqueue work.
  void note_thread();

 private:
  Place place_of(Stream& stream);  // Requires: mutex_ is held
  void join(Device& device);       // Requires: mutex_ is held
  void run_until(Context& context, const Mark& mark);
  std::string take_failures(Context& context);
  void fail_with_findings(Context& context);

  mutable std::mutex mutex_;
  emulator::Group group_;
  std::vector<int> joined_;  // ordinals of devices, by index in the group
  // Queues of the second and further streams of graphs, by the launching stream's queue and their number:
  // launches into one stream run one after another.
  std::map<std::pair<int, std::size_t>, int> branches_;
};

/// Findings as text of an error.
std::string describe(const std::vector<emulator::Finding>& findings);

}  // namespace jit::emulated_driver
