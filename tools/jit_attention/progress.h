// Progress on standard error, for people and for logs.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include <jit/observer.h>

namespace jit::tool {

/// Readers of progress: only terminals, by one redrawn line; also files and pipes, by a line every few
/// seconds; or none.
enum class ProgressReaders { terminals, all, none };

/// "31/170 compiling for the pack, 98 s, about 7 min left". Without a total: only the label; without seconds,
/// or too early: no estimate.
std::string progress_text(std::string_view label, int done, int total, double seconds = 0);

/// A redrawn line that the destructor clears, or periodic lines. Thread safe.
class ProgressLine {
 public:
  explicit ProgressLine(ProgressReaders readers = ProgressReaders::terminals,
                        std::chrono::milliseconds between_lines = std::chrono::seconds(5));
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Draws a bar; with `total` 0, only the label. `seconds`: time since the work began.
  void show(std::string_view label, int done, int total, double seconds = 0);

  /// Shows the progress of tuning and packs, and prints warnings as separate lines in any case. Valid as long
  /// as this object.
  Observer observer();

 private:
  void wipe();                                       // Requires: mutex_ is held
  void draw(std::string text, int done, int total);  // Requires: the same
  void print_now_and_then(const std::string& text);  // Requires: the same

  std::mutex mutex_;
  const bool is_terminal_;
  const ProgressReaders readers_;
  const std::chrono::milliseconds between_lines_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
  bool drawn_ = false;
};

}  // namespace jit::tool
