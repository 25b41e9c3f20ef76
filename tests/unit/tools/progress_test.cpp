// Progress: what it says, and how a terminal and a file are told.
#include "tools/jit_attention/progress.h"

#include <pty.h>
#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Progress, EstimatesWhatIsLeft) {
  EXPECT_EQ(progress_text("compiling", 0, 0), "compiling");
  EXPECT_EQ(progress_text("compiling", 3, 10), "3/10 compiling");
  EXPECT_EQ(progress_text("compiling", 3, 10, 0.5), "3/10 compiling") << "too early to tell";
  EXPECT_EQ(progress_text("compiling", 3, 10, 30), "3/10 compiling, 30 s, about 70 s left");
  EXPECT_EQ(progress_text("compiling", 31, 170, 98), "31/170 compiling, 98 s, about 7 min left");
  EXPECT_EQ(progress_text("compiling", 10, 10, 150), "10/10 compiling, 2 min");
}

// The body's output to standard error, which is no terminal.
template <class Body>
std::string written(const Body& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Progress, AFileHasALineNowAndThen) {
  const auto tell = [](ProgressReaders readers, std::chrono::milliseconds between) {
    return written([&] {
      ProgressLine progress(readers, between);
      for (int i = 1; i <= 3; ++i) progress.show("compiling", i, 3, i);
    });
  };
  using std::chrono::hours;
  using std::chrono::milliseconds;
  EXPECT_EQ(tell(ProgressReaders::all, milliseconds(0)),
            "jit-attention: 1/3 compiling, 1 s, about 2 s left\n"
            "jit-attention: 2/3 compiling, 2 s, about 1 s left\n"
            "jit-attention: 3/3 compiling, 3 s\n");
  EXPECT_EQ(tell(ProgressReaders::all, hours(1)), "");
  EXPECT_EQ(tell(ProgressReaders::terminals, milliseconds(0)), "");
  EXPECT_EQ(tell(ProgressReaders::none, milliseconds(0)), "");
}

TEST(Progress, WarningsAreToldInAnyCase) {
  const std::string text = written([] {
    ProgressLine progress(ProgressReaders::none);
    progress.observer()({.kind = Event::Kind::tune, .message = "compiling", .done = 1, .total = 2});
    progress.observer()({.kind = Event::Kind::warning, .message = "spills"});
  });
  EXPECT_EQ(text, "jit-attention: warning: spills\n");
}

TEST(Progress, ATerminalHasOneLineThatIsRewritten) {
  int keyboard = 0, terminal = 0;
  ASSERT_EQ(openpty(&keyboard, &terminal, nullptr, nullptr, nullptr), 0);
  const int before = dup(STDERR_FILENO);
  dup2(terminal, STDERR_FILENO);
  {
    ProgressLine progress;
    progress.show("compiling " + std::string(100, 'x'), 1, 2, 30);
    progress.show("compiling", 2, 2, 60);
  }
  dup2(before, STDERR_FILENO);
  char bytes[4096];
  const ssize_t count = read(keyboard, bytes, sizeof(bytes));
  for (const int file : {keyboard, terminal, before}) close(file);
  ASSERT_GT(count, 0);
  const std::string text(bytes, static_cast<std::size_t>(count));
  EXPECT_THAT(text, HasSubstr("[############............] 1/2 compiling xxx"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[K[########################] 2/2 compiling, 60 s\r\x1b[K"));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  EXPECT_THAT(text, Not(HasSubstr(std::string(60, 'x')))) << "longer than a line";
}

}  // namespace
}  // namespace jit::tool
