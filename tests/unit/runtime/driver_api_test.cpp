// A program that insists on GPUs, on a machine without a driver; where there is one these tests skip.
#include "runtime/driver_api.h"

#include <jit/device.h>
#include <jit/device_buffer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/launch.h"
#include "runtime/module.h"
#include "runtime/timer.h"

namespace jit {
namespace {

bool driver_works() {
  use_device("cuda");
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
  expect_no_driver([] { CurrentDevice context(0); });
  expect_no_driver([] { Module module(std::span<const std::byte>{}); });
  expect_no_driver([] { DeviceBuffer buffer(0, 16); });
  expect_no_driver([] { EventTimer timer(0); });
  expect_no_driver([] { launch(nullptr, {}, nullptr, nullptr); });
}

TEST(DriverApi, ThereIsOneChoiceForAProcess) {
  use_device("cuda");
  driver_works();
  use_device("cuda");
  try {
    use_device("emulated:sm_90a,sm_80");
    ADD_FAILURE() << "the devices of a running process were changed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.message(), testing::HasSubstr("computes on cuda already"));
    EXPECT_THAT(error.message(), testing::HasSubstr("emulated:sm_90a,sm_80"));
  }
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
