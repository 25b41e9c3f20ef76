// Driver handles: numbers that are never reused, so that stale, invalid and mistyped handles are detected.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/emulated_driver/call.h"

namespace jit::emulated_driver {

/// The next handle, unique across all kinds. Distinct from addresses, CU_STREAM_LEGACY and
/// CU_STREAM_PER_THREAD.
inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> next{0x1000};
  return next += 0x10;
}

/// Objects of one kind by handle. Thread safe; an object that is in use outlives its handle.
template <class Handle, class Object>
class HandleTable {
 public:
  /// `kind` names the objects in messages.
  explicit HandleTable(std::string_view kind) : kind_(kind) {}

  Handle add(std::shared_ptr<Object> object) {
    const auto handle = reinterpret_cast<Handle>(next_handle());
    const std::lock_guard lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  /// The object. Fails with CUDA_ERROR_INVALID_HANDLE if there is none.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) refuse();
    return found->second;
  }

  std::shared_ptr<Object> remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) refuse();
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  [[noreturn]] void refuse() const {
    fail(CUDA_ERROR_INVALID_HANDLE, "the handle is none of a " + std::string(kind_) + ", or no longer");
  }

  const std::string_view kind_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<Object>> objects_;
};

}  // namespace jit::emulated_driver
