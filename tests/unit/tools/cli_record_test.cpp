// jit-attention record, on emulated devices.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/error.h>
#include <recorder/record.h>

#include "emulator/micro_kernels/blackwell.h"
#include "emulator/micro_kernels/recording.h"
#include "tests/support/cli_testing.h"

namespace jit::testing {
namespace {

using conformance::Recordings;
using ::testing::HasSubstr;

class CliRecord : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return tool_.folder / name; }
  ToolResult record(const std::string& device, std::vector<std::string> more) const {
    more.insert(more.begin(), {"record", "--device", device});
    return tool_.run(more);
  }

  Tool tool_;
};

TEST_F(CliRecord, WritesWhatEveryProgramGives) {
  for (const std::string target : {"sm_100a", "sm_120a"}) {
    const std::string path = file(target);
    const ToolResult result = record("emulated:" + target, {"--out", path});
    ASSERT_EQ(result.status, 0) << result.out << result.err;
    const Recordings recordings = conformance::read_recordings(path);
    for (const conformance::Family& family : conformance::blackwell_families(target)) {
      for (const conformance::MicroKernel& kernel : family.kernels) {
        const auto found = recordings.find(kernel.name);
        ASSERT_NE(found, recordings.end()) << kernel.name;
        EXPECT_TRUE(is_of(found->second, kernel)) << kernel.name;
        EXPECT_NE(found->second.output, conformance::contents(kernel, -1)) << kernel.name;
      }
    }
    const ToolResult again = record("emulated:" + target, {"--compare", path});
    EXPECT_EQ(again.status, 0) << again.out;
    EXPECT_THAT(again.out, HasSubstr("0 failed, 0 differ from emulated " + target));
  }
}

TEST_F(CliRecord, SaysWhatDiffers) {
  const std::string path = file("record");
  ASSERT_EQ(record("emulated:sm_120a", {"--out", path}).status, 0);
  Recordings recordings = conformance::read_recordings(path);
  recordings.at("add.rn.f32x2").output.at(4) ^= std::byte{1};
  recordings.at("max.f32 of three").ptx_hash = 0;
  recordings.erase("elect.sync");
  conformance::write_recordings(path, recordings);
  const ToolResult result = record("emulated:sm_120a", {"--compare", path, "--out", file("other")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("add.rn.f32x2: 1 of 704 elements differ"));
  EXPECT_THAT(result.out, HasSubstr("  element 1"));
  EXPECT_THAT(result.out, HasSubstr("max.f32 of three: recorded of another version of this program\n"));
  EXPECT_THAT(result.out, HasSubstr("elect.sync: not recorded\n"));
  EXPECT_THAT(result.out, HasSubstr(", 3 differ from emulated sm_120a"));
  const auto json = record("emulated:sm_120a", {"--compare", path, "--json"}).json();
  EXPECT_EQ(json["target"], "sm_120a");
  EXPECT_EQ(json["failed"].size(), 0u);
  ASSERT_EQ(json["different"].size(), 3u);
  EXPECT_EQ(json["different"][0]["program"], "add.rn.f32x2");
}

TEST_F(CliRecord, RefusesInASentence) {
  expect_bad_input(record("emulated:sm_100a", {}), "record needs --out FILE, --compare FILE, or both");
  expect_bad_input(record("emulated:sm_90a", {"--out", file("x")}),
                   "sm_120a and sm_121a, and the device is sm_90a");
  expect_bad_input(record("gpu", {"--out", file("x")}), "--device must be cuda:N or emulated:ARCH");
  expect_bad_input(record("emulated:sm_1", {"--out", file("x")}), "emulated:sm_90a");
  expect_bad_input(record("emulated:sm_100a", {"--compare", file("none")}), file("none"));
  write_text(file("text"), "no record");
  expect_bad_input(record("emulated:sm_100a", {"--compare", file("text")}), "is no file of recordings");
  conformance::write_recordings(file("hopper"), {});
  expect_bad_input(record("emulated:sm_100a", {"--compare", file("hopper")}),
                   "is no file of jit-attention record");
  conformance::write_recordings(file("text"), {{"target", {}}, {"device", {}}});
  expect_bad_input(record("emulated:sm_100a", {"--compare", file("text"), "--out", file("text")}),
                   "would be written over");
  ASSERT_EQ(record("emulated:sm_120a", {"--out", file("record")}).status, 0);
  expect_bad_input(record("emulated:sm_100a", {"--compare", file("record")}),
                   "is of sm_120a, and the device is sm_100a; compare with --device emulated:sm_120a");
  const ToolResult absent = record("cuda", {"--out", file("x")});
  EXPECT_EQ(absent.status, 1);
  EXPECT_EQ(std::count(absent.err.begin(), absent.err.end(), '\n'), 1) << absent.err;
  EXPECT_THAT(absent.err, HasSubstr("CUDA driver"));
}

// Whatever goes wrong while a device is opened, beside a name that no device has, is no bad input.
TEST(Record, ErrorsOfTheDeviceAreNoBadInput) {
  EXPECT_THROW(conformance::ask_device([]() -> int { throw std::bad_alloc(); }), std::runtime_error);
  EXPECT_THROW(conformance::ask_device([]() -> int { throw std::runtime_error("no memory"); }),
               std::runtime_error);
  EXPECT_THROW(conformance::ask_device([]() -> int {
                 throw Error(ErrorCode::invalid_argument, "open", "device", "there is none");
               }),
               std::invalid_argument);
}

}  // namespace
}  // namespace jit::testing
