// What a machine without a driver sees; where there is one these tests skip.
#include "runtime/driver_api.h"

#include <jit/device.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/context.h"
#include "runtime/device_buffer.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "runtime/timer.h"

namespace jit {
namespace {

bool driver_works() {
  try {
    driver();
    return true;
  } catch (const Error&) {
    return false;
  }
}

template <class Call>
void expect_no_driver(Call call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::driver_unavailable);
    EXPECT_THAT(error.message(), testing::HasSubstr("CUDA"));
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
  }
}

TEST(DriverApi, WithoutADriverEveryCallGivesTheSameClearError) {
  if (driver_works()) GTEST_SKIP() << "this machine has a CUDA driver";
  for (int i = 0; i < 3; ++i) expect_no_driver([] { driver(); });
  expect_no_driver([] { devices(); });
  expect_no_driver([] { device_info(0); });
  expect_no_driver([] { current_device(); });
  expect_no_driver([] { CurrentContext context(0); });
  expect_no_driver([] { Module module({}); });
  expect_no_driver([] { DeviceBuffer buffer(0, 16); });
  expect_no_driver([] { EventTimer timer(0); });
  expect_no_driver([] { launch(nullptr, {}, nullptr, nullptr); });
}

TEST(DriverApi, SuccessNeedsNoDriver) { check(CUDA_SUCCESS, "cuInit"); }

TEST(DeviceBuffer, AnEmptyOneNeedsNoDriver) {
  DeviceBuffer empty;
  const DeviceBuffer moved = std::move(empty);
  EXPECT_EQ(moved.size(), 0u);
  EXPECT_EQ(moved.data(), nullptr);
  EXPECT_THROW(moved.upload("x", 1), Error);
}

}  // namespace
}  // namespace jit
