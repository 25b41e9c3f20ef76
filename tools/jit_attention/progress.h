// A progress bar on standard error, for people: nothing shows unless it is a terminal.
#pragma once

#include <mutex>
#include <string_view>

#include <jit/observer.h>

namespace jit::tool {

/// One line that is drawn over and over, and wiped by the destructor. Thread safe.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Draws the bar; `total` 0 gives the label alone.
  void show(std::string_view label, int done, int total);

  /// Shows tuning as a bar, and prints warnings as lines of their own (also when there is no terminal). Valid
  /// as long as this object.
  Observer observer();

 private:
  void wipe();  // Requires: mutex_ is held

  std::mutex mutex_;
  const bool is_terminal_;
  bool drawn_ = false;
};

}  // namespace jit::tool
