#include "progress.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "command.h"

namespace jit::tool {
namespace {

constexpr int bar_width = 24;
constexpr std::size_t text_width = 52;  // less than 80 columns including the bar
constexpr const char* erase_line = "\r\x1b[K";
constexpr double too_short_to_tell = 1;  // seconds

std::string duration(double seconds) {
  constexpr double in_minutes_from = 120;
  return seconds < in_minutes_from ? fmt::format("{:.0f} s", seconds)
                                   : fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace

std::string progress_text(std::string_view label, int done, int total, double seconds) {
  if (total <= 0) return std::string(label);
  std::string text = fmt::format("{}/{} {}", done, total, label);
  if (seconds < too_short_to_tell || done <= 0) return text;
  text += ", " + duration(seconds);
  if (done < total) text += fmt::format(", about {} left", duration(seconds / done * (total - done)));
  return text;
}

ProgressLine::ProgressLine(ProgressReaders readers, std::chrono::milliseconds between_lines)
    : is_terminal_(isatty(STDERR_FILENO) == 1), readers_(readers), between_lines_(between_lines) {}

ProgressLine::~ProgressLine() {
  const std::lock_guard lock(mutex_);
  wipe();
}

void ProgressLine::wipe() {
  if (drawn_) print_to_stderr(erase_line);
  drawn_ = false;
}

void ProgressLine::draw(std::string text, int done, int total) {
  std::string line = erase_line;
  if (total > 0) {
    const int filled = std::clamp(done * bar_width / total, 0, bar_width);
    line += fmt::format("[{:#<{}}{:.<{}}] ", "", filled, "", bar_width - filled);
  }
  line += text.substr(0, text_width);
  print_to_stderr(line);
  drawn_ = true;
}

void ProgressLine::print_now_and_then(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_line_ < between_lines_) return;
  last_line_ = now;
  print_to_stderr(fmt::format("jit-attention: {}\n", text));
}

void ProgressLine::show(std::string_view label, int done, int total, double seconds) {
  if (readers_ == ProgressReaders::none || (!is_terminal_ && readers_ == ProgressReaders::terminals)) return;
  const std::lock_guard lock(mutex_);
  std::string text = progress_text(label, done, total, seconds);
  if (is_terminal_) {
    draw(std::move(text), done, total);
  } else {
    print_now_and_then(text);
  }
}

Observer ProgressLine::observer() {
  return [this](const Event& event) {
    if (event.kind == Event::Kind::tune) show(event.message, event.done, event.total, event.seconds);
    if (event.kind != Event::Kind::warning) return;
    const std::lock_guard lock(mutex_);
    wipe();
    print_to_stderr(fmt::format("jit-attention: warning: {}\n", one_line(event.message)));
  };
}

}  // namespace jit::tool
