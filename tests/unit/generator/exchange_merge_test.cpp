// Specs, programs, buffers and arguments of exchange_merge, without a device.
#include <jit/exchange_merge.h>

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/operations/exchange_merge/arguments.h"
#include "generator/operations/exchange_merge/program.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

TEST(ExchangeMergeSpecTest, RefusesWhatCannotBeServed) {
  const std::vector<std::pair<const char*, ExchangeMergeSpec>> wrong = {
      {"spec.dtype", {.dtype = DType::int32}},
      {"spec.out_dtype", {.out_dtype = DType::uint8}},
      {"spec.head_dim_v", {.head_dim_v = 1025}},
      {"spec.alignment", {.alignment = 3}},
      {"spec.ranks", {.ranks = 0}},
      {"spec.ranks", {.ranks = 17}},
      {"spec.share", {.share = static_cast<ExchangeShare>(3)}}};
  for (const auto& [field, spec] : wrong) {
    const Error error = error_of([&, spec = spec] { validate(spec); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), field);
  }
  validate(ExchangeMergeSpec());
}

TEST(ExchangeMergeSpecTest, EachFieldMakesAnotherProgram) {
  const std::vector<ExchangeMergeSpec> specs = {{},
                                                {.dtype = DType::bf16},
                                                {.out_dtype = DType::fp16},
                                                {.head_dim_v = 64},
                                                {.alignment = 8},
                                                {.ranks = 4},
                                                {.share = ExchangeShare::heads},
                                                {.share = ExchangeShare::tokens}};
  std::set<std::string> sources;
  for (const ExchangeMergeSpec& spec : specs) sources.insert(exchange_merge_program(spec).source);
  EXPECT_EQ(sources.size(), specs.size());
}

// A header; for each tile two flags a rank, and two rows a rank with their lse.
TEST(ExchangeMergeBytesTest, CountsTilesOfTheRankThatReceivesTheMost) {
  const ExchangeMergeSpec spec{.dtype = DType::bf16, .out_dtype = DType::bf16, .ranks = 2};
  const std::size_t tile = 2 * 2 * 8 + 2 * 2 * 16 * (256 + 4);  // 256 threads, 16 a row
  EXPECT_EQ(exchange_merge_bytes(spec, 1, 64), 256 + 4 * tile);
  EXPECT_EQ(exchange_merge_bytes(spec, 0, 64), 256 + tile);
  ExchangeMergeSpec heads = spec;
  heads.share = ExchangeShare::heads;
  EXPECT_EQ(exchange_merge_bytes(heads, 1, 64), 256 + 2 * tile);
  EXPECT_EQ(exchange_merge_bytes(heads, 1, 33), 256 + 2 * tile) << "17 heads of 33";
  EXPECT_EQ(error_of([&] { exchange_merge_bytes(spec, std::int64_t{1} << 40, 2); }).field(), "tokens");
  EXPECT_EQ(error_of([&] { exchange_merge_bytes(spec, 2, -1); }).field(), "heads");
  EXPECT_EQ(error_of([&] { exchange_merge_bytes({.ranks = 99}, 2, 2); }).code(), ErrorCode::invalid_spec);
}

TEST(ExchangeFaultTest, SaysWhatWasSeen) {
  EXPECT_THAT((ExchangeFault{.peer = 2, .call = 7, .call_seen = 5}.to_string()),
              HasSubstr("rank 2 has not delivered call 7 in time; the last that was seen was 5"));
  EXPECT_THAT((ExchangeFault{.peer = 2, .call = 7}.to_string()), HasSubstr("none of the calls"));
  EXPECT_THAT((ExchangeFault{.peer = 1, .call = 7, .call_seen = 7, .rows = 4, .rows_seen = 8}.to_string()),
              HasSubstr("rank 1 exchanges 8 rows in call 7, and this rank 4"));
  EXPECT_THAT((ExchangeFault{.peer = 1, .call = 7, .rows_seen = -1}.to_string()),
              HasSubstr("has had a fault before"));
}

}  // namespace
}  // namespace jit::testing
