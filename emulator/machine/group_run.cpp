// Turns of a group's queues.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "machine/group_inside.h"
#include "machine/memory.h"

namespace jit::emulator {

namespace {

// Up to so many powers of 2 of turns.
constexpr std::uint32_t turns_of_holding_back = 10;
constexpr std::uint64_t last_jump = std::uint64_t{1} << 60;
// Total time to wait for other threads when nothing reads the clock, and the length of one wait.
constexpr std::chrono::seconds patience(20);
constexpr std::chrono::milliseconds pause(1);
constexpr std::chrono::milliseconds time_between_asking(20);

}  // namespace

GlobalRaces& Group::Inside::watched() {
  if (races) return *races;
  std::uint64_t begin = global_end, end = global_begin;
  for (Memory* const memory : devices) {
    const MemoryRange range = memory->inside().global.reach();
    begin = std::min(begin, range.begin);
    end = std::max(end, range.begin + range.bytes);
  }
  races = std::make_unique<GlobalRaces>(MemoryRange{begin, end - begin}, order);
  return *races;
}

Memory* Group::Inside::memory_of(std::uint64_t address) const {
  for (Memory* const memory : devices) {
    if (memory->allocation_of(address).bytes > 0) return memory;
  }
  return nullptr;
}

Group::Mark Group::Inside::put(int queue, std::unique_ptr<Work> work) {
  const std::lock_guard lock(mutex);
  Queue& to = queues.at(static_cast<std::size_t>(queue));
  add_this_thread(threads);
  work->host = host;
  Mark mark;
  mark.state_ = to.last = work->mark;
  to.works.push_back(std::move(work));
  to.host_has_waited = false;
  ++changes;
  changed.notify_all();
  return mark;
}

bool Group::Inside::is_over(const std::shared_ptr<Mark::State>& until) const {
  if (until) return until->is_reached.load();
  return std::all_of(queues.begin(), queues.end(), [](const Queue& queue) { return queue.works.empty(); });
}

void Group::Inside::run(const std::shared_ptr<Mark::State>& until,
                        const std::function<bool()>& is_interrupted) {
  std::unique_lock lock(mutex);
  while (!is_over(until) && is_running) changed.wait_for(lock, time_between_asking);
  if (!is_over(until)) {
    is_running = true;
    try {
      run_here(lock, until, is_interrupted);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      is_running = false;
      changed.notify_all();
      throw;
    }
    is_running = false;
    changed.notify_all();
  }
  if (until) {
    learn(host, *until);
    if (is_running) return;
    for (Queue& queue : queues) {
      if (queue.last == until) queue.host_has_waited = true;
    }
  } else if (!is_running) {
    for (Queue& queue : queues) queue.host_has_waited = true;
  } else {
    return;
  }
  forget_if_idle();
}

void Group::Inside::run_here(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Mark::State>& until,
                             const std::function<bool()>& is_interrupted) {
  Clock::time_point asked = Clock::now();
  while (!is_over(until)) {
    if (is_interrupted && Clock::now() - asked > time_between_asking) {
      lock.unlock();
      const bool is_over_now = is_interrupted();
      lock.lock();
      asked = Clock::now();
      if (is_over_now) {
        const std::string why = "what the devices of a group did was interrupted";
        drop_all(why);
        throw LaunchInterrupted(why);
      }
    }
    const std::vector<Queue*> queues_ready = ready();
    if (queues_ready.empty()) {
      // The remaining works wait for each other's marks, or for another group's.
      const std::string why = "the work that is left waits for marks that nothing will reach";
      drop_all(why);
      throw std::logic_error(why);
    }
    take_turn(lock, choose(queues_ready));
    if (all_wait()) let_time_pass(lock);
  }
}

// Queues whose first work can begin or continue.
std::vector<Group::Inside::Queue*> Group::Inside::ready() {
  std::vector<Queue*> found;
  for (Queue& queue : queues) {
    if (queue.works.empty()) continue;
    const auto& behind = queue.works.front()->behind;
    if (std::all_of(behind.begin(), behind.end(), [](const auto& mark) { return mark->is_reached.load(); }))
      found.push_back(&queue);
  }
  return found;
}

// Holds back one queue for a random number of turns while others can continue: works that may run late do.
Group::Inside::Queue& Group::Inside::choose(const std::vector<Queue*>& from) {
  if (turns_held_back == 0) {
    held_back = from[random.below(static_cast<std::uint32_t>(from.size()))];
    turns_held_back = 1 + random.below(1u << random.below(turns_of_holding_back));
  }
  --turns_held_back;
  Queue* const chosen = from[random.below(static_cast<std::uint32_t>(from.size()))];
  if (chosen != held_back) return *chosen;
  for (Queue* const other : from) {
    if (other != held_back && other->works.front()->waits_since != changes.load()) return *other;
  }
  return *chosen;
}

void Group::Inside::take_turn(std::unique_lock<std::mutex>& lock, Queue& queue) {
  Work& work = *queue.works.front();
  for (const auto& mark : std::exchange(work.behind, {})) {
    learn(queue.known, *mark);
    queue.last_grid = nullptr;
  }
  const std::uint64_t before = changes.load();
  lock.unlock();
  const Turn turn = work.turn(*this, queue);
  lock.lock();
  if (turn == Turn::ended) return end_front(queue);
  work.waits_since = turn == Turn::waits && changes == before ? std::optional(before) : std::nullopt;
}

void Group::Inside::end_front(Queue& queue) {
  const std::unique_ptr<Work> work = std::move(queue.works.front());
  queue.works.pop_front();
  work->mark->known = queue.known;
  work->mark->era = era;
  work->mark->is_reached = true;
  ++changes;
  jump = first_jump;
  waited = {};
  changed.notify_all();
  // Finishes under the lock, so that a waiter that sees the mark reached also finds the findings; finish()
  // takes no lock of the group.
  work->finish();
}

bool Group::Inside::all_wait() {
  bool any = false;
  for (const Queue* const queue : ready()) {
    any = true;
    if (queue->works.front()->waits_since != changes.load()) return false;
  }
  return any;
}

void Group::Inside::let_time_pass(std::unique_lock<std::mutex>& lock) {
  const bool is_watched = clock.reads != reads_at_jump;
  reads_at_jump = clock.reads;
  if (threads->count() > 1) {
    const Clock::time_point begin = Clock::now();
    changed.wait_for(lock, pause);
    const Clock::duration passed = Clock::now() - begin;
    waited += passed;
    clock.now += static_cast<std::uint64_t>(std::chrono::nanoseconds(passed).count());
    if (!is_watched && waited > patience) return stop_all();
  } else if (is_watched && jump < last_jump) {
    clock.now += jump;
    jump *= 8;
  } else {
    return stop_all();
  }
  ++changes;
}

void Group::Inside::stop_all() {
  std::string text = "nothing can go on";
  for (const Queue* const queue : ready()) text += queue->works.front()->waits_for();
  for (const Queue* const queue : ready()) {
    queue->works.front()->waits_since = {};
    queue->works.front()->stop_as_deadlock(text);
  }
}

// Tells before marks are reached, so that a thread that waits for one finds that its work did not run.
void Group::Inside::drop_all(const std::string& why) {
  for (Queue& queue : queues) {
    for (const auto& work : queue.works) {
      work->drop(why);
      work->mark->is_reached = true;
    }
    queue.works.clear();
  }
  changed.notify_all();
}

void Group::Inside::learn(GridClock& known, const Mark::State& mark) const {
  if (mark.era == era) known.join(mark.known);
}

void Group::Inside::forget_if_idle() {
  const bool is_idle = std::all_of(queues.begin(), queues.end(), [](const Queue& queue) {
    return queue.works.empty() && queue.host_has_waited;
  });
  if (!is_idle) return;
  races.reset();
  order = GroupOrder();
  host = {};
  ++era;
  for (Queue& queue : queues) {
    queue.known = {};
    queue.last_grid = nullptr;
  }
}

}  // namespace jit::emulator
