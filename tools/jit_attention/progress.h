// Progress on standard error, for people and for logs.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include <jit/observer.h>

namespace jit::tool {

/// Who is told: terminals alone, by one line that is drawn over and over; also files and pipes, by a line every few
/// seconds; or nobody.
enum class ProgressReaders { terminals, all, none };

/// "31/170 compiling for the pack, 98 s, about 7 min left". Without a total it is the label alone, and without seconds, or
/// where these tell little yet, there is no estimate.
std::string progress_text(std::string_view label, int done, int total, double seconds = 0);

/// One line that is drawn over and over, and wiped by the destructor, or a line now and then. Thread safe.
class ProgressLine {
 public:
  explicit ProgressLine(ProgressReaders readers = ProgressReaders::terminals,
                        std::chrono::milliseconds between_lines = std::chrono::seconds(5));
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Draws a bar; `total` 0 gives the label alone. `seconds` have passed since the work began.
  void show(std::string_view label, int done, int total, double seconds = 0);

  /// Shows tuning, and what packs are made of, and prints warnings as lines of their own, whoever is told of progress.
  /// Valid as long as this object.
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
