// Devices that see each other's memory. Their streams are queues of a group: work is kept until a call waits for it, and is
// then done side by side, so that what is enqueued first may wait for what is enqueued last.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda.h>

#include <emulator/group.h>

namespace jit::emulated_driver {

struct Context;
struct Device;
struct Graph;
struct Stream;

/// Where work goes, and where what is wrong with it is kept until its context is waited for.
struct Place {
  emulator::Group& group;
  int queue = 0;
  std::shared_ptr<Context> context;

  /// For work that has ended: keeps what was found.
  emulator::Group::Ended ended() const;
};

/// Thread safe.
class Peers {
 public:
  explicit Peers(std::uint64_t seed) : group_(seed) {}

  /// The device's kernels may access the other's memory.
  void enable(Device& device, Device& other);
  void disable(Device& device, Device& other);
  /// Whether work of the context is kept.
  bool has(const Context& context) const;

  using Mark = emulator::Group::Mark;
  /// Puts work in behind what the stream waits for, as `put` says.
  void put(Stream& stream, const std::function<void(const Place&)>& put);
  void put(Stream& stream, const Graph& graph);
  Mark last(Stream& stream);
  /// Further work of the stream is behind the mark.
  void wait(Stream& stream, const Mark& mark);

  /// Does all work of the context; what was found stays for who waits for it.
  void drain(Context& context);
  // Do the work up to there, then fail with what was found in the context.
  void finish(Context& context, const Mark& mark);
  void finish(Stream& stream);
  void finish(Context& context);
  /// This thread may enqueue work.
  void note_thread();

 private:
  Place place_of(Stream& stream);  // Requires: mutex_ is held
  void join(Device& device);       // Requires: mutex_ is held
  void run_until(const Mark& mark);
  void fail_with_findings(Context& context);

  mutable std::mutex mutex_;
  emulator::Group group_;
  std::vector<int> joined_;              // ordinals, by index in the group
  std::map<const void*, int> branches_;  // queues of streams in graphs
};

/// Findings as the text of an error.
std::string describe(const std::vector<emulator::Finding>& findings);

}  // namespace jit::emulated_driver
