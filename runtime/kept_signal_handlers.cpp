#include "runtime/kept_signal_handlers.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>

namespace jit {
namespace {

constexpr std::array signals = {SIGINT, SIGTERM};

// The handlers that stood last and were not the library's.
struct OfProgram {
  std::mutex mutex;
  std::array<std::optional<struct sigaction>, signals.size()> handlers;
};
OfProgram& of_program() {
  static OfProgram handlers;
  return handlers;
}

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
  OfProgram& program = of_program();
  const std::lock_guard lock(program.mutex);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    struct sigaction action;
    if (sigaction(signals[i], nullptr, &action) != 0) continue;
    if (!is_of_library(action)) {
      program.handlers[i] = action;
    } else if (program.handlers[i]) {
      sigaction(signals[i], &*program.handlers[i], nullptr);
    }
  }
}

}  // namespace jit
