#include "machine/group_threads.h"

#include <vector>

namespace jit::emulator {

namespace {

/// A thread's places among those of groups, which it leaves at its end.
struct GroupMemberships {
  std::vector<std::weak_ptr<GroupThreads>> groups;

  ~GroupMemberships() {
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
  thread_local GroupMemberships memberships;
  const std::lock_guard lock(to->mutex);
  if (to->ids.insert(std::this_thread::get_id()).second) memberships.groups.push_back(to);
}

}  // namespace jit::emulator
