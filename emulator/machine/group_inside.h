// A group of devices: its queues, and the order of their turns.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <emulator/group.h>

#include "machine/global_races.h"
#include "machine/group_order.h"
#include "machine/group_threads.h"
#include "machine/random.h"

namespace jit::emulator {

struct Group::Mark::State {
  std::atomic<bool> is_reached = false;
  GridClock known = {};   ///< previous work and its own
  std::uint64_t era = 0;  ///< Inside::era when it was reached
};

struct Group::Inside {
  using Clock = std::chrono::steady_clock;
  enum class Turn { ended, goes_on, waits };
  /// First jump of %globaltimer when all work waits; jumps grow, so that any deadline comes soon.
  static constexpr std::uint64_t first_jump = 1000;

  explicit Inside(std::uint64_t seed) : random(seed) {}

  struct Queue;
  /// A unit of work in a queue.
  struct Work {
    virtual ~Work() = default;
    /// Runs one turn, without the lock. Increments `changes` for effects that others may wait for.
    virtual Turn turn(Inside& group, Queue& queue) = 0;
    /// Called after its last turn.
    virtual void finish() {}
    /// Its part of a deadlock's message: "; …"
    virtual std::string waits_for() const { return {}; }
    virtual void stop_as_deadlock(std::string) {}
    /// Tells whoever enqueued it that it will not end.
    virtual void drop(const std::string& /*why*/) {}

    std::shared_ptr<Mark::State> mark = std::make_shared<Mark::State>();
    std::vector<std::shared_ptr<Mark::State>> behind = {};
    GridClock host = {};                            ///< the host's knowledge at the enqueue
    std::optional<std::uint64_t> waits_since = {};  ///< Inside::changes when it last found that it waits
  };
  struct Queue {
    int device = 0;
    std::deque<std::unique_ptr<Work>> works = {};
    GridClock known = {};                    ///< knowledge of the work that has ended
    GroupMember* last_grid = nullptr;        ///< the last work, if it was a launch
    std::shared_ptr<Mark::State> last = {};  ///< mark of the last enqueued work
    bool host_has_waited = true;             ///< for all enqueued work
  };
  struct Launching;
  struct Copying;
  struct Waiting;
  struct Calling;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Memory*> devices;
  std::deque<Queue> queues;
  GridClock host;         // the host's knowledge
  std::uint64_t era = 0;  // of cluster numbers; they restart when all work has ended and the host knows it
  bool is_running = false;
  const std::shared_ptr<GroupThreads> threads = std::make_shared<GroupThreads>();

  // Owned by the thread that runs.
  Random random;
  GroupOrder order;
  std::unique_ptr<GlobalRaces> races;
  GroupClock clock;
  const Queue* held_back = nullptr;
  std::uint32_t turns_held_back = 0;
  std::atomic<std::uint64_t> changes = 0;  // that others may wait for
  std::uint64_t reads_at_jump = 0, jump = first_jump;
  Clock::duration waited = {};

  GlobalRaces& watched();
  Memory* memory_of(std::uint64_t address) const;
  Mark put(int queue, std::unique_ptr<Work> work);
  void run(const std::shared_ptr<Mark::State>& until, const std::function<bool()>& is_interrupted);
  void run_here(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Mark::State>& until,
                const std::function<bool()>& is_interrupted);
  bool is_over(const std::shared_ptr<Mark::State>& until) const;
  std::vector<Queue*> ready();
  Queue& choose(const std::vector<Queue*>& from);
  void take_turn(std::unique_lock<std::mutex>& lock, Queue& queue);
  void end_front(Queue& queue);
  bool all_wait();
  void let_time_pass(std::unique_lock<std::mutex>& lock);
  void stop_all();
  void drop_all(const std::string& why);
  void learn(GridClock& known, const Mark::State& mark) const;
  void forget_if_idle();
};

}  // namespace jit::emulator
