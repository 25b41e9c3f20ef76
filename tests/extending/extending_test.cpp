// A kernel family and a mask that no list of the tree names, on an emulated device: what docs/extending.md
// says is enough is enough.
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/device.h>
#include <jit/stream.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "tests/extending/forward_plain.h"
#include "tests/extending/strided_mask.h"
#include "tests/support/attention_run.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/shared_cache.h"

namespace jit {
namespace {

namespace fs = std::filesystem;
using testing::AttentionCase;
using testing::AttentionRun;
using ::testing::HasSubstr;
using testing::read_text;

static_assert(KernelFamily<ForwardPlain>);

const fs::path root = JIT_ATTENTION_SOURCE_DIR;
const fs::path example = root / "tests/extending";

/// The tree's templates, with those of the example where they would stand.
class ExtendedTemplates {
 public:
  ExtendedTemplates() {
    fs::copy(root / "templates", folder_.path(), fs::copy_options::recursive);
    fs::copy(example / "templates/forward_plain", folder_ / "forward_plain");
    const fs::path masks = folder_ / "problem/masks.cuh";
    std::string text = read_text(masks.string());
    const std::string end = "}  // namespace jit\n";
    text.insert(text.rfind(end), read_text((example / "templates/strided_mask.cuh").string()) + "\n");
    testing::write_text(masks.string(), text);
  }
  std::string path() const { return folder_.path(); }

 private:
  testing::FreshFolder folder_;
};

class Extending : public ::testing::Test {
 protected:
  static Context context() {
    static const ExtendedTemplates templates;
    Settings settings = testing::shared_cache_settings();
    settings.templates = templates.path();
    return Context(settings);
  }
  static AttentionCase problem(Mask mask) {
    AttentionCase problem;
    problem.spec = {.head_dim = 32, .head_dim_v = 16, .gqa_ratio = 2, .mask = std::move(mask)};
    problem.batch = 2;
    problem.heads_kv = 2;
    problem.seqlen_q = 70;
    problem.seqlen_kv = 83;
    problem.seed = 7;
    return problem;
  }
};

TEST_F(Extending, AFamilyOfOnesOwnComputesAttention) {
  const Context extended = context();
  ContextState& state = *Access::state(extended);
  const CurrentDevice current(0);
  const DeviceInfo device = device_info(0);
  for (const Mask& mask : {Mask(), mask::causal(), mask::causal() && strided(3), !strided(2)}) {
    const AttentionCase wanted = problem(mask);
    const AttentionRun run(wanted);
    AttentionParams params;
    ASSERT_TRUE(fill_params(wanted.spec, functor_tensor_uses(wanted.spec), run.arguments(), params));
    const DeviceLimits limits = device_limits(device);
    for (const ForwardPlain& config : legal_space<ForwardPlain>({wanted.spec, limits})) {
      auto image =
          build_image(state, Family<ForwardPlain>::program(wanted.spec, config), native_target(device));
      Plan plan{.spec = wanted.spec, .config = {}, .steps = {}, .why = "an example"};
      plan.steps.push_back(plan_step(load_kernel(state, std::move(image), 0), wanted.spec, config));
      run_plan(plan, params, state.memory, nullptr);
      synchronize(nullptr);
      EXPECT_EQ(run.check().failure, "") << to_string(wanted.spec) << ", " << config.queries << " queries";
    }
  }
}

TEST_F(Extending, ItsRulesHaveSentences) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const AttentionSpec spec;
  EXPECT_EQ(family_rejection<ForwardPlain>({spec, limits}, {.queries = 100}),
            "queries = 100 must be a multiple of 32 from 32 to 256");
  const AttentionSpec unaligned{.alignment = 2};
  EXPECT_THAT(family_rejection<ForwardPlain>({unaligned, limits}, {}),
              HasSubstr("needs rows aligned to 4 bytes"));
  EXPECT_TRUE(legal_space<ForwardPlain>({unaligned, limits}).empty());
}

TEST_F(Extending, AMaskOfOnesOwnRunsInTheTreesKernels) {
  for (const KernelConfig& config : {KernelConfig(ForwardMmaSync{.tile_q = 64, .tile_kv = 32}),
                                     KernelConfig(ForwardWgmma{.tile_q = 64})}) {
    AttentionCase wanted = problem(mask::causal() && strided(3));
    wanted.spec.head_dim_v = 32;
    const AttentionRun run(wanted);
    attention(wanted.spec, config, context())(run.arguments());
    EXPECT_EQ(run.check().failure, "") << to_string(config);
  }
}

// The document shows these files as they are.
TEST_F(Extending, TheDocumentShowsWhatIsTestedHere) {
  const std::string document = read_text((root / "docs/extending.md").string());
  for (const char* file : {"templates/strided_mask.cuh", "strided_mask.h",
                           "templates/forward_plain/kernel.cuh", "forward_plain.h", "forward_plain.cpp"}) {
    std::string text = read_text((example / file).string());
    text.erase(0, text.find_first_not_of('\n'));
    EXPECT_THAT(document, HasSubstr("\n" + text + "```\n")) << file;
  }
}

}  // namespace
}  // namespace jit
