// Devices of one process whose work runs concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <emulator/finding.h>
#include <emulator/launch.h>
#include <emulator/memory.h>
#include <emulator/module.h>

namespace jit::emulator {

/// Devices with queues of work, like streams. A queue's work runs in order; queues run concurrently: one host
/// thread runs slices of the grids at the heads of all queues, in an order that the seed decides. So a kernel
/// may wait for a write by another device's kernel or another queue's copy. Races are detected in the memory
/// of all devices: two accesses are ordered by a queue, a mark, an acquired value write, or a release and an
/// acquire whose scopes include both devices (`.sys`).
///
/// Any thread may enqueue work at any time; `run` and `run_until` execute it in the calling thread. Thread
/// safe.
class Group {
 public:
  explicit Group(std::uint64_t seed = 0);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Adds a device. Its memory must outlive the group and share no address with the other devices' memory.
  /// Memory::enable_peer decides which devices access each other's memory.
  int add_device(Memory& memory);
  int add_queue(int device);
  /// Registers the calling thread: while all queued work waits, `run` waits for it to enqueue more.
  void note_thread();

  /// Receives the findings of a work that has ended. Called by the thread that runs it.
  using Ended = std::function<void(std::vector<Finding>)>;
  using LaunchEnded = std::function<void(LaunchResult)>;

  /// A work's position in its queue. Empty by default: reached already.
  class Mark {
   public:
    Mark() = default;
    bool is_reached() const;

   private:
    friend class Group;
    struct State;
    std::shared_ptr<State> state_;
  };

  /// A grid. LaunchOptions::threads and is_interrupted are ignored. Throws std::invalid_argument as `launch`
  /// does.
  Mark launch(int queue, const Function& function, const LaunchShape& shape,
              std::span<const std::byte> parameters, const LaunchOptions& options, LaunchEnded ended);
  /// Copies between memories of the group. A copy reads and writes in one step, some time after its turn has
  /// come. A copy of an aligned word is a value write, as below: copies of a queue complete in order.
  Mark copy(int queue, std::uint64_t to, std::uint64_t from, std::size_t bytes, Ended ended);
  Mark fill(int queue, std::uint64_t to, std::uint32_t value, int width, std::size_t count, Ended ended);
  /// Copies from host memory, read when the copy's turn comes, or to it.
  Mark upload(int queue, std::uint64_t to, const void* from, std::size_t bytes, Ended ended);
  Mark download(int queue, void* to, std::uint64_t from, std::size_t bytes, Ended ended);
  /// Stores a word after all previous work of the queue. Whoever acquires the word is ordered after that
  /// work.
  Mark write_value(int queue, std::uint64_t address, std::uint32_t value, Ended ended);
  /// The comparison of a word with the awaited value, as cuStreamWaitValue32 does it.
  enum class Compare { at_least, equal, any_bit, no_common_zero };
  static bool is_over(Compare compare, std::uint32_t now,
                      std::uint32_t value);  ///< the wait, with `now` in the word
  Mark wait_value(int queue, std::uint64_t address, std::uint32_t value, Compare compare, Ended ended);
  /// A host function; null: only a mark to wait for.
  Mark call(int queue, std::function<void()> function);
  /// Orders later work of the queue after the mark.
  void wait(int queue, const Mark& mark);
  /// The mark after all work that the queue has now.
  Mark last(int queue);

  // `run` executes work until none is left, `run_until` until the mark is reached, along with other queues'
  // work; the host is then ordered after it. If all remaining work waits in vain, each work ends with a
  // deadlock finding. While all wait, %globaltimer advances: a kernel that polls it reaches its deadline at
  // once, or, with several enqueuing threads, after that time. Throws LaunchInterrupted and drops all work
  // when `is_interrupted`, called some fifty times a second, returns true: each work then ends with a dropped
  // finding, and host functions are not called.
  void run(const std::function<bool()>& is_interrupted = {});
  void run_until(const Mark& mark, const std::function<bool()>& is_interrupted = {});

  struct Inside;

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace jit::emulator
