#include "runtime/kept_signal_handlers.h"

#include <dlfcn.h>

#include <cstddef>

namespace jit {
namespace {

// Where the library that holds an address begins; none if no library does.
const void* library_of(const void* address) {
  Dl_info info;
  return address != nullptr && dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

KeptSignalHandlers::KeptSignalHandlers(const void* in_library) : library_(library_of(in_library)) {
  restore();
}

bool KeptSignalHandlers::is_of_library(const struct sigaction& action) const {
  const auto* const handler = reinterpret_cast<const void*>(action.sa_handler);
  return library_ != nullptr && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
         library_of(handler) == library_;
}

void KeptSignalHandlers::restore() {
  for (std::size_t i = 0; i < signals.size(); ++i) {
    struct sigaction action;
    if (sigaction(signals[i], nullptr, &action) != 0) continue;
    if (!is_of_library(action)) {
      of_program_[i] = action;
    } else if (of_program_[i]) {
      sigaction(signals[i], &*of_program_[i], nullptr);
    }
  }
}

}  // namespace jit
