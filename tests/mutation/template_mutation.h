// One line of a template changed: what the emulator, or the numbers, say of the kernel.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/attention.h>
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "generator/program/templates.h"
#include "tests/mutation/line_change.h"
#include "tests/support/attention_run.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/support/stream_memory_words.h"

namespace jit::testing {

/// The mutated kernel and its problem.
struct Subject {
  const char* config = "tile_q=64 tile_kv=32 warps=4 stages_k=2 stages_v=2";  ///< of forward_mma_sync
  const char* mask = "causal";
  int head_dim = 64;
  int head_dim_v = 64;
  int gqa_ratio = 1;
  bool values_in_keys = false;
  DType dtype = DType::bf16;
  std::optional<DType> kv_dtype = {};
  ScaleKind descale_per = ScaleKind::head;
  int batch = 1;
  int heads = 2;  ///< of k
  int seqlen_q = 150;
  int seqlen_kv = 212;  // a key tile ends one key behind the first query's last
  int rows_behind = 0;  ///< of k and v, behind the keys of the only sequence and head, which hold no numbers
  int launches = 1;     ///< one after another: of other numbers, but for the last
  float amplitude = 1;
  std::uint64_t seed = 5;
};

struct TemplateMutation {
  const char* name;  ///< of the anchor in templates/, or `Anchor_Variant`
  LineChange change;
  std::vector<const char*> caught_by = {};  ///< one of these kinds of findings; none: by the numbers
  Subject subject = {};
  /// Whether it may show as wrong numbers as well: which it is depends on how many of the host's cores run blocks.
  bool or_by_numbers = false;
};
inline std::ostream& operator<<(std::ostream& out, const TemplateMutation& mutation) {
  return out << mutation.name;
}

/// A folder of templates with one line changed; gone at the end of the scope.
class MutatedTemplates {
 public:
  MutatedTemplates(const TemplateMutation* mutation) {
    for (const SourceFile& file : embedded_templates()) {
      const std::filesystem::path path = std::filesystem::path(folder_.path()) / file.name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << file.text;
    }
    if (mutation != nullptr) {
      std::ofstream(std::filesystem::path(folder_.path()) / anchor_of(mutation->name).file)
          << changed_template(mutation->name, mutation->change);
    }
  }
  /// The settings of tests, with these templates.
  Settings settings() const {
    Settings settings = shared_cache_settings();
    settings.templates = folder_.path();
    return settings;
  }

 private:
  FreshFolder folder_;
};

inline AttentionCase case_of(const Subject& subject) {
  AttentionCase problem;
  problem.spec.head_dim = subject.head_dim;
  problem.spec.head_dim_v = subject.head_dim_v;
  problem.spec.gqa_ratio = subject.gqa_ratio;
  problem.spec.values_in_keys = subject.values_in_keys;
  problem.spec.dtype = subject.dtype;
  problem.spec.kv_dtype = subject.kv_dtype;
  problem.spec.descale_per = subject.descale_per;
  problem.spec.mask = parse_mask(subject.mask, reference::mask_texts());
  problem.batch = subject.batch;
  problem.heads_kv = subject.heads;
  problem.seqlen_q = subject.seqlen_q;
  problem.seqlen_kv = subject.seqlen_kv;
  problem.amplitude = subject.amplitude;
  problem.seed = subject.seed;
  return problem;
}

/// Arguments by which k and v have room for more rows than the sequence has keys. Behind tensors lies poison, which two
/// rows of 64 elements may take. `length` is for the number of keys.
inline AttentionArguments with_rows_behind(AttentionArguments arguments, int rows,
                                           const DeviceBuffer& length) {
  const int keys = static_cast<int>(arguments.k.shape[1]);
  length.upload(&keys, sizeof(keys));
  arguments.k.shape[1] += rows;
  if (arguments.v.is_present()) arguments.v.shape[1] += rows;
  arguments.seqused_k = TensorView::dense(length.data(), DType::int32, {1});
  return arguments;
}

/// Symptoms of a run: findings as text, wrong numbers, or counters that launches leave behind.
inline std::string noticed(const TemplateMutation* mutation, const Subject& subject) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const AttentionCase problem = case_of(subject);
  AttentionRun run(problem);
  const DeviceBuffer length(0, sizeof(int));
  const AttentionArguments arguments = subject.rows_behind == 0
                                           ? run.arguments()
                                           : with_rows_behind(run.arguments(), subject.rows_behind, length);
  try {
    const Attention kernel = attention(problem.spec, parse_config(subject.config), context);
    for (int launch = 1; launch < subject.launches; ++launch) {
      AttentionCase earlier = problem;
      earlier.seed += static_cast<std::uint64_t>(launch);
      kernel(AttentionRun(earlier).arguments());
    }
    run.poison_outputs();
    kernel(arguments);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  const std::string failure = run.check().failure;
  return failure.empty() ? disorder(context, nullptr) : failure;
}

/// Expects that `text`, what is noticed of the mutation, is what it says.
inline void expect_caught(const TemplateMutation& mutation, const std::string& text) {
  ASSERT_NE(text, "") << "not caught";
  ASSERT_THAT(text, ::testing::Not(::testing::HasSubstr("compile_failed")))
      << "what does not compile says nothing";
  if (mutation.caught_by.empty()) {
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("launch_failed")))
        << "caught by a finding, not by numbers";
    return;
  }
  if (mutation.or_by_numbers && text.find("launch_failed") == std::string::npos) return;
  EXPECT_TRUE(std::any_of(mutation.caught_by.begin(), mutation.caught_by.end(), [&](const char* kind) {
    return text.find(kind) != std::string::npos;
  })) << text;
  // A template, the generated products, or the program.
  EXPECT_THAT(text, ::testing::AnyOf(::testing::HasSubstr(".cuh:"), ::testing::HasSubstr("kernel.cu:")))
      << "the finding names no line of the source";
}
inline void expect_caught(const TemplateMutation& mutation) {
  expect_caught(mutation, noticed(&mutation, mutation.subject));
}

/// The suites of mutations. Compiling a broken kernel takes seconds, so that a run has a twentieth of them. That the
/// line to change is there is looked at in each.
template <class Mutation>
class MutationTestOf : public ::testing::TestWithParam<Mutation> {
 protected:
  void SetUp() override {
    const TemplateMutation& mutation = mutation_of(this->GetParam());
    changed_template(mutation.name, mutation.change);
    if (!reference::is_in_this_run(std::hash<std::string_view>()(mutation.name), 20))
      GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  }

 private:
  static const TemplateMutation& mutation_of(const TemplateMutation& mutation) { return mutation; }
  template <class Other>
  static const TemplateMutation& mutation_of(const Other& other) {
    return other.mutation;
  }
};
using MutationTest = MutationTestOf<TemplateMutation>;

/// The suites of what mutations are compared with: the unmutated template shows nothing. A run has a third of them.
class UnmutatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ::testing::TestInfo& own = *::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = fmt::format("{}.{}", own.test_suite_name(), own.name());
    if (!reference::is_turn(std::hash<std::string>()(name), 3))
      GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  }
};
#define UNMUTATED_TEST(suite, name)            \
  using suite = ::jit::testing::UnmutatedTest; \
  TEST_F(suite, name)

/// Mutations of forward attention, which say what they are noticed by: one test, with lists of them in several files.
class TemplateMutationTest : public MutationTest {};

}  // namespace jit::testing
