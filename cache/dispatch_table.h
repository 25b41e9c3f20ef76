// Maps digests to ready objects on the launch path: no lock, no allocation, no system call.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cache/digest.h"

namespace jit {

/// Insert-only hash table (open addressing, linear probing). Any number of threads may call `find`
/// concurrently with one another and with `insert`.
template <class T>
class DispatchTable {
 public:
  DispatchTable() { grow(); }
  DispatchTable(const DispatchTable&) = delete;
  DispatchTable& operator=(const DispatchTable&) = delete;

  /// The object of `key`, or null. Valid as long as the table lives.
  const T* find(const Digest& key) const { return current_.load(std::memory_order_acquire)->find(key); }

  /// Adds `value` unless `key` exists; returns the object of `key` in the table.
  const T* insert(const Digest& key, std::unique_ptr<const T> value) {
    const std::lock_guard lock(mutex_);
    if (const T* present = find(key)) return present;
    if (2 * (values_.size() + 1) > tables_.back()->slots.size()) grow();
    values_.push_back(std::move(value));
    tables_.back()->put(key, values_.back().get());
    return values_.back().get();
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  // A slot's key is written once, before its value is published, and read only after the value.
  struct Slot {
    Digest key;
    std::atomic<const T*> value = nullptr;
  };
  struct Table {
    explicit Table(std::size_t size) : slots(size) {}

    // At least half of the slots are empty, so both searches terminate.
    const T* find(const Digest& key) const {
      for (std::size_t index = key.low;; ++index) {
        const Slot& slot = slots[index & (slots.size() - 1)];
        // Loaded once: an empty slot may be taken by another key at any moment.
        const T* value = slot.value.load(std::memory_order_acquire);
        if (value == nullptr || slot.key == key) return value;
      }
    }

    void put(const Digest& key, const T* value) {
      std::size_t index = key.low & (slots.size() - 1);
      while (slots[index].value.load(std::memory_order_relaxed) != nullptr) {
        index = (index + 1) & (slots.size() - 1);
      }
      slots[index].key = key;
      slots[index].value.store(value, std::memory_order_release);
    }

    std::vector<Slot> slots;  // the number of slots is a power of two
  };

  // Publishes a table of twice the size. Readers may still use the old one, so it is kept.
  void grow() {
    const Table* old = tables_.empty() ? nullptr : tables_.back().get();
    auto table = std::make_unique<Table>(old == nullptr ? 64 : 2 * old->slots.size());
    if (old != nullptr) {
      for (const Slot& slot : old->slots) {
        if (const T* value = slot.value.load(std::memory_order_relaxed)) table->put(slot.key, value);
      }
    }
    current_.store(table.get(), std::memory_order_release);
    tables_.push_back(std::move(table));
  }

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<const T>> values_;
  std::atomic<const Table*> current_ = nullptr;
};

}  // namespace jit
