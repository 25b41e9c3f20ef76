#include "machine/group_threads.h"

#include <vector>

namespace jit::emulator {

namespace {

// Whether the thread's destructors have run; static objects of the main thread may still call.
thread_local bool has_left = false;

/// A thread's memberships in groups; its end removes them.
struct GroupMemberships {
  std::vector<std::weak_ptr<GroupThreads>> groups;

  ~GroupMemberships() {
    has_left = true;
    for (const auto& group : groups) {
      if (const auto threads = group.lock()) {
        const std::lock_guard lock(threads->mutex);
        threads->ids.erase(std::this_thread::get_id());
      }
    }
  }
};

}  // namespace

void add_this_thread(const std::shared_ptr<GroupThreads>& to) {
  if (has_left) return;
  thread_local GroupMemberships memberships;
  const std::lock_guard lock(to->mutex);
  if (to->ids.insert(std::this_thread::get_id()).second) memberships.groups.push_back(to);
}

}  // namespace jit::emulator
