#include "machine/global_shadow.h"

#include <sys/mman.h>

#include <new>

namespace jit::emulator {
namespace {

// Fresh pages are zero, and cost no memory until they are touched.
void* map_zeros(std::size_t bytes) {
  void* const place =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) throw std::bad_alloc();
  return place;
}

}  // namespace

GlobalShadow::GlobalShadow(std::size_t bytes)
    : page_count_((bytes + page_bytes - 1) / page_bytes),
      pages_(static_cast<std::atomic<Page*>*>(map_zeros(page_count_ * sizeof(std::atomic<Page*>)))) {}

GlobalShadow::~GlobalShadow() {
  for (const Page* page : used_) munmap(const_cast<Page*>(page), sizeof(Page));
  munmap(pages_, page_count_ * sizeof(*pages_));
  for (const auto& chunk : chunks_) delete[] chunk.load();
}

GlobalShadow::Page& GlobalShadow::add_page(std::atomic<Page*>& place) {
  const std::lock_guard lock(mutex_);
  if (Page* const page = place.load()) return *page;
  used_.reserve(used_.size() + 1);
  Page* const page = static_cast<Page*>(map_zeros(sizeof(Page)));
  used_.push_back(page);
  place.store(page, std::memory_order_release);
  return *page;
}

std::uint32_t GlobalShadow::take_accesses(std::uint32_t count) {
  std::uint32_t first = next_access_.load();
  do {
    if (first + count > Touch::most_accesses) return 0;
  } while (!next_access_.compare_exchange_weak(first, first + count));
  for (std::uint32_t chunk = first / chunk_accesses; chunk <= (first + count - 1) / chunk_accesses; ++chunk) {
    if (chunks_[chunk].load(std::memory_order_acquire)) continue;
    const std::lock_guard lock(mutex_);
    if (!chunks_[chunk].load()) chunks_[chunk].store(new GlobalAccess[chunk_accesses]);
  }
  return first;
}

}  // namespace jit::emulator
