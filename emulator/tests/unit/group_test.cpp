// Devices of a group: kernels that wait for each other, copies, values, and the races between devices.
#include <emulator/group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/ptx_run.h"

namespace jit::emulator::testing::group {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t apart = std::uint64_t{1} << 40;
constexpr int devices = 3;

/// Three devices that see each other's memory, a queue each and another one of device 0 for copies.
class GroupTest : public ::testing::TestWithParam<int> {
 protected:
  GroupTest() {
    for (Memory* const memory : {&memories_[0], &memories_[1], &memories_[2]}) {
      group_.add_device(*memory);
      for (Memory& other : memories_) {
        if (&other != memory) memory->enable_peer(other);
      }
    }
    for (int device = 0; device < devices; ++device) group_.add_queue(device);
    copies_ = group_.add_queue(0);
    for (Memory& memory : memories_) {
      data_.push_back(memory.upload(std::vector<std::uint32_t>(1024, 0)));
      flags_.push_back(memory.upload(std::vector<std::uint32_t>(64, 0)));
    }
  }

  /// A block of 64 threads; %rd60 and %rd61 are `in` and `out`, %rd62 the word of the thread in `out`.
  void run(int device, const std::string& body, std::uint64_t in, std::uint64_t out, unsigned blocks = 1,
           bool dependent = false) {
    const std::string places =
        "  mul.wide.u32 %rd1, %r60, 4;\n  add.u64 %rd59, %rd1, %rd60;\n  add.u64 %rd62, %rd1, %rd61;\n";
    const Function function = Module(kernel_of(places + body), {9, 0, 'a'}).functions().front();
    LaunchShape shape{.grid = {blocks, 1, 1}, .block = {64, 1, 1}};
    shape.dependent = dependent;
    group_.launch(device, function, shape, function.arguments(in, out), {.seed = seed()},
                  [this](LaunchResult result) { note(result.findings); });
  }
  void note(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) found_ += to_string(finding) + "\n";
  }
  Group::Ended noting() {
    return [this](const std::vector<Finding>& findings) { note(findings); };
  }
  std::string found() { return std::exchange(found_, {}); }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(GetParam()); }

  std::array<Memory, devices> memories_ = {Memory(1 << 20), Memory(1 << 20, global_begin + apart),
                                           Memory(1 << 20, global_begin + 2 * apart)};
  std::vector<std::uint64_t> data_, flags_;  // by device
  Group group_{static_cast<std::uint64_t>(GetParam())};
  int copies_ = 0;
  std::string found_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, GroupTest, ::testing::Range(0, 4));

const std::string barrier = "  bar.sync 0;\n";
// Stores 7 to the thread's word of `out`, and a flag behind the words, 256 bytes on.
const std::string store = "  st.global.u32 [%rd62], 7;\n";
std::string flag(const std::string& how, int value = 1) {
  return "  setp.eq.u32 %p1, %r60, 0;\n  @%p1 " + how + ".u32 [%rd61+256], " + std::to_string(value) + ";\n";
}
// Waits until the flag behind `in` has a value.
std::string wait_for(const std::string& how, int value = 1) {
  return "WAIT:\n  " + how + ".u32 %r1, [%rd60+256];\n  setp.ne.u32 %p2, %r1, " + std::to_string(value) +
         ";\n  @%p2 bra WAIT;\n";
}
// Adds one to the word of `in` and stores it to that of `out`.
const std::string load =
    "  ld.global.u32 %r2, [%rd59];\n  add.u32 %r2, %r2, 1;\n  st.global.u32 [%rd62], %r2;\n";

TEST_P(GroupTest, AKernelWaitsForAnotherDevices) {
  run(1, wait_for("ld.acquire.sys.global") + load, data_[1], data_[2] + 1024);
  run(0, store + barrier + flag("st.release.sys.global"), data_[0], data_[1]);
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[2].download<std::uint32_t>(data_[2] + 1024, 64), std::vector<std::uint32_t>(64, 8));
}

TEST_P(GroupTest, FencesStandForReleaseAndAcquire) {
  const std::string fence = "  fence.acq_rel.sys;\n";
  run(1, wait_for("ld.relaxed.sys.global") + fence + load, data_[1], data_[2]);
  run(0, store + barrier + fence + flag("st.relaxed.sys.global"), data_[0], data_[1]);
  group_.run();
  EXPECT_EQ(found(), "");
  const std::string narrow = "  fence.acq_rel.gpu;\n";
  run(1, wait_for("ld.relaxed.sys.global", 2) + fence + load, data_[1], data_[2]);
  run(0, store + barrier + narrow + flag("st.relaxed.sys.global", 2), data_[0], data_[1]);
  group_.run();
  EXPECT_THAT(found(), HasSubstr("data race"));
}

struct Wrong {
  const char* what;
  std::string store, flag, wait;
};

TEST_P(GroupTest, WhatDoesNotOrderDevicesIsARace) {
  const std::string release = flag("st.release.sys.global"), acquire = wait_for("ld.acquire.sys.global");
  const Wrong all[] = {
      {"relaxed wait", store + barrier, release, wait_for("ld.relaxed.sys.global")},
      {"acquire of scope gpu", store + barrier, release, wait_for("ld.acquire.gpu.global")},
      {"relaxed flag", store + barrier, flag("st.relaxed.sys.global"), acquire},
      {"release of scope gpu", store + barrier, flag("st.release.gpu.global"), acquire},
      {"plain flag", store + barrier, flag("st.global"), acquire},
      {"no barrier", store, release, acquire},
  };
  for (const Wrong& wrong : all) {
    memories_[1].fill(data_[1], 0, 4, 1024);
    run(1, wrong.wait + load, data_[1], data_[2]);
    run(0, wrong.store + wrong.flag, data_[0], data_[1]);
    group_.run();
    EXPECT_THAT(found(), HasSubstr("data race")) << wrong.what;
  }
  memories_[1].fill(data_[1], 0, 4, 1024);
  run(1, acquire + load, data_[1], data_[2]);
  run(0, release + barrier + store, data_[0], data_[1]);  // the flag before the data
  group_.run();
  const std::string text = found();
  EXPECT_THAT(text, HasSubstr("data race"));
  EXPECT_THAT(text, HasSubstr("of device"));
}

TEST_P(GroupTest, ScopeOfTheGpuOrdersBlocksOfOneDevice) {
  // Two grids of one device, on two queues.
  run(0, wait_for("ld.acquire.gpu.global") + load, data_[1], data_[2]);
  const std::string places = "  mul.wide.u32 %rd1, %r60, 4;\n  add.u64 %rd62, %rd1, %rd61;\n";
  const Function function =
      Module(kernel_of(places + store + barrier + flag("st.release.gpu.global")), {9, 0, 'a'})
          .functions()
          .front();
  group_.launch(copies_, function, {.block = {64, 1, 1}}, function.arguments(data_[0], data_[1]), {},
                [this](LaunchResult result) { note(result.findings); });
  group_.run();
  EXPECT_EQ(found(), "");
}

TEST_P(GroupTest, AWrittenValueReleasesTheCopiesInFrontOfIt) {
  memories_[0].fill(data_[0], 41, 4, 64);
  run(1, wait_for("ld.acquire.sys.global", 5) + load, data_[1], data_[2]);
  group_.copy(copies_, data_[1], data_[0], 256, noting());
  group_.write_value(copies_, data_[1] + 256, 5, noting());
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[2].download<std::uint32_t>(data_[2], 64), std::vector<std::uint32_t>(64, 42));

  run(1, wait_for("ld.acquire.sys.global", 6) + load, data_[1], data_[2]);
  group_.write_value(copies_, data_[1] + 256, 6, noting());
  group_.copy(copies_, data_[1], data_[0], 256, noting());
  group_.run();
  EXPECT_THAT(found(), HasSubstr("a copy")) << "the flag before the copy";

  run(1, wait_for("ld.relaxed.sys.global", 7) + load, data_[1], data_[2]);
  group_.copy(copies_, data_[1], data_[0], 256, noting());
  group_.write_value(copies_, data_[1] + 256, 7, noting());
  group_.run();
  EXPECT_THAT(found(), HasSubstr("data race")) << "no acquire";
}

TEST_P(GroupTest, ACopiedWordIsAWrittenValue) {
  memories_[0].fill(data_[0], 41, 4, 64);
  memories_[0].fill(data_[0] + 256, 5, 4, 1);
  run(1, wait_for("ld.acquire.sys.global", 5) + load, data_[1], data_[2]);
  group_.copy(copies_, data_[1], data_[0], 256, noting());
  group_.copy(copies_, data_[1] + 256, data_[0] + 256, 4, noting());
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[2].download<std::uint32_t>(data_[2], 64), std::vector<std::uint32_t>(64, 42));

  memories_[0].fill(data_[0] + 256, 6, 4, 1);
  run(1, wait_for("ld.acquire.sys.global", 6) + load, data_[1], data_[2]);
  group_.copy(copies_, data_[1] + 256, data_[0] + 256, 4, noting());
  group_.copy(copies_, data_[1], data_[0], 256, noting());
  group_.run();
  EXPECT_THAT(found(), HasSubstr("a copy")) << "the flag before the copy";
}

TEST_P(GroupTest, AQueueWaitsForAValue) {
  group_.wait_value(copies_, data_[1] + 256, 1, Group::Compare::equal, noting());
  group_.copy(copies_, data_[2], data_[1], 256, noting());
  run(1, store + barrier + flag("st.release.sys.global"), data_[0], data_[1]);
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[2].download<std::uint32_t>(data_[2], 64), std::vector<std::uint32_t>(64, 7));
  group_.wait_value(copies_, data_[1] + 256, 9, Group::Compare::equal, noting());
  group_.run();
  EXPECT_THAT(found(), HasSubstr("waits for 9"));
}

TEST_P(GroupTest, QueuesAndMarksOrder) {
  run(0, store, data_[0], data_[1]);
  group_.wait(1, group_.last(0));
  run(1, load, data_[1], data_[2]);
  group_.run();
  EXPECT_EQ(found(), "");
  run(0, store, data_[0], data_[1]);
  run(1, load, data_[1], data_[2]);
  group_.run();
  EXPECT_THAT(found(), HasSubstr("data race")) << "nothing orders them";
  // The host waits between the two.
  run(0, store, data_[0], data_[1]);
  group_.run_until(group_.last(0));
  run(1, load, data_[1], data_[2]);
  group_.run();
  EXPECT_EQ(found(), "");
}

TEST_P(GroupTest, DependentGridsWait) {
  run(0, store, data_[0], data_[1]);
  run(0, "  griddepcontrol.wait;\n" + load, data_[1], data_[2], 1, true);
  group_.run();
  EXPECT_EQ(found(), "");
  run(0, store, data_[0], data_[1]);
  run(0, load + "  griddepcontrol.wait;\n", data_[1], data_[2], 1, true);
  group_.run();
  EXPECT_THAT(found(), HasSubstr("data race"));
}

TEST_P(GroupTest, WhereAllPollItIsADeadlock) {
  run(0, wait_for("ld.acquire.sys.global"), data_[0], data_[1]);
  run(1, wait_for("ld.acquire.sys.global"), data_[1], data_[0]);
  group_.run();
  const std::string text = found();
  EXPECT_THAT(text, HasSubstr("deadlock"));
  EXPECT_THAT(text, HasSubstr("nothing can go on"));
  // And afterwards the devices are of use.
  run(0, store, data_[0], data_[1]);
  group_.run();
  EXPECT_EQ(found(), "");
}

// Gives up when %globaltimer is 30 seconds on.
const std::string patient =
    "  mov.u64 %rd2, %globaltimer;\n  add.u64 %rd2, %rd2, 30000000000;\n"
    "WAIT:\n  ld.acquire.sys.global.u32 %r1, [%rd60+256];\n  setp.eq.u32 %p2, %r1, 1;\n  @%p2 bra DONE;\n"
    "  mov.u64 %rd3, %globaltimer;\n  setp.lt.u64 %p2, %rd3, %rd2;\n  @%p2 bra WAIT;\n"
    "  st.global.u32 [%rd62], 99;\nDONE:\n";

TEST_P(GroupTest, TimeGoesOnWhereAllWait) {
  run(0, patient, data_[0], data_[1]);
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[1].download<std::uint32_t>(data_[1], 64), std::vector<std::uint32_t>(64, 99));
  // Not while another device works.
  run(0, patient, data_[1], data_[2]);
  run(1,
      "  mov.u32 %r3, 20000;\nLOOP:\n  sub.u32 %r3, %r3, 1;\n  setp.ne.u32 %p1, %r3, 0;\n  @%p1 bra LOOP;\n" +
          flag("st.release.sys.global"),
      data_[0], data_[1]);
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[2].download<std::uint32_t>(data_[2], 64), std::vector<std::uint32_t>(64, 0));
}

TEST_P(GroupTest, OtherThreadsMayBringWhatIsWaitedFor) {
  run(1, patient, data_[1], data_[2]);
  std::thread other([&] {
    group_.note_thread();
    run(0, store + barrier + flag("st.release.sys.global"), data_[0], data_[1]);
    group_.run_until(group_.last(0));
  });
  group_.note_thread();
  other.join();
  group_.run();
  EXPECT_EQ(found(), "");
  EXPECT_EQ(memories_[2].download<std::uint32_t>(data_[2], 64), std::vector<std::uint32_t>(64, 0));
}

// Whoever waits for other work of the group learns that it did not run.
TEST_P(GroupTest, AnInterruptTellsAllWork) {
  bool is_called = false;
  run(0, "LOOP: bra LOOP;\n", data_[0], data_[1]);
  run(1, store, data_[1], data_[2]);
  group_.wait(1, group_.last(0));
  group_.fill(1, data_[2], 5, 4, 16, noting());
  group_.call(1, [&] { is_called = true; });
  const Group::Mark last = group_.last(1);
  int asked = 0;
  EXPECT_THROW(group_.run([&] { return ++asked > 2; }), LaunchInterrupted);
  EXPECT_TRUE(last.is_reached());
  EXPECT_FALSE(is_called);
  const std::string text = found();
  EXPECT_THAT(text, HasSubstr("dropped"));
  EXPECT_THAT(text, HasSubstr("a fill"));
  EXPECT_THAT(text, HasSubstr("was interrupted"));
  run(1, store, data_[1], data_[2]);
  group_.run();
  EXPECT_EQ(found(), "");
}

TEST_P(GroupTest, PeersMustBeEnabled) {
  memories_[0].disable_peer(memories_[1]);
  run(0, store, data_[0], data_[1]);
  group_.run();
  EXPECT_THAT(found(), HasSubstr("out of bounds"));
}

TEST_P(GroupTest, BadArgumentsAreToldAtOnce) {
  const Function function = Module(kernel_of(""), {9, 0, 'a'}).functions().front();
  EXPECT_THROW(
      group_.launch(0, function, {.block = {2048, 1, 1}}, function.arguments(data_[0], data_[1]), {}, {}),
      std::invalid_argument);
  group_.copy(0, data_[0], 64, 16, noting());
  group_.run();
  EXPECT_THAT(found(), HasSubstr("not allocated as a whole"));
}

}  // namespace
}  // namespace jit::emulator::testing::group
