#include "machine/memory.h"

#include <emulator/module.h>

namespace jit::emulator {

std::optional<std::uint64_t> Memory::Inside::place(const std::shared_ptr<const Program>& program) {
  if (program->globals.empty()) return 0;
  const std::lock_guard lock(mutex_);
  const auto placed = variables_.find(program);
  if (placed != variables_.end()) return placed->second;
  const std::uint64_t address = place_globals(*program, global);
  if (address == 0) return std::nullopt;
  variables_.emplace(program, address);
  return address;
}

void Memory::Inside::remove(const std::shared_ptr<const Program>& program) {
  const std::lock_guard lock(mutex_);
  const auto placed = variables_.find(program);
  if (placed == variables_.end()) return;
  global.free(placed->second);
  variables_.erase(placed);
}

Memory::Memory(std::size_t capacity, std::uint64_t begin)
    : inside_(std::make_unique<Inside>(capacity, begin)) {}
Memory::~Memory() = default;

std::uint64_t Memory::allocate(std::size_t bytes) { return inside_->global.allocate(bytes); }
bool Memory::free(std::uint64_t address) { return inside_->global.free(address); }
MemoryRange Memory::allocation_of(std::uint64_t address) const {
  return inside_->global.allocation_of(address);
}
std::size_t Memory::capacity() const { return inside_->global.capacity(); }
std::size_t Memory::allocated() const { return inside_->global.allocated(); }

void Memory::enable_peer(Memory& peer) { inside_->global.enable_peer(peer.inside_->global); }
void Memory::disable_peer(Memory& peer) { inside_->global.disable_peer(peer.inside_->global); }
bool Memory::is_peer(const Memory& memory) const { return inside_->global.is_peer(memory.inside_->global); }

bool Memory::write(std::uint64_t to, const void* from, std::size_t bytes) {
  return inside_->global.write(to, from, bytes);
}
bool Memory::read(void* to, std::uint64_t from, std::size_t bytes) const {
  return inside_->global.read(to, from, bytes);
}
bool Memory::copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  return inside_->global.copy(to, from, bytes);
}
bool Memory::fill(std::uint64_t to, std::uint32_t value, int width, std::size_t count) {
  return inside_->global.fill(to, value, width, count);
}

bool Memory::load(const Module& module) { return inside_->place(module.program()).has_value(); }
void Memory::unload(const Module& module) { inside_->remove(module.program()); }

}  // namespace jit::emulator
