#include "runtime/device_selection.h"

#include <jit/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

using Kind = DeviceSelection::Kind;

TEST(DeviceSelection, ReadsWhatItWrites) {
  for (const char* text : {"cuda", "emulated:sm_80", "emulated:sm_90a", "emulated:sm_90a,sm_80,sm_90a"}) {
    EXPECT_TRUE(is_device_selection(text));
    EXPECT_EQ(to_string(parse_device_selection(text)), text);
  }
  EXPECT_EQ(parse_device_selection("cuda").kind, Kind::cuda);
  const DeviceSelection two = parse_device_selection("emulated:sm_90a,sm_80");
  EXPECT_EQ(two.kind, Kind::emulated);
  EXPECT_THAT(two.emulated, testing::ElementsAre(Arch{9, 0, 'a'}, Arch{8, 0, 0}));
}

TEST(DeviceSelection, KnowsEveryArchitecture) {
  for (const Arch arch : known_archs()) {
    EXPECT_THAT(parse_device_selection("emulated:" + to_string(arch)).emulated, testing::ElementsAre(arch));
  }
}

TEST(DeviceSelection, RefusesOtherTextAndSaysWhatWorks) {
  std::string many = "emulated:sm_80";
  for (int i = 0; i < 64; ++i) many += ",sm_80";
  for (const std::string& text :
       {std::string(), std::string("gpu"), std::string("cuda:0"), std::string("Auto"),
        std::string("emulated"), std::string("emulated:"), std::string("emulated:90a"),
        std::string("emulated:sm_1"), std::string("emulated:sm_80,"), std::string("emulated:,sm_80"),
        std::string("emulated:sm_80 "), many}) {
    EXPECT_FALSE(is_device_selection(text)) << text;
    try {
      parse_device_selection(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(), testing::HasSubstr("emulated:sm_90a"));
      EXPECT_THAT(error.message(), testing::HasSubstr("sm_121f"));
    }
  }
}

}  // namespace
}  // namespace jit
