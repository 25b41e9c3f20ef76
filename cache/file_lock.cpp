#include "cache/file_lock.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "cache/atomic_file.h"

namespace jit {

FileLock acquire_lock(FileSystem& file_system, int directory, const std::string& folder,
                      const std::string& name, std::chrono::milliseconds timeout) {
  const std::string path = folder + "/" + name;
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int opened = file_system.openat(directory, path.c_str(), flags, 0600);
  if (opened < 0 && errno == ENOENT) {
    create_folder(file_system, directory, folder);
    opened = file_system.openat(directory, path.c_str(), flags, 0600);
  }
  if (opened < 0) return {};
  OwnedFile file(file_system, opened);

  // Polls: only a signal can interrupt a blocking flock.
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::chrono::milliseconds pause(1);
  while (file_system.flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return {};
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return {};
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
    pause = std::min(2 * pause, std::chrono::milliseconds(16));
  }
  return FileLock(std::move(file));
}

}  // namespace jit
