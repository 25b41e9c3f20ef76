#include "generator/tuning/tuning_record.h"

#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/spec_table.h>

#include "generator/kernels/retired_fields.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

DeviceInfo h200() {
  return {.name = "NVIDIA H200",
          .arch = {9, 0, 0},
          .sm_count = 132,
          .smem_per_block_optin = 232448,
          .smem_per_sm = 233472,
          .registers_per_sm = 65536,
          .l2_bytes = 60 << 20,
          .driver_version = 13000};
}

TEST(SizeClass, RoundsUpToPowersOfTwo) {
  const auto seqlen_class = [](std::int64_t seqlen) { return size_class({.seqlen_q = seqlen}).seqlen_q; };
  EXPECT_EQ(seqlen_class(0), 0);
  EXPECT_EQ(seqlen_class(1), 0);
  EXPECT_EQ(seqlen_class(2), 1);
  EXPECT_EQ(seqlen_class(3), 2);
  EXPECT_EQ(seqlen_class(4), 2);
  EXPECT_EQ(seqlen_class(5), 3);
  EXPECT_EQ(seqlen_class(4096), 12);
  EXPECT_EQ(seqlen_class(4097), 13);
  EXPECT_EQ(seqlen_class(2147479551), 31);
}

TEST(SizeClass, TakesBatchAndHeadsTogether) {
  EXPECT_EQ(size_class({.batch = 4, .heads_q = 8, .seqlen_q = 100, .seqlen_kv = 200}),
            size_class({.batch = 32, .heads_q = 1, .seqlen_q = 128, .seqlen_kv = 256}));
  EXPECT_NE(size_class({.seqlen_q = 100, .seqlen_kv = 200}), size_class({.seqlen_q = 200, .seqlen_kv = 100}));
  EXPECT_NE(size_class({.batch = 32}), size_class({.batch = 33}));
}

TEST(TuningRecord, SurvivesARoundTrip) {
  reference::Random random(reference::test_seed());
  const DeviceInfo device = h200();
  for (int i = 0; i < 100; ++i) {
    const AttentionSpec spec = reference::random_spec(random);
    TuningResult result;
    result.configs = {reference::random_config(spec, device_limits(device), random)};
    const ForwardProblem problem(spec, device, {.batch = 2});
    if (!problem.can_run(result.configs)) continue;
    const std::string record = write_record(result, problem);
    EXPECT_EQ(read_record(record, problem), result.configs) << record;
  }
}

TEST(TuningRecord, TextThatIsNoRecordIsRefused) {
  for (const char* text : {"", "{}", "[]", "null", "{\"config\": 3}", "{\"config\": \"tile_q=64 color=red\"}",
                           "{\"config\": \"tile_q=\"}", "{\"config\": \"tile_q=64\"", "\xff\xfe"}) {
    EXPECT_EQ(read_record(text, ForwardProblem({}, h200(), {})), std::nullopt) << text;
  }
}

// With fields that went out since, or values of them: tuning begins anew, and nobody sees an error.
TEST(TuningRecord, OfAnEarlierVersionIsAMiss) {
  const auto read = [](const std::string& fields) {
    return read_record(
        "{\"config\": \"family=forward_wgmma tile_q=128 tile_kv=64 stages_q=2" + fields + "\"}",
        ForwardProblem({}, h200(), {}));
  };
  EXPECT_TRUE(read(""));
  EXPECT_FALSE(read(" overlap=true"));
  EXPECT_FALSE(read(" order=softmax_lock"));
  EXPECT_FALSE(read(" rescale=always"));
  for (const RetiredField& field : retired_fields()) {
    if (field.family == "forward_wgmma") {
      EXPECT_FALSE(read(fmt::format(" {}=0", field.name))) << field.name;
    }
  }
}

TEST(TuningRecord, AnIllegalConfigIsRefused) {
  EXPECT_TRUE(read_record("{\"config\": \"tile_kv=64\"}", ForwardProblem({}, h200(), {})));
  EXPECT_FALSE(read_record("{\"config\": \"tile_kv=17\"}", ForwardProblem({}, h200(), {})));
  EXPECT_FALSE(
      read_record("{\"config\": \"tile_kv=128 stages_k=4 stages_v=4\"}", ForwardProblem({}, h200(), {})));
  // Legal at one head_dim, not at another.
  const char* record = "{\"config\": \"tile_q=128 tile_kv=128 warps=8 stages_k=2 stages_v=2\"}";
  EXPECT_TRUE(read_record(record, ForwardProblem({.head_dim = 64}, h200(), {})));
  EXPECT_FALSE(read_record(record, ForwardProblem({.head_dim = 256}, h200(), {})));
}

TEST(TuningOperation, EveryFieldOfTheSpecMakesAnotherRecord) {
  std::set<std::string> keys = {tuning_operation({}, {}).digest().hex()};
  for (const SpecField& field : spec_fields()) {
    for (const AttentionSpec& spec : field.samples()) {
      EXPECT_EQ(keys.insert(tuning_operation(spec, {}).digest().hex()).second, field.is_baked) << field.name;
    }
  }
  for (const SizeClass& sizes : {SizeClass{.rows = 1}, SizeClass{.seqlen_q = 1}, SizeClass{.seqlen_kv = 1}}) {
    EXPECT_TRUE(keys.insert(tuning_operation({}, sizes).digest().hex()).second);
  }
  EXPECT_EQ(tuning_operation({.head_dim_v = 128}, {}).digest(), tuning_operation({}, {}).digest());
}

}  // namespace
}  // namespace jit
