#include <emulator/group.h>

#include <cstring>
#include <utility>

#include "machine/group_inside.h"
#include "machine/group_work.h"

namespace jit::emulator {

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
  work->is_value = bytes == 4 && to % 4 == 0;
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
