#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "command.h"

namespace jit::tool {
namespace {

constexpr int bar_width = 24;
constexpr std::size_t label_width = 48;  // with the bar and the numbers, less than 80 columns
constexpr const char* erase_line = "\r\x1b[K";

}  // namespace

ProgressLine::ProgressLine() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  const std::lock_guard lock(mutex_);
  wipe();
}

void ProgressLine::wipe() {
  if (drawn_) print_to_stderr(erase_line);
  drawn_ = false;
}

void ProgressLine::show(std::string_view label, int done, int total) {
  if (!is_terminal_) return;
  const std::lock_guard lock(mutex_);
  std::string line = erase_line;
  if (total > 0) {
    const int filled = std::clamp(done * bar_width / total, 0, bar_width);
    line += fmt::format("[{:#<{}}{:.<{}}] {}/{} ", "", filled, "", bar_width - filled, done, total);
  }
  line += label.substr(0, label_width);
  print_to_stderr(line);
  drawn_ = true;
}

Observer ProgressLine::observer() {
  return [this](const Event& event) {
    if (event.kind == Event::Kind::tune) show(event.message, event.done, event.total);
    if (event.kind != Event::Kind::warning) return;
    const std::lock_guard lock(mutex_);
    wipe();
    print_to_stderr(fmt::format("jit-attention: warning: {}\n", one_line(event.message)));
  };
}

}  // namespace jit::tool
