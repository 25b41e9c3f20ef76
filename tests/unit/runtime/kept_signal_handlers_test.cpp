// Handlers of signals beside a library that sets its own: functions of the C library stand for these.
#include "runtime/kept_signal_handlers.h"

#include <dlfcn.h>

#include <csignal>

#include <gtest/gtest.h>

namespace jit {
namespace {

using Handler = void (*)(int);

Handler current(int signal) {
  struct sigaction action;
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

class KeptHandlers : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlsym(RTLD_DEFAULT, "abs");
    ASSERT_NE(library_, nullptr);
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  }
  void TearDown() override { SetUp(); }

  // As the library does.
  void set_of_library() const {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, reinterpret_cast<Handler>(library_));
  }

  static void of_program(int) {}
  static void of_program_later(int) {}

  void* library_ = nullptr;
};

TEST_F(KeptHandlers, StandAgainAfterTheLibraryHasSetItsOwn) {
  std::signal(SIGINT, of_program);
  KeptSignalHandlers handlers(library_);
  set_of_library();
  handlers.restore();
  EXPECT_EQ(current(SIGINT), of_program);
  EXPECT_EQ(current(SIGTERM), SIG_DFL);
}

TEST_F(KeptHandlers, MayBeChangedByTheProgram) {
  std::signal(SIGINT, of_program);
  KeptSignalHandlers handlers(library_);
  std::signal(SIGINT, of_program_later);
  handlers.restore();
  EXPECT_EQ(current(SIGINT), of_program_later);
  set_of_library();
  handlers.restore();
  EXPECT_EQ(current(SIGINT), of_program_later);
}

// As a compile that begins while the library's handlers of another one stand.
TEST_F(KeptHandlers, AreThoseThatAnyKeeperHasSeen) {
  std::signal(SIGINT, of_program);
  {
    const KeptSignalHandlers before(library_);
    set_of_library();
  }
  KeptSignalHandlers handlers(library_);
  set_of_library();
  handlers.restore();
  EXPECT_EQ(current(SIGINT), of_program);
}

}  // namespace
}  // namespace jit
