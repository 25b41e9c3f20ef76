// Work of a group's queues: launches, copies, value waits, host functions.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "machine/group_inside.h"
#include "machine/memory.h"
#include "machine/running_launch.h"

namespace jit::emulator {

inline Finding finding_of(FindingKind kind, std::string what, std::string message) {
  Finding finding;
  finding.kind = kind;
  finding.kernel = std::move(what);
  finding.message = std::move(message);
  return finding;
}

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

  void drop(const std::string& why) override {
    LaunchResult result;
    result.findings.push_back(finding_of(FindingKind::dropped, function.name(), why));
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

// A work that completes in one turn.
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
  void drop(const std::string& why) override {
    findings.push_back(finding_of(FindingKind::dropped, name, why));
    finish();
  }

  std::string name;
  Range to = {}, from = {};
  bool is_value = false;
  std::function<bool(Memory* source, Memory* target)> move;  ///< false: memory is not allocated
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
  void drop(const std::string& why) override {
    findings.push_back(finding_of(FindingKind::dropped, "a wait for a value", why));
    finish();
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

}  // namespace jit::emulator
