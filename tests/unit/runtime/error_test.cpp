#include <jit/error.h>

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

using ::testing::HasSubstr;

TEST(Error, CarriesItsParts) {
  const Error error({.code = ErrorCode::compile_failed,
                     .stage = "compile",
                     .message = "it did not compile",
                     .field = "spec.mask",
                     .native_code = 6,
                     .log = "the whole log",
                     .source = "the program"});
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_EQ(error.stage(), "compile");
  EXPECT_EQ(error.message(), "it did not compile");
  EXPECT_EQ(error.field(), "spec.mask");
  EXPECT_EQ(error.native_code(), 6);
  EXPECT_EQ(error.log(), "the whole log");
  EXPECT_EQ(error.source(), "the program");
  EXPECT_THAT(error.what(), HasSubstr("it did not compile"));
}

TEST(Error, TheShorthandLeavesTheRestEmpty) {
  const Error error(ErrorCode::offline, "compile", "cache", "forbidden");
  EXPECT_EQ(error.field(), "cache");
  EXPECT_EQ(error.native_code(), 0);
  EXPECT_EQ(error.log(), "");
  EXPECT_EQ(error.source(), "");
}

TEST(Error, IsAStandardException) {
  try {
    throw Error(ErrorCode::io_error, "dump", "folder", "cannot write");
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write"));
  }
}

TEST(Error, OutlivesTheOriginalOnAnotherThread) {
  auto original = std::make_unique<Error>(ErrorCode::io_error, "dump", "folder", "cannot write");
  const Error copy = *original;
  std::jthread([&] { original.reset(); }).join();
  EXPECT_EQ(copy.message(), "cannot write");
  EXPECT_EQ(copy.field(), "folder");
}

TEST(ErrorCode, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::io_error); ++code) {
    const std::string_view name = to_string(static_cast<ErrorCode>(code));
    EXPECT_FALSE(name.empty()) << code;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(to_string(ErrorCode::invalid_spec), "invalid_spec");
  EXPECT_EQ(to_string(ErrorCode::io_error), "io_error");
}

}  // namespace
}  // namespace jit
