#include "machine/residency.h"

#include <utility>

namespace jit::emulator {

bool Residency::enter() {
  const std::lock_guard lock(mutex_);
  if (most_ != 0 && running_ == most_) return false;
  ++running_;
  return true;
}

void Residency::leave() {
  const std::lock_guard lock(mutex_);
  --running_;
  ++changes_;
}

std::uint64_t Residency::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void Residency::note_change() {
  const std::lock_guard lock(mutex_);
  ++changes_;
}

std::optional<std::string> Residency::note_polling(std::size_t worker, std::uint64_t changes,
                                                   std::string waits) {
  const std::lock_guard lock(mutex_);
  workers_[worker] = {false, changes, std::move(waits)};
  std::string all;
  for (const Worker& other : workers_) {
    if (!other.has_ended && other.polling_since != changes_) return {};
    all += other.waits;
  }
  return all;
}

void Residency::note_end(std::size_t worker) {
  const std::lock_guard lock(mutex_);
  workers_[worker] = {.has_ended = true, .waits = {}};
}

}  // namespace jit::emulator
