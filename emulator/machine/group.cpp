#include <emulator/group.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "machine/global_races.h"
#include "machine/group_order.h"
#include "machine/memory.h"
#include "machine/random.h"
#include "machine/running_launch.h"

namespace jit::emulator {

/// Threads that may put work in, until they end.
struct GroupThreads {
  std::mutex mutex;
  std::set<std::thread::id> ids;

  std::size_t count() {
    const std::lock_guard lock(mutex);
    return ids.size();
  }
};

namespace {

/// A thread's places among those of groups, which it leaves at its end.
struct GroupMemberships {
  std::vector<std::weak_ptr<GroupThreads>> groups;

  ~GroupMemberships() {
    for (const auto& group : groups) {
      if (const auto threads = group.lock()) {
        const std::lock_guard lock(threads->mutex);
        threads->ids.erase(std::this_thread::get_id());
      }
    }
  }
};

void add_this_thread(const std::shared_ptr<GroupThreads>& to) {
  thread_local GroupMemberships memberships;
  const std::lock_guard lock(to->mutex);
  if (to->ids.insert(std::this_thread::get_id()).second) memberships.groups.push_back(to);
}

}  // namespace

struct Group::Mark::State {
  std::atomic<bool> is_reached = false;
  GridClock known = {};   ///< what is in front of it, and itself
  std::uint64_t era = 0;  ///< Inside::era when it was reached
};

namespace {

using Clock = std::chrono::steady_clock;

// What %globaltimer jumps by when all wait, at first: it grows, so that any deadline comes soon.
constexpr std::uint64_t first_jump = 1000;
// Up to so many powers of 2 of turns.
constexpr std::uint32_t turns_of_holding_back = 10;
constexpr std::uint64_t last_jump = std::uint64_t{1} << 60;
// How long other threads are waited for, in all, where nothing watches the time, and at once.
constexpr std::chrono::seconds patience(20);
constexpr std::chrono::milliseconds pause(1);
constexpr std::chrono::milliseconds time_between_asking(20);

enum class Turn { ended, goes_on, waits };

}  // namespace

struct Group::Inside {
  explicit Inside(std::uint64_t seed) : random(seed) {}

  struct Queue;
  /// Something that a queue does.
  struct Work {
    virtual ~Work() = default;
    /// Goes on with it; the lock is not held. Adds to `changes` what others may wait for.
    virtual Turn turn(Inside& group, Queue& queue) = 0;
    /// After its last turn.
    virtual void finish() {}
    /// What it waits for: "; …"
    virtual std::string waits_for() const { return {}; }
    virtual void stop_as_deadlock(std::string) {}

    std::shared_ptr<Mark::State> mark = std::make_shared<Mark::State>();
    std::vector<std::shared_ptr<Mark::State>> behind = {};
    GridClock host = {};                            ///< what the host is behind when it puts it in
    std::optional<std::uint64_t> waits_since = {};  ///< Inside::changes when it last found that it waits
  };
  struct Queue {
    int device = 0;
    std::deque<std::unique_ptr<Work>> works = {};
    GridClock known = {};                    ///< the work that has ended
    GroupMember* last_grid = nullptr;        ///< if the last work was a launch
    std::shared_ptr<Mark::State> last = {};  ///< of all that was put in
    bool host_has_waited = true;             ///< for all that was put in
  };
  struct Launching;
  struct Copying;
  struct Waiting;
  struct Calling;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Memory*> devices;
  std::deque<Queue> queues;
  GridClock host;         // what it has waited for
  std::uint64_t era = 0;  // of numbers, which begin anew when everything has ended and the host knows
  bool is_running = false;
  const std::shared_ptr<GroupThreads> threads = std::make_shared<GroupThreads>();

  // Of the thread that runs.
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
  void drop_all();
  void learn(GridClock& known, const Mark::State& mark) const;
  void forget_if_idle();
};

namespace {

Finding finding_of(FindingKind kind, std::string what, std::string message) {
  Finding finding;
  finding.kind = kind;
  finding.kernel = std::move(what);
  finding.message = std::move(message);
  return finding;
}

}  // namespace

struct Group::Inside::Launching final : Work {
  Launching(const Function& function_in, std::span<const std::byte> parameters_in, const LaunchShape& shape,
            Memory& memory, const LaunchOptions& options, LaunchEnded ended_in)
      : function(function_in),
        parameters(parameters_in.begin(), parameters_in.end()),
        running(function, shape, parameters, memory, options, 1),
        ended(std::move(ended_in)) {}

  void begin(Inside& group, Queue& queue) {
    Launch& launch = running.launch();
    if (!group.order.has_numbers_for(launch.clusters()))
      throw std::runtime_error("too many blocks for one group");
    member = &group.order.add(launch.clusters());
    member->device = queue.device;
    member->name = function.name();
    member->program = function.program();
    member->kernel = &function.kernel();
    member->shape = launch.shape;
    member->before = member->behind_wait = queue.known;
    if (launch.shape.dependent && queue.last_grid) {
      const GroupMember& front = *queue.last_grid;
      member->before = front.lets_behind_wait ? front.behind_wait : front.before;
      member->in_front = front.number;
    }
    member->before.join(host);
    member->behind_wait.join(host);
    launch.member = member;
    launch.clock = &group.clock;
    if (launch.options.check_races) launch.races = &group.watched();
    start = Clock::now();
  }

  Turn turn(Inside& group, Queue& queue) override {
    if (!member) begin(group, queue);
    const std::uint64_t steps = worker().steps(), changes = running.residency().changes();
    const Worker::Turn turn = worker().take_turn();
    group.clock.now += worker().steps() - steps;
    group.changes += running.residency().changes() - changes;
    if (turn == Worker::Turn::ended) {
      queue.known.join(member->behind_wait);
      queue.known.join(member->learned);
      queue.known.join(GroupOrder::end_of(*member));
      queue.last_grid = member;
      return Turn::ended;
    }
    return turn == Worker::Turn::only_polls ? Turn::waits : Turn::goes_on;
  }

  void finish() override {
    LaunchResult result = running.result();
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (ended) ended(std::move(result));
  }

  std::string waits_for() const override { return worker().describe_polling() + worker().describe_next(); }
  void stop_as_deadlock(std::string text) override { worker().stop_as_deadlock(std::move(text)); }
  Worker& worker() const { return *running.workers().front(); }

  const Function function;
  const std::vector<std::byte> parameters;
  RunningLaunch running;
  LaunchEnded ended;
  GroupMember* member = nullptr;
  Clock::time_point start;
};

// Everything that a queue does at once.
struct Group::Inside::Copying final : Work {
  struct Range {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
  };

  Turn turn(Inside& group, Queue& queue) override {
    GroupMember& member = group.order.add(1);
    member.device = queue.device;
    member.name = name;
    queue.known.join(host);
    const GridClock known = queue.known;
    const GlobalRaces::Copy copy{member, known, [&](FindingKind kind, std::string message) {
                                   if (findings.empty())
                                     findings.push_back(finding_of(kind, name, std::move(message)));
                                 }};
    Memory* const source = group.memory_of(from.address);
    Memory* const target = group.memory_of(to.address);
    if ((from.bytes > 0 && !source) || (to.bytes > 0 && !target) || !move(source, target)) {
      findings.push_back(finding_of(FindingKind::out_of_bounds, name,
                                    fmt::format("{} bytes from {:#x} to {:#x} are not allocated as a whole",
                                                std::max(from.bytes, to.bytes), from.address, to.address)));
    } else {
      if (from.bytes > 0) group.watched().read(copy, from.address, from.bytes);
      if (to.bytes > 0 && is_value) {
        group.watched().write_value(copy, to.address);
      } else if (to.bytes > 0) {
        group.watched().write(copy, to.address, to.bytes);
      }
    }
    queue.known.join(GroupOrder::end_of(member));
    queue.last_grid = nullptr;
    return Turn::ended;
  }
  void finish() override {
    if (ended) ended(std::move(findings));
  }

  std::string name;
  Range to = {}, from = {};
  bool is_value = false;
  std::function<bool(Memory* source, Memory* target)> move;  ///< false where it is not allocated
  Ended ended = {};
  std::vector<Finding> findings = {};
};

struct Group::Inside::Waiting final : Work {
  Turn turn(Inside& group, Queue& queue) override {
    std::uint32_t now = 0;
    Memory* const memory = group.memory_of(address);
    if (!memory || !memory->read(&now, address, sizeof now)) {
      findings.push_back(finding_of(FindingKind::out_of_bounds, "a wait for a value",
                                    fmt::format("the word at {:#x} is not allocated", address)));
      return Turn::ended;
    }
    if (!Group::is_over(compare, now, value)) return is_given_up ? Turn::ended : Turn::waits;
    GroupMember& member = group.order.add(1);
    member.device = queue.device;
    member.name = "a wait for a value";
    queue.known.join(host);
    const GridClock known = queue.known;
    const GlobalRaces::Copy copy{
        member, known, [&](FindingKind kind, std::string message) {
          findings.push_back(finding_of(kind, "a wait for a value", std::move(message)));
        }};
    queue.known.join(group.watched().acquired(copy, address));
    queue.last_grid = nullptr;
    return Turn::ended;
  }
  void finish() override {
    if (ended) ended(std::move(findings));
  }
  std::string waits_for() const override {
    return fmt::format("; a queue waits for {} in the word at {:#x}", value, address);
  }
  void stop_as_deadlock(std::string text) override {
    findings.push_back(finding_of(FindingKind::deadlock, "a wait for a value", std::move(text)));
    is_given_up = true;
  }

  std::uint64_t address = 0;
  std::uint32_t value = 0;
  Compare compare = Compare::equal;
  bool is_given_up = false;
  Ended ended = {};
  std::vector<Finding> findings = {};
};

struct Group::Inside::Calling final : Work {
  Turn turn(Inside&, Queue& queue) override {
    queue.known.join(host);
    return Turn::ended;
  }
  void finish() override {
    if (function) function();
  }
  std::function<void()> function;
};

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
        drop_all();
        throw LaunchInterrupted("what the devices of a group did was interrupted");
      }
    }
    const std::vector<Queue*> queues_ready = ready();
    if (queues_ready.empty()) {
      // What is left is behind marks of each other, or of another group's work.
      drop_all();
      throw std::logic_error("the work that is left waits for marks that nothing will reach");
    }
    take_turn(lock, choose(queues_ready));
    if (all_wait()) let_time_pass(lock);
  }
}

// Queues whose first work may begin or go on.
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

// One queue is held back for a while, now and then, as long as others can go on: what may come late does.
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
  // Whoever waits for the mark finds what it has left: it is told with the lock held, which asks for nothing here.
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

void Group::Inside::drop_all() {
  for (Queue& queue : queues) {
    for (const auto& work : queue.works) work->mark->is_reached = true;
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

bool Group::is_over(Compare compare, std::uint32_t now, std::uint32_t value) {
  switch (compare) {
    case Compare::at_least:
      return static_cast<std::int32_t>(now - value) >= 0;
    case Compare::equal:
      return now == value;
    case Compare::any_bit:
      return (now & value) != 0;
    case Compare::no_common_zero:
      return ~(now | value) != 0;
  }
  return true;
}

Group::Group(std::uint64_t seed) : inside_(std::make_unique<Inside>(seed)) {}
Group::~Group() = default;

bool Group::Mark::is_reached() const { return !state_ || state_->is_reached; }

void Group::note_thread() { add_this_thread(inside_->threads); }

int Group::add_device(Memory& memory) {
  std::unique_lock lock(inside_->mutex);
  inside_->changed.wait(lock, [&] { return !inside_->is_running; });
  inside_->devices.push_back(&memory);
  inside_->races.reset();
  return static_cast<int>(inside_->devices.size()) - 1;
}

int Group::add_queue(int device) {
  const std::lock_guard lock(inside_->mutex);
  inside_->devices.at(static_cast<std::size_t>(device));
  inside_->queues.push_back({.device = device});
  return static_cast<int>(inside_->queues.size()) - 1;
}

Group::Mark Group::launch(int queue, const Function& function, const LaunchShape& shape,
                          std::span<const std::byte> parameters, const LaunchOptions& options,
                          LaunchEnded ended) {
  Memory* memory = nullptr;
  {
    const std::lock_guard lock(inside_->mutex);
    memory =
        inside_
            ->devices[static_cast<std::size_t>(inside_->queues.at(static_cast<std::size_t>(queue)).device)];
  }
  return inside_->put(queue, std::make_unique<Inside::Launching>(function, parameters, shape, *memory,
                                                                 options, std::move(ended)));
}

Group::Mark Group::copy(int queue, std::uint64_t to, std::uint64_t from, std::size_t bytes, Ended ended) {
  auto work = std::make_unique<Inside::Copying>();
  work->name = "a copy";
  work->to = {to, bytes};
  work->from = {from, bytes};
  work->move = [=](Memory* source, Memory* target) {
    if (bytes == 0) return true;
    if (source == target) return source->copy(to, from, bytes);
    std::vector<std::byte> staged(bytes);
    return source->read(staged.data(), from, bytes) && target->write(to, staged.data(), bytes);
  };
  work->ended = std::move(ended);
  return inside_->put(queue, std::move(work));
}

Group::Mark Group::fill(int queue, std::uint64_t to, std::uint32_t value, int width, std::size_t count,
                        Ended ended) {
  auto work = std::make_unique<Inside::Copying>();
  work->name = "a fill";
  work->to = {to, count * static_cast<std::size_t>(width)};
  work->move = [=](Memory*, Memory* target) { return count == 0 || target->fill(to, value, width, count); };
  work->ended = std::move(ended);
  return inside_->put(queue, std::move(work));
}

Group::Mark Group::upload(int queue, std::uint64_t to, const void* from, std::size_t bytes, Ended ended) {
  auto work = std::make_unique<Inside::Copying>();
  work->name = "a copy from the host";
  work->to = {to, bytes};
  work->move = [=](Memory*, Memory* target) { return bytes == 0 || target->write(to, from, bytes); };
  work->ended = std::move(ended);
  return inside_->put(queue, std::move(work));
}

Group::Mark Group::download(int queue, void* to, std::uint64_t from, std::size_t bytes, Ended ended) {
  auto work = std::make_unique<Inside::Copying>();
  work->name = "a copy to the host";
  work->from = {from, bytes};
  work->move = [=](Memory* source, Memory*) { return bytes == 0 || source->read(to, from, bytes); };
  work->ended = std::move(ended);
  return inside_->put(queue, std::move(work));
}

Group::Mark Group::write_value(int queue, std::uint64_t address, std::uint32_t value, Ended ended) {
  auto work = std::make_unique<Inside::Copying>();
  work->name = "a written value";
  work->to = {address, sizeof value};
  work->is_value = true;
  work->move = [=](Memory*, Memory* target) { return target->write(address, &value, sizeof value); };
  work->ended = std::move(ended);
  return inside_->put(queue, std::move(work));
}

Group::Mark Group::wait_value(int queue, std::uint64_t address, std::uint32_t value, Compare compare,
                              Ended ended) {
  auto work = std::make_unique<Inside::Waiting>();
  work->address = address;
  work->value = value;
  work->compare = compare;
  work->ended = std::move(ended);
  return inside_->put(queue, std::move(work));
}

Group::Mark Group::call(int queue, std::function<void()> function) {
  auto work = std::make_unique<Inside::Calling>();
  work->function = std::move(function);
  return inside_->put(queue, std::move(work));
}

void Group::wait(int queue, const Mark& mark) {
  if (!mark.state_) return;
  auto work = std::make_unique<Inside::Calling>();
  work->behind.push_back(mark.state_);
  inside_->put(queue, std::move(work));
}

Group::Mark Group::last(int queue) {
  const std::lock_guard lock(inside_->mutex);
  Inside::Queue& of = inside_->queues.at(static_cast<std::size_t>(queue));
  Mark mark;
  mark.state_ = of.last;
  return mark;
}

void Group::run(const std::function<bool()>& is_interrupted) { inside_->run(nullptr, is_interrupted); }

void Group::run_until(const Mark& mark, const std::function<bool()>& is_interrupted) {
  if (mark.state_) inside_->run(mark.state_, is_interrupted);
}

}  // namespace jit::emulator
