// The public face: modules, their kernels and variables, memory, launches that are refused.
#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <emulator/launch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit::emulator {
namespace {

using ::testing::HasSubstr;

constexpr TargetArch sm_90a = {9, 0, 'a'};

// Adds `by` to what `counter` holds, and stores the sum.
const std::string counting = R"(
.version 8.7
.target sm_90a
.address_size 64
.global .align 4 .u32 counter = 40;
.visible .entry count(.param .u64 out, .param .u32 by)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [out];
  ld.param.u32 %r0, [by];
  ld.global.u32 %r1, [counter];
  add.u32 %r1, %r1, %r0;
  st.global.u32 [counter], %r1;
  st.global.u32 [%rd0], %r1;
  ret;
}
.visible .entry nothing()
.reqnctapercluster 2, 1, 1
.maxntid 64
{
  ret;
}
)";

/// The sentence that a call refuses with.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(PublicFace, AModuleTellsWhatIsInIt) {
  const Module module(counting, sm_90a);
  EXPECT_EQ(module.ptx(), counting);
  EXPECT_TRUE(module.has_variables());
  ASSERT_EQ(module.functions().size(), 2u);
  const Function count = module.functions()[0];
  EXPECT_EQ(count.name(), "count");
  ASSERT_EQ(count.parameters().size(), 2u);
  EXPECT_EQ(count.parameters()[1].name, "by");
  EXPECT_EQ(count.parameters()[1].offset, 8u);
  EXPECT_EQ(count.parameter_bytes(), 12u);
  EXPECT_EQ(count.max_threads(), 1024);
  EXPECT_EQ(count.cluster(), (std::array<unsigned, 3>{1, 1, 1}));
  EXPECT_EQ(module.function("nothing").cluster(), (std::array<unsigned, 3>{2, 1, 1}));
  EXPECT_EQ(module.function("nothing").max_threads(), 64);
  EXPECT_FALSE(module.find("other"));
  EXPECT_EQ(refusal([&] { module.function("other"); }),
            "there is no kernel other; the module has count, nothing");
}

TEST(PublicFace, ArgumentsAreHeldAgainstParameters) {
  const Function count = Module(counting, sm_90a).function("count");
  const std::vector<std::byte> block = count.arguments(std::uint64_t{0x0102030405060708}, 7u);
  ASSERT_EQ(block.size(), 12u);
  EXPECT_EQ(block[0], std::byte{8});
  EXPECT_EQ(block[8], std::byte{7});
  EXPECT_EQ(refusal([&] { count.arguments(std::uint64_t{1}); }), "count takes 2 parameters, 1 were given");
  EXPECT_EQ(refusal([&] { count.arguments(1u, 7u); }), "parameter out of count has 8 bytes, 4 were given");
}

TEST(PublicFace, VariablesAreMadeOnceInEachMemory) {
  const Module module(counting, sm_90a);
  const Function count = module.function("count");
  Memory first(1 << 20), second(1 << 20);
  const std::uint64_t out = first.upload(std::vector<std::uint32_t>{0}), other = second.allocate(4);
  const auto run = [&](Memory& memory, std::uint64_t to) {
    EXPECT_TRUE(launch(count, {}, count.arguments(to, 2u), memory).findings.empty());
    return memory.download<std::uint32_t>(to, 1)[0];
  };
  ASSERT_TRUE(second.load(module));
  EXPECT_EQ(second.allocated(), 8u);
  EXPECT_EQ(run(first, out), 42u);
  EXPECT_EQ(run(first, out), 44u);
  EXPECT_EQ(run(second, other), 42u);
  first.unload(module);
  first.unload(module);
  EXPECT_EQ(first.allocated(), 4u);
  EXPECT_EQ(run(first, out), 42u) << "the variables are new";
}

TEST(PublicFace, AModuleLivesAsLongAsItsFunctions) {
  Memory memory(1 << 20);
  const std::uint64_t out = memory.allocate(4);
  const Function count = Module(counting, sm_90a).function("count");
  launch(count, {}, count.arguments(out, 1u), memory);
  EXPECT_EQ(memory.download<std::uint32_t>(out, 1)[0], 41u);
}

TEST(PublicFace, MemoryThatIsShortIsToldOf) {
  const Module module(counting, sm_90a);
  Memory memory(512);
  EXPECT_NE(memory.allocate(200), 0u);
  EXPECT_FALSE(memory.load(module));
  const Function count = module.function("count");
  EXPECT_THAT(refusal([&] { launch(count, {}, count.arguments(std::uint64_t{0}, 1u), memory); }),
              HasSubstr("variables of count's module"));
  EXPECT_THROW(memory.download<int>(1, 1), std::out_of_range);
}

TEST(PublicFace, ACooperativeLaunchMustFit) {
  const Function nothing = Module(counting, sm_90a).function("nothing");
  Memory memory(1 << 20);
  const LaunchShape shape{.grid = {4, 1, 1}, .cooperative = true};
  EXPECT_EQ(refusal([&] { launch(nothing, shape, {}, memory, {.resident_blocks = 2}); }),
            "a cooperative launch has 4 blocks, and the device runs 2 of nothing at once");
  EXPECT_TRUE(launch(nothing, shape, {}, memory, {.resident_blocks = 4}).findings.empty());
  EXPECT_TRUE(launch(nothing, shape, {}, memory).findings.empty());
}

TEST(PublicFace, AModuleIsForTheArchitectureOfItsText) {
  const Module module{counting};
  EXPECT_EQ(module.target().major, 9);
  EXPECT_EQ(module.target().suffix, 'a');
  try {
    Module(counting, {8, 0});
    ADD_FAILURE() << "sm_80 runs no PTX for sm_90a";
  } catch (const PtxError& error) {
    EXPECT_EQ(error.line(), 3);
  }
  try {
    Module("\n.version 99.0\n.target sm_80\n", {8, 0});
    ADD_FAILURE() << "there is no such version";
  } catch (const PtxError& error) {
    EXPECT_EQ(error.line(), 2);
  }
}

TEST(PublicFace, ALaunchHasTheShapeThatTheKernelRequires) {
  const auto kernel = [](const std::string& target, const std::string& directives) {
    return Module(".version 8.7\n.target " + target + "\n.address_size 64\n.entry k() " + directives +
                  " { ret; }\n")
        .function("k");
  };
  Memory memory(1 << 20);
  const auto refusal_of = [&](const Function& function, const LaunchShape& shape) {
    return refusal([&] { launch(function, shape, {}, memory); });
  };
  const Function block = kernel("sm_90", ".reqntid 64, 2");
  EXPECT_EQ(refusal_of(block, {.block = {64, 2, 1}}), "");
  EXPECT_EQ(refusal_of(block, {.block = {32, 2, 1}}), "block (32, 2, 1): k takes (64, 2, 1) (.reqntid)");
  const Function cluster = kernel("sm_90", ".reqnctapercluster 2");
  EXPECT_EQ(refusal_of(cluster, {.grid = {4, 1, 1}, .cluster = {2, 1, 1}}), "");
  EXPECT_EQ(refusal_of(cluster, {.grid = {4, 1, 1}, .cluster = {4, 1, 1}}),
            "cluster (4, 1, 1): k takes (2, 1, 1) (.reqnctapercluster)");
  EXPECT_EQ(refusal_of(kernel("sm_80", ""), {.grid = {4, 1, 1}, .cluster = {2, 1, 1}}),
            "cluster (2, 1, 1): clusters come with sm_90, and k is PTX for sm_80");
}

TEST(PublicFace, AllowedFindingsAreLeftOut) {
  const Function read = Module(R"(
.version 8.7
.target sm_90a
.address_size 64
.visible .entry read(.param .u64 in)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  .shared .align 4 .b8 buffer[4];
  ld.shared.u32 %r0, [buffer];
  ld.param.u64 %rd0, [in];
  ld.global.u32 %r1, [%rd0];
  ret;
}
)")
                            .function("read");
  Memory memory(1 << 20);
  const std::uint64_t in = memory.allocate(4);
  const auto found = [&](std::uint64_t at, std::vector<FindingKind> allowed) {
    std::string kinds;
    const LaunchOptions options{.allowed = std::move(allowed)};
    for (const Finding& finding : launch(read, {}, read.arguments(at), memory, options).findings)
      kinds += std::string(to_string(finding.kind)) + "; ";
    return kinds;
  };
  EXPECT_EQ(found(in, {}), "uninitialized read of shared memory; uninitialized read; ");
  EXPECT_EQ(found(in, {FindingKind::uninitialized_shared_read}), "uninitialized read; ");
  EXPECT_EQ(found(in, {FindingKind::uninitialized_read, FindingKind::uninitialized_shared_read}), "");
  // This one ends the launch.
  EXPECT_EQ(found(3, {FindingKind::misaligned, FindingKind::uninitialized_shared_read}), "misaligned; ");
}

TEST(PublicFace, KindsOfFindingsHaveNames) {
  for (const FindingKind kind : finding_kinds()) EXPECT_EQ(parse_finding_kind(to_string(kind)), kind);
  EXPECT_EQ(finding_kinds().size(), static_cast<std::size_t>(FindingKind::dropped) + 1);
  EXPECT_THAT(refusal([] { parse_finding_kind("race"); }),
              HasSubstr("'race' is no kind of finding; these are: data race, missing proxy fence, "));
}

TEST(PublicFace, CountsAreToldAsJsonAndAsAListing) {
  const Function count = Module(counting, sm_90a).function("count");
  Memory memory(1 << 20);
  const std::uint64_t out = memory.allocate(4);
  const LaunchResult result = launch(count, {}, count.arguments(out, 1u), memory);
  EXPECT_THAT(counts_json(count, result.counts), HasSubstr("\"kernel\": \"count\""));
  EXPECT_THAT(annotated_listing(count, result.counts), HasSubstr("add.u32 %r1, %r1, %r0;"));
}

}  // namespace
}  // namespace jit::emulator
