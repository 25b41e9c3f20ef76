// Packs of machine code, where the choice of a kernel looks at spills: all that it looks at is in the pack.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/pack.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/search.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/kernel_spec.h"
#include "tests/compile/compile_testing.h"

namespace jit {
namespace {

using testing::private_settings;

class PackTest : public ::testing::Test {
 protected:
  PackContents write(std::span<const AttentionSpec> specs, const PackTarget& target) const {
    return write_pack(path_, specs, std::vector{target}, sizes_, Context(private_settings()));
  }
  // A context that has the pack and nothing else.
  Context user() const {
    Settings settings = private_settings();
    settings.packs = {path_};
    settings.offline = true;
    return Context(settings);
  }

  const testing::FreshFolder folder_;
  const std::string path_ = folder_ / "a.pack";
  const PackSizes sizes_{.heads_q = 64, .max_batch = 1, .max_seqlen = 1};
};

// Many heads for few multiprocessors: first choices spill there, so that others are looked at, too.
TEST_F(PackTest, SizesBeyondAllUseAreRefused) {
  const std::vector<AttentionSpec> specs = {{}};
  const std::vector<PackTarget> targets = {{.arch = testing::sm_90a, .multiprocessors = {4}}};
  for (const PackSizes& sizes : {PackSizes{.heads_q = 0}, PackSizes{.max_batch = -1},
                                 PackSizes{.max_seqlen = std::numeric_limits<std::int64_t>::max()}}) {
    const Error error = testing::error_of([&] { write_pack(path_, specs, targets, sizes); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
}

TEST_F(PackTest, HasWhatIsChosenForEveryClass) {
  const PackTarget target{.arch = testing::sm_90a, .multiprocessors = {4}};
  const std::vector<AttentionSpec> specs = {{.mask = mask::causal()}};
  const PackContents contents = write(specs, target);
  EXPECT_EQ(contents.bytes, std::filesystem::file_size(path_));
  std::set<std::string> keys, serving;
  for (const PackedKernel& kernel : contents.kernels) {
    keys.insert(kernel.key);
    if (kernel.sizes > 0) serving.insert(kernel.key);
  }
  EXPECT_EQ(keys.size(), contents.kernels.size());

  const Context context = user();
  DeviceLimits limits = device_limits(target.arch);
  limits.sm_count = 4;
  std::set<std::string> chosen;
  const auto choose = [&](const ProblemShape& shape) {
    const BuiltKernel kernel =
        choose_kernel(*Access::state(context), specs[0], {}, shape, limits, {target.arch});
    EXPECT_TRUE(kernel.image->cached);
    chosen.insert(kernel.image->key);
  };
  for (std::int64_t rows = 1; rows <= 64; rows *= 2) choose({.heads_q = rows});
  choose(typical_shape(limits));
  EXPECT_EQ(chosen, serving);
}

// Another number of multiprocessors and longer sequences want other kernels; those that are there compute the same.
TEST_F(PackTest, ACallThatMayNotCompileTakesTheBestThatIsThere) {
  const PackTarget target{.arch = testing::sm_90a, .multiprocessors = {4}};
  const AttentionSpec spec{.mask = mask::causal()};
  const PackContents contents = write(std::vector{spec}, target);
  std::set<std::string> packed;
  for (const PackedKernel& kernel : contents.kernels) packed.insert(kernel.config);

  std::vector<std::string> told;
  Settings settings = private_settings();
  settings.packs = {path_};
  settings.offline = true;
  const Context context(settings, [&](const Event& event) {
    if (event.kind == Event::Kind::warning) told.push_back(event.message);
  });
  const auto choose = [&](const AttentionSpec& wanted, const ProblemShape& shape, Missing missing) {
    return choose_kernel(*Access::state(context), wanted, {}, shape, device_limits(target.arch),
                         {target.arch}, missing);
  };
  const auto fails = [&](const AttentionSpec& wanted, const ProblemShape& shape, Missing missing) {
    return testing::error_of([&] { choose(wanted, shape, missing); }).code();
  };
  int replaced = 0;
  for (std::int64_t queries = 1; queries <= 1 << 14; queries *= 128) {
    const ProblemShape shape{.batch = 100, .heads_q = 64, .seqlen_q = queries, .seqlen_kv = 1 << 14};
    const std::vector<KernelConfig> order = untuned_order(spec, shape, device_limits(target.arch));
    const BuiltKernel kernel = choose(spec, shape, Missing::is_replaced);
    EXPECT_TRUE(packed.contains(to_string(kernel.config)));
    EXPECT_NE(std::find(order.begin(), order.end(), kernel.config), order.end());
    if (!kernel.is_fallback) continue;
    ++replaced;
    EXPECT_EQ(fails(spec, shape, Missing::is_an_error), ErrorCode::offline);
  }
  EXPECT_GT(replaced, 1);
  ASSERT_EQ(told.size(), 1u) << "of one spec";
  EXPECT_THAT(told[0], ::testing::HasSubstr("compiling is forbidden"));

  AttentionSpec other = spec;
  other.mask = {};
  EXPECT_EQ(fails(other, {}, Missing::is_replaced), ErrorCode::offline) << "nothing of it is there";
  EXPECT_EQ(told.size(), 1u);
}

// Specs with spans whose kernels do not have one set of bits: the tiles that are at hand would decide in which order sums
// are made.
TEST_F(PackTest, SpansOfOtherBitsAreComputedByNoOtherKernel) {
  const DeviceLimits limits = device_limits(testing::sm_80);
  const std::optional<DType> as_queries = {}, narrow = DType::fp8_e4m3;
  for (const auto& [split_keys, kv_dtype] : {std::pair(0, as_queries), {64, as_queries}, {128, narrow}}) {
    const AttentionSpec spec{.head_dim = 16,
                             .sequences_kv = SequenceKind::paged,
                             .page_size = 16,
                             .split_keys = split_keys,
                             .kv_dtype = kv_dtype};
    const ProblemShape shape{
        .batch = 2, .heads_q = 4, .seqlen_q = 1, .seqlen_kv = 100, .has_device_lengths = true};
    const std::string folder = folder_ / std::to_string(split_keys);
    compile(spec, testing::sm_80, untuned_order(spec, shape, limits).back(),
            Context(testing::private_settings(folder)));
    Settings settings = testing::private_settings(folder);
    settings.offline = true;
    const Context context(settings);
    const auto choose = [&] {
      return choose_kernel(*Access::state(context), spec, {}, shape, limits, {testing::sm_80},
                           Missing::is_replaced);
    };
    if (!kv_dtype) {
      EXPECT_TRUE(choose().is_fallback);
    } else {
      EXPECT_EQ(testing::error_of(choose).code(), ErrorCode::offline);
    }
  }
}

TEST_F(PackTest, IsReadableByAllAndWritableByItsOwner) {
  write(std::vector<AttentionSpec>{{.head_dim = 16}}, {.arch = {8, 0}, .multiprocessors = {108}});
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0644));
}

// Kernels come from the cache, and stay there.
TEST_F(PackTest, SharesTheCache) {
  const testing::FreshFolder cache;
  const Context context(private_settings(cache.path()));
  const std::vector<AttentionSpec> specs = {{.head_dim = 16}};
  const std::vector<PackTarget> targets = {{.arch = {8, 0}, .emulated = true, .multiprocessors = {108}}};
  const PackSizes one{.heads_q = 1, .max_batch = 1, .max_seqlen = 1};
  const PackContents first = write_pack(path_, specs, targets, one, context);
  const std::string bytes = testing::read_text(path_);
  const PackContents second = write_pack(path_, specs, targets, one, context);
  ASSERT_EQ(first.kernels.size(), second.kernels.size());
  for (std::size_t i = 0; i < first.kernels.size(); ++i) {
    EXPECT_FALSE(first.kernels[i].cached);
    EXPECT_TRUE(second.kernels[i].cached);
  }
  EXPECT_EQ(testing::read_text(path_), bytes) << "equal kernels give equal packs";
}

TEST_F(PackTest, NothingIsWrittenWhenASpecIsRefused) {
  const std::vector<AttentionSpec> specs = {{.head_dim = 16}, {.head_dim = 20}};
  EXPECT_EQ(testing::error_of([&] { write(specs, parse_pack_target("sm_80")); }).code(),
            ErrorCode::invalid_spec);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace jit
