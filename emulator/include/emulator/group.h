// Devices of one process whose work runs side by side.
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

/// Devices with queues of work, as streams are. Work of a queue is done in order, queues side by side: blocks of the grids
/// in front of all queues take turns in an order that the seed decides, in one host thread. So a kernel may wait for what a
/// kernel of another device, or a copy of another queue, is still to write. Memory of all devices is watched for races:
/// what orders two accesses is the order of a queue, a mark, a written value that is acquired, or a release and an
/// acquire whose scopes take in both devices (`.sys`).
///
/// Work is put in at any time, from any thread, and done by `run` and `run_until`, in the thread that calls. Thread safe.
class Group {
 public:
  explicit Group(std::uint64_t seed = 0);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Adds a device. Its memory outlives the group and shares no address with those that are there. Which devices see each
  /// other's memory Memory::enable_peer says.
  int add_device(Memory& memory);
  int add_queue(int device);
  /// The calling thread may put work in: where all that is there waits, the others wait for it, too.
  void note_thread();

  /// When a work has ended: what was wrong with it. Called by the thread that runs it.
  using Ended = std::function<void(std::vector<Finding>)>;
  using LaunchEnded = std::function<void(LaunchResult)>;

  /// The place of a work in its queue. Empty by default: nothing to wait for.
  class Mark {
   public:
    Mark() = default;
    bool is_reached() const;

   private:
    friend class Group;
    struct State;
    std::shared_ptr<State> state_;
  };

  /// A grid. LaunchOptions::threads and is_interrupted do not count. Throws std::invalid_argument as `launch` does.
  Mark launch(int queue, const Function& function, const LaunchShape& shape,
              std::span<const std::byte> parameters, const LaunchOptions& options, LaunchEnded ended);
  /// Between memories of the group; a copy reads at once and writes at once, some time when its turn has come. That of an
  /// aligned word is a written value, as below: copies of a queue end one behind another.
  Mark copy(int queue, std::uint64_t to, std::uint64_t from, std::size_t bytes, Ended ended);
  Mark fill(int queue, std::uint64_t to, std::uint32_t value, int width, std::size_t count, Ended ended);
  /// From memory of the host, which is read when the turn has come, and to it.
  Mark upload(int queue, std::uint64_t to, const void* from, std::size_t bytes, Ended ended);
  Mark download(int queue, void* to, std::uint64_t from, std::size_t bytes, Ended ended);
  /// Stores a word behind all that is in front of it in the queue, which whoever acquires the word is ordered behind.
  Mark write_value(int queue, std::uint64_t address, std::uint32_t value, Ended ended);
  /// How a word is compared with the value that is waited for, as cuStreamWaitValue32 does.
  enum class Compare { at_least, equal, any_bit, no_common_zero };
  static bool is_over(Compare compare, std::uint32_t now,
                      std::uint32_t value);  ///< the wait, with `now` in the word
  Mark wait_value(int queue, std::uint64_t address, std::uint32_t value, Compare compare, Ended ended);
  /// A function of the host; null for a place to wait for.
  Mark call(int queue, std::function<void()> function);
  /// Further work of the queue is behind the mark.
  void wait(int queue, const Mark& mark);
  /// Behind all that is in the queue now.
  Mark last(int queue);

  // Do work until nothing is left, or the mark is reached; work of other queues is done as it comes. The host is behind
  // what it waited for. Where all that is left waits for what nobody will do, that ends with a deadlock each. %globaltimer
  // goes on where all wait; a kernel that watches it comes to its deadline at once, or, where several threads have put work
  // in, after that time, since one of them may bring more. Throws LaunchInterrupted, and drops all work, when
  // `is_interrupted`, which is asked some fifty times a second, says so.
  void run(const std::function<bool()>& is_interrupted = {});
  void run_until(const Mark& mark, const std::function<bool()>& is_interrupted = {});

  struct Inside;

 private:
  std::unique_ptr<Inside> inside_;
};

}  // namespace jit::emulator
