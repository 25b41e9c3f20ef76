// Recently used objects, found by comparison instead of by a digest.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace jit {

/// The last few added objects, not owned. Thread safe.
template <class T>
class Recent {
 public:
  /// An object for which `is_it` holds, or null.
  template <class IsIt>
  const T* find(const IsIt& is_it) const {
    for (const std::atomic<const T*>& slot : slots_) {
      const T* object = slot.load(std::memory_order_acquire);
      if (object != nullptr && is_it(*object)) return object;
    }
    return nullptr;
  }

  /// Adds an object, replacing the oldest one. It must live as long as this table.
  void add(const T* object) {
    slots_[next_.fetch_add(1, std::memory_order_relaxed) % slots_.size()].store(object,
                                                                                std::memory_order_release);
  }

 private:
  std::array<std::atomic<const T*>, 4> slots_ = {};  // the layers of a model have one or two kinds
  std::atomic<std::size_t> next_ = 0;
};

}  // namespace jit
