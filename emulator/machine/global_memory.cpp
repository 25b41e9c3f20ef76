#include "machine/global_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t gap = 256;

std::size_t round_up(std::size_t value) { return (value + alignment - 1) / alignment * alignment; }

template <class T>
T* reserve(std::size_t bytes) {
  void* const place =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(place);
}

}  // namespace

GlobalMemory::GlobalMemory(std::size_t capacity, std::uint64_t begin)
    : capacity_(std::max<std::size_t>(capacity / alignment, 1) * alignment), begin_(begin) {
  if (begin_ >= shared_window || capacity_ > shared_window - begin_) throw std::bad_alloc();
  bytes_ = reserve<std::byte>(capacity_);
  try {
    shadow_ = reserve<std::uint8_t>(capacity_);
  } catch (...) {
    munmap(bytes_, capacity_);
    throw;
  }
}

GlobalMemory::~GlobalMemory() {
  munmap(bytes_, capacity_);
  munmap(shadow_, capacity_);
}

// The first offset in [from, to) where `bytes` bytes and the following gap are free; `to`: none.
std::uint64_t GlobalMemory::find_room(std::uint64_t from, std::uint64_t to, std::size_t bytes) const {
  auto after = allocations_.lower_bound(begin_ + from);
  if (after != allocations_.begin()) {
    const auto& [address, size] = *std::prev(after);
    from = std::max<std::uint64_t>(from, round_up(address - begin_ + size) + gap);
  }
  for (; from < to; ++after) {
    const std::uint64_t end = after == allocations_.end() ? capacity_ : after->first - begin_;
    if (from <= end && round_up(bytes) + gap <= end - from) return from;
    if (after == allocations_.end()) break;
    from = round_up(end + after->second) + gap;
  }
  return to;
}

std::uint64_t GlobalMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes >= capacity_) return 0;
  std::uint64_t offset = find_room(next_, capacity_, bytes);
  if (offset >= capacity_) {
    offset = find_room(0, next_, bytes);
    if (offset >= next_) return 0;
  }
  next_ = offset + round_up(bytes) + gap;
  allocations_[begin_ + offset] = bytes;
  set(offset, bytes, State::allocated);
  return begin_ + offset;
}

// Returns pages without allocations to the system, which zeroes them: unallocated.
void GlobalMemory::clear(std::uint64_t offset, std::size_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t end = offset + bytes;
  const std::uint64_t first = offset / page * page, last = end / page * page;
  // The first and last page may be shared with other allocations.
  set(offset, std::min(end, first + page) - offset, State::unallocated);
  if (last > first) set(last, end - last, State::unallocated);
  const auto is_unused = [&](std::uint64_t begin) {
    return begin + page <= capacity_ &&
           std::all_of(shadow_ + begin, shadow_ + begin + page, [](std::uint8_t state) {
             return state == static_cast<std::uint8_t>(State::unallocated);
           });
  };
  const std::uint64_t from = is_unused(first) ? first : first + page;
  const std::uint64_t to = is_unused(last) ? last + page : last;
  if (from >= to) return;
  if (madvise(shadow_ + from, to - from, MADV_DONTNEED) == 0) {
    madvise(bytes_ + from, to - from, MADV_DONTNEED);
  } else {
    set(from, to - from, State::unallocated);
  }
}

bool GlobalMemory::free(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  clear(address - begin_, found->second);
  allocations_.erase(found);
  return true;
}

void GlobalMemory::enable_peer(GlobalMemory& peer) {
  const std::lock_guard lock(mutex_);
  if (&peer != this && std::find(peers_.begin(), peers_.end(), &peer) == peers_.end())
    peers_.push_back(&peer);
}

void GlobalMemory::disable_peer(GlobalMemory& peer) {
  const std::lock_guard lock(mutex_);
  std::erase(peers_, &peer);
}

bool GlobalMemory::is_peer(const GlobalMemory& memory) const {
  const std::lock_guard lock(mutex_);
  return std::find(peers_.begin(), peers_.end(), &memory) != peers_.end();
}

MemoryRange GlobalMemory::reach() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t begin = begin_, end = begin_ + capacity_;
  for (const GlobalMemory* const peer : peers_) {
    begin = std::min(begin, peer->begin_);
    end = std::max(end, peer->begin_ + peer->capacity_);
  }
  return {begin, end - begin};
}

GlobalMemory* GlobalMemory::peer_of(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const GlobalMemory* peer) {
    return address - peer->begin_ < peer->capacity_;
  });
  return found == peers_.end() ? nullptr : *found;
}

// Accesses memory of the peer itself; peers of the peer are not reachable.
std::byte* GlobalMemory::at_peer(std::uint64_t address, std::size_t bytes) const {
  const GlobalMemory* const peer = address - begin_ < capacity_ ? nullptr : peer_of(address);
  if (!peer || bytes > peer->capacity_ - (address - peer->begin_)) return nullptr;
  return peer->at(address, bytes);
}

const std::byte* GlobalMemory::written_at_peer(std::uint64_t address, std::size_t bytes) const {
  const std::byte* const place = at_peer(address, bytes);
  return place && is_written_at_peer(address, bytes) ? place : nullptr;
}

bool GlobalMemory::is_written_at_peer(std::uint64_t address, std::size_t bytes) const {
  return peer_of(address)->is_written(address, bytes);
}

void GlobalMemory::mark_written_at_peer(std::uint64_t address, std::size_t bytes) {
  peer_of(address)->mark_written(address, bytes);
}

MemoryRange GlobalMemory::allocation_of(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return {};
  const auto& [begin, bytes] = *std::prev(after);
  return address - begin < bytes ? MemoryRange{begin, bytes} : MemoryRange{};
}

std::size_t GlobalMemory::allocated() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [address, bytes] : allocations_) sum += bytes;
  return sum;
}

std::string GlobalMemory::describe(std::uint64_t address) const {
  if (address - begin_ >= capacity_) {
    if (const GlobalMemory* const peer = peer_of(address))
      return peer->describe(address) + " of another device";
  }
  const std::lock_guard lock(mutex_);
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) {
    return fmt::format("{:#x} lies {}", address,
                       address < 4096 ? "next to the null pointer" : "below everything that is allocated");
  }
  const auto& [begin, bytes] = *std::prev(after);
  if (address - begin < bytes) {
    return fmt::format("{:#x} is byte {} of the {} bytes at {:#x}", address, address - begin, bytes, begin);
  }
  return fmt::format("{:#x} lies {} bytes behind the end of the {} bytes at {:#x}", address,
                     address - begin - bytes, bytes, begin);
}

std::byte* GlobalMemory::allocated_as_a_whole(std::uint64_t address, std::size_t bytes) const {
  const MemoryRange range = allocation_of(address);
  if (range.bytes == 0 || bytes > range.bytes - (address - range.begin)) return nullptr;
  return bytes_ + (address - begin_);
}

bool GlobalMemory::write(std::uint64_t to, const void* from, std::size_t bytes) {
  if (bytes == 0) return true;
  std::byte* const place = allocated_as_a_whole(to, bytes);
  if (!place) return false;
  std::memcpy(place, from, bytes);
  mark_written(to, bytes);
  return true;
}

bool GlobalMemory::read(void* to, std::uint64_t from, std::size_t bytes) const {
  if (bytes == 0) return true;
  const std::byte* const place = allocated_as_a_whole(from, bytes);
  if (!place) return false;
  std::memcpy(to, place, bytes);
  return true;
}

bool GlobalMemory::copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  if (bytes == 0) return true;
  std::byte* const target = allocated_as_a_whole(to, bytes);
  const std::byte* const source = allocated_as_a_whole(from, bytes);
  if (!target || !source) return false;
  std::memmove(target, source, bytes);
  std::memmove(shadow_ + (to - begin_), shadow_ + (from - begin_), bytes);
  return true;
}

bool GlobalMemory::fill(std::uint64_t to, std::uint32_t value, int width, std::size_t count) {
  const auto step = static_cast<std::size_t>(width);
  if (width < 1 || width > 4 || count > capacity_ / step) return false;
  if (count == 0) return true;
  std::byte* const place = allocated_as_a_whole(to, step * count);
  if (!place) return false;
  for (std::size_t i = 0; i < count; ++i) std::memcpy(place + i * step, &value, step);
  mark_written(to, step * count);
  return true;
}

bool GlobalMemory::every_has_unaligned(std::uint64_t offset, std::size_t bytes, State state) const {
  for (; bytes > 0 && (offset & 7) != 0; ++offset, --bytes) {
    if (!word_has<std::uint8_t>(offset, state)) return false;
  }
  for (; bytes >= 8; offset += 8, bytes -= 8) {
    if (!word_has<std::uint64_t>(offset, state)) return false;
  }
  for (; bytes > 0; ++offset, --bytes) {
    if (!word_has<std::uint8_t>(offset, state)) return false;
  }
  return true;
}

void GlobalMemory::set_unaligned(std::uint64_t offset, std::size_t bytes, State state) {
  for (; bytes > 0 && (offset & 7) != 0; ++offset, --bytes) set_word<std::uint8_t>(offset, state);
  for (; bytes >= 8; offset += 8, bytes -= 8) set_word<std::uint64_t>(offset, state);
  for (; bytes > 0; ++offset, --bytes) set_word<std::uint8_t>(offset, state);
}

}  // namespace jit::emulator
