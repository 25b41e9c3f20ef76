// Takes permissions from a process for a while, and from the processes that it starts meanwhile.
#pragma once

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <thread>

namespace jit::testing {

/// No file can be made longer than `bytes` while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

/// Calls `work` where the programs that it starts must keep to the permissions of files, even those of root.
template <class Work>
void without_privileges(const Work& work) {
  std::thread([&] {
    // This thread alone. A user other than root has nothing to drop, and this fails.
    for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH}) prctl(PR_CAPBSET_DROP, capability);
    work();
  }).join();
}

}  // namespace jit::testing
