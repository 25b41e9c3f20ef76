// Keeps the program's handlers of Ctrl-C and SIGTERM. NVRTC's front end sets its own for the whole process, which end the
// program with status 4 and without a message.
#pragma once

#include <csignal>

namespace jit {

/// The program's handlers of SIGINT and SIGTERM, beside a library that may set its own at any time. They are those of the
/// process, so that all keepers share what one has seen. Thread safe.
class KeptSignalHandlers {
 public:
  /// `in_library`: the address of any function of the library.
  explicit KeptSignalHandlers(const void* in_library);

  /// Sets the program's handlers again where the library's stand, and otherwise notes what stands: the program may change
  /// its handlers meanwhile. To be called often: between two calls a signal can meet the library's handler.
  void restore();

 private:
  bool is_of_library(const struct sigaction& action) const;

  const void* library_;
};

}  // namespace jit
