// A memory of what was asked for lately, found by comparing instead of by a digest.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace jit {

/// Some of the objects that were added last, which others own. Any number of threads may ask and add.
template <class T>
class Recent {
 public:
  /// One that `is_it`, or null.
  template <class IsIt>
  const T* find(const IsIt& is_it) const {
    for (const std::atomic<const T*>& slot : slots_) {
      const T* object = slot.load(std::memory_order_acquire);
      if (object != nullptr && is_it(*object)) return object;
    }
    return nullptr;
  }

  /// In place of the one that was added first. The object must live as long as this.
  void add(const T* object) {
    slots_[next_.fetch_add(1, std::memory_order_relaxed) % slots_.size()].store(object,
                                                                                std::memory_order_release);
  }

 private:
  std::array<std::atomic<const T*>, 4> slots_ = {};  // layers of an engine's model are of one or two kinds
  std::atomic<std::size_t> next_ = 0;
};

}  // namespace jit
