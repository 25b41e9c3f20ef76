#include "generator/build/packs.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/pack.h>
#include <jit/version.h>

#include "generator/kernels/search.h"
#include "generator/pack/pack_shapes.h"
#include "generator/pack/serving_kernels.h"
#include "tests/support/cache_entries.h"
#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using testing::entry_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::key_of;

constexpr Target on_gpu{{9, 0, 'a'}}, emulated{{9, 0, 'a'}, CodeForm::ptx};

class PacksTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& library, const std::string& compiler,
                    const std::string& targets, const std::string& entry) {
    const std::vector<KeyField> facts = {
        {pack_fact::library, library}, {pack_fact::compiler, compiler}, {pack_fact::targets, targets}};
    const std::vector<std::byte> bytes = encode_pack(facts, {PackedEntry(entry_of(key_of(entry)))});
    testing::write_text(folder_ / name,
                        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    return folder_ / name;
  }
  Packs open(const std::vector<std::string>& paths) {
    return Packs(paths, [this](const Event& event) { told_.push_back(event.message); });
  }

  static std::optional<Entry> load(const Packs& packs, const std::string& entry, const Target& target) {
    return packs.load(std::vector{key_of(entry)}, target, std::vector<std::string>{"C"});
  }

  testing::FreshFolder folder_;
  std::vector<std::string> told_;
};

TEST_F(PacksTest, AreSearchedInOrder) {
  const Packs packs = open({write("a", JIT_ATTENTION_VERSION, "C", "sm_80\nsm_90a", "one"),
                            write("b", JIT_ATTENTION_VERSION, "C", "sm_90a", "two")});
  EXPECT_EQ(load(packs, "one", on_gpu), entry_of(key_of("one")));
  EXPECT_EQ(load(packs, "two", on_gpu), entry_of(key_of("two")));
  EXPECT_FALSE(load(packs, "three", on_gpu));
  EXPECT_THAT(told_, IsEmpty()) << "a kernel that a pack lacks is no trouble";
  EXPECT_THAT(packs.shortfalls(on_gpu, std::vector<std::string>{"C"}), IsEmpty());
}

TEST_F(PacksTest, OfAnotherVersionTellAtOnce) {
  const Packs packs = open({write("a", "0.0.1", "C", "sm_90a", "one")});
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0],
              HasSubstr("version 0.0.1 of the library made it, and this is " JIT_ATTENTION_VERSION));
  EXPECT_FALSE(load(packs, "one", on_gpu));
  EXPECT_THAT(packs.compilers(), IsEmpty()) << "it says nothing of this library's kernels";
  EXPECT_THAT(packs.shortfalls(on_gpu, std::vector<std::string>{"C"}), ElementsAre(told_[0]));
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(PacksTest, OfAnotherCompilerOrTargetTellOnce) {
  const Packs packs = open({write("a", JIT_ATTENTION_VERSION, "C", "sm_80\nsm_90a", "one")});
  EXPECT_THAT(packs.compilers(), ElementsAre("C"));
  EXPECT_THAT(packs.shortfalls(on_gpu, std::vector<std::string>{"D"}),
              ElementsAre(HasSubstr("made with another NVRTC (C) than this one (D)")));
  EXPECT_THAT(told_, IsEmpty());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(load(packs, "two", emulated));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("was made for sm_80, sm_90a and has nothing for sm_90a as PTX")));
}

// Where nothing is compiled: a kernel is looked up by the key of each compiler that made a pack.
TEST_F(PacksTest, OfSeveralCompilersAreAllSearched) {
  const Packs packs = open({write("a", JIT_ATTENTION_VERSION, "C", "sm_90a", "one"),
                            write("b", JIT_ATTENTION_VERSION, "D", "sm_90a", "two"),
                            write("c", JIT_ATTENTION_VERSION, "C", "sm_90a", "three")});
  const std::vector<std::string> compilers = packs.compilers();
  EXPECT_THAT(compilers, ElementsAre("C", "D"));
  const std::vector<Key> keys = {key_of("none"), key_of("two")};
  EXPECT_EQ(packs.load(keys, on_gpu, compilers), entry_of(key_of("two")));
  EXPECT_FALSE(packs.load(std::vector{key_of("none")}, on_gpu, compilers));
  EXPECT_THAT(told_, IsEmpty());
}

// A second pack that may have it makes the first no trouble.
TEST_F(PacksTest, OneForTheTargetIsEnough) {
  const Packs packs = open({write("a", JIT_ATTENTION_VERSION, "C", "sm_80", "one"),
                            write("b", JIT_ATTENTION_VERSION, "C", "sm_90a", "two")});
  EXPECT_FALSE(load(packs, "three", on_gpu));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(PacksTest, DamageIsTold) {
  const std::string path = write("a", JIT_ATTENTION_VERSION, "C", "sm_90a", "one");
  std::string text = testing::read_text(path);
  text.back() ^= 1;
  testing::write_text(path, text);
  const Packs packs = open({path, folder_ / "none"});
  EXPECT_THAT(told_, ElementsAre(HasSubstr("there is no such file")));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(load(packs, "one", on_gpu));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("no such file"), HasSubstr("is not used: it is damaged")));
}

// Every class up to the largest has its largest sizes there.
TEST(PackShapes, HaveEachSizeClass) {
  const PackSizes sizes{.heads_q = 24, .max_batch = 5, .max_seqlen = 3000};
  const std::vector<ProblemShape> causal = pack_shapes({.mask = mask::causal()}, sizes);
  const std::vector<ProblemShape> full = pack_shapes({}, sizes);
  for (std::int64_t rows = 1; rows <= 24 * 5; rows += 37) {
    for (std::int64_t q = 1; q <= 3000; q += 331) {
      for (std::int64_t kv = 1; kv <= 3000; kv += 331) {
        const ProblemShape shape =
            largest_shape(size_class({.heads_q = rows, .seqlen_q = q, .seqlen_kv = kv}));
        ASSERT_THAT(full, ::testing::Contains(shape)) << rows << " " << q << " " << kv;
        if (q <= kv) {
          ASSERT_THAT(causal, ::testing::Contains(shape)) << rows << " " << q << " " << kv;
        }
      }
    }
  }
  EXPECT_THAT(causal, ::testing::Contains(ProblemShape{.heads_q = 72, .seqlen_q = 1, .seqlen_kv = 768}));
  EXPECT_LT(causal.size(), full.size());
}

// Whatever a mixed call brings, both kinds of its requests have the largest sizes of their classes there.
TEST(PackShapes, HaveEachClassOfBothKindsOfMixedCalls) {
  const PackSizes sizes{.heads_q = 24, .max_batch = 5, .max_seqlen = 3000};
  const AttentionSpec spec{.sequences_q = SequenceKind::varlen};
  std::vector<ProblemShape> few, many;
  for (const auto& [requests, shape] : mixed_shapes(spec, sizes))
    (requests == Requests::few_queries ? few : many).push_back(shape);
  int mixed = 0;
  for (std::int64_t batch = 2; batch <= sizes.max_batch; ++batch) {
    for (std::int64_t total_q = 1; total_q < 3000; total_q += 97) {
      for (std::int64_t kv = 1; kv <= sizes.max_seqlen; kv += 731) {
        const ProblemShape call{.batch = batch,
                                .heads_q = 24,
                                .seqlen_q = total_q / batch,
                                .seqlen_kv = kv,
                                .surplus_q = surplus_queries(batch, total_q)};
        if (call.surplus_q == 0) continue;
        ++mixed;
        ASSERT_THAT(few, ::testing::Contains(largest_shape(size_class(shape_of_few(call)))));
        ASSERT_THAT(many, ::testing::Contains(largest_shape(size_class(shape_of_many(call)))));
      }
    }
  }
  EXPECT_GT(mixed, 100);
  EXPECT_THAT(mixed_shapes({}, sizes), IsEmpty()) << "dense queries";
  EXPECT_THAT(mixed_shapes({.sequences_q = SequenceKind::varlen, .split_keys = 64}, sizes), IsEmpty());
  EXPECT_THAT(mixed_shapes(spec, {.heads_q = 24, .max_batch = 1}), IsEmpty());
}

// Calls of a pack run the best of its kernels for their exact sizes. For nearly all steps of a server that is also the
// best of all kernels.
TEST(PackShapes, HaveTheBestConfigOfNearlyEveryStepOfAServer) {
  std::mt19937_64 random(reference::test_seed());
  const auto from = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  const PackSizes sizes{.heads_q = 32, .max_batch = 32, .max_seqlen = 4096, .serving = true};
  const AttentionSpec spec{.gqa_ratio = 4,
                           .sequences_q = SequenceKind::varlen,
                           .sequences_kv = SequenceKind::paged,
                           .page_size = 16,
                           .mask = mask::causal()};
  std::vector<ProblemShape> steps(1'000);
  for (ProblemShape& step : steps) {
    const std::int64_t batch =
        from(1, sizes.max_batch);  // requests, of which some may bring a part of their prompt
    const std::int64_t total_q = from(0, 1) == 0 ? batch : from(batch, 8192);
    step = {.batch = batch,
            .heads_q = sizes.heads_q,
            .seqlen_q = (total_q + batch - 1) / batch,
            .seqlen_kv = from(1, sizes.max_seqlen)};
  }
  const DeviceLimits h200 = device_limits(Arch{9, 0, 'a'});
  const std::vector<KernelConfig> packed = first_untuned(spec, pack_shapes(spec, sizes), h200);
  const std::vector<KernelConfig> best = first_untuned(spec, steps, h200);
  const auto is_packed = [&](const KernelConfig& config) {
    return std::find(packed.begin(), packed.end(), config) != packed.end();
  };
  const auto found = static_cast<std::size_t>(std::count_if(best.begin(), best.end(), is_packed));
  EXPECT_GE(found, steps.size() - steps.size() * 3 / 100) << "a hundredth is lacking for some seeds";
}

TEST(PackTarget, IsWhatDevicesAskFor) {
  const PackTarget hopper = parse_pack_target("sm_90");
  EXPECT_EQ(to_string(hopper.arch), "sm_90a");
  EXPECT_FALSE(hopper.emulated);
  EXPECT_THAT(hopper.multiprocessors, ElementsAre(132, 114, 78));
  EXPECT_EQ(to_string(parse_pack_target("80").arch), "sm_80");
  const PackTarget emulated = parse_pack_target("emulated:sm_90a");
  EXPECT_TRUE(emulated.emulated);
  EXPECT_THAT(emulated.multiprocessors, ElementsAre(usual_sm_count({9, 0, 'a'})));
  for (const Arch& arch : known_archs())
    EXPECT_FALSE(parse_pack_target(to_string(arch)).multiprocessors.empty());
  const Error error = testing::error_of([] { parse_pack_target("emulated:sm_70"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("sm_70"));
}

}  // namespace
}  // namespace jit
