// ld, st and their relatives: every width and space, beside copies made on the host.
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "machine/kernel.h"
#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Runs `body` for 64 threads with 64 · `bytes` random bytes as input, which must come back at the output.
void expect_copied(const std::string& body, std::size_t bytes, const std::string& declarations = "",
                   TargetArch arch = {9, 0, 'a'}) {
  TestDevice device(arch);
  const auto input = random_bytes(64 * bytes, 11);
  const std::uint64_t in = device.upload(input);
  const std::uint64_t out = device.room<std::uint8_t>(input.size());
  const std::string target = arch.major == 10 ? "sm_100a" : "sm_90a";
  const std::string addresses = "  mad.wide.u32 %rd0, %r60, " + std::to_string(bytes) +
                                ", %rd60;\n  mad.wide.u32 %rd1, %r60, " + std::to_string(bytes) +
                                ", %rd61;\n";
  const LaunchResult result =
      device.run(kernel_of(addresses + body, declarations, target), {.block = {64, 1, 1}}, {}, in, out);
  EXPECT_EQ(findings_of(result), "") << body;
  EXPECT_EQ(device.download<std::uint8_t>(out, input.size()), input) << body;
}

std::string registers(const std::string& prefix, int count) {
  if (count == 1) return prefix + "0";
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "{" : ", ") + prefix + std::to_string(i);
  return list + "}";
}

struct Width {
  const char* type;
  const char* prefix;
  int bytes;
};
const std::vector<Width> widths = {
    {"u8", "%h", 1},   {"b8", "%r", 1},   {"s8", "%r", 1},   {"u16", "%h", 2},
    {"b16", "%h", 2},  {"s16", "%r", 2},  {"u32", "%r", 4},  {"b32", "%r", 4},
    {"s32", "%rd", 4}, {"f32", "%f", 4},  {"u64", "%rd", 8}, {"b64", "%rd", 8},
    {"s64", "%rd", 8}, {"f64", "%fd", 8}, {"b8", "%rd", 1},  {"u16", "%rd", 2}};

// The addresses are in %rd0 and %rd1, so 64-bit values go elsewhere.
std::string prefix_of(const Width& width) {
  return std::string(width.prefix) == "%rd" ? "%rd1" : width.prefix;
}

TEST(Memory, EveryWidthInGlobalMemory) {
  for (const Width& width : widths) {
    for (const int count : {1, 2, 4}) {
      if (width.bytes * count > 16) continue;
      const std::string suffix = (count == 1 ? "" : ".v" + std::to_string(count)) + "." + width.type + " ";
      const std::string values = registers(prefix_of(width), count);
      for (const std::string space : {".global", ""}) {
        expect_copied(
            "ld" + space + suffix + values + ", [%rd0];\nst" + space + suffix + "[%rd1], " + values + ";\n",
            static_cast<std::size_t>(width.bytes * count));
      }
    }
  }
}

TEST(Memory, WideVectorsOfSm100) {
  expect_copied(
      "ld.global.v8.b32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%rd0];\nst.global.v8.b32 [%rd1], "
      "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7};\n",
      32, "", {10, 0, 'a'});
  expect_copied(
      "ld.global.v4.b64 {%rd2,%rd3,%rd4,%rd5}, [%rd0];\nst.global.v4.b64 [%rd1], {%rd2,%rd3,%rd4,%rd5};\n",
      32, "", {10, 0, 'a'});
  TestDevice device;
  EXPECT_THROW(device.run(kernel_of("ld.global.v4.b64 {%rd2,%rd3,%rd4,%rd5}, [%rd0];\n"), {}, {},
                          std::uint64_t{0}, std::uint64_t{0}),
               PtxError);
}

TEST(Memory, EveryWidthInSharedMemory) {
  const std::string declarations = ".shared .align 16 .b8 buffer[2048];\n";
  for (const Width& width : widths) {
    for (const int count : {1, 2, 4}) {
      const int bytes = width.bytes * count;
      if (bytes > 16) continue;
      const std::string suffix = (count == 1 ? "" : ".v" + std::to_string(count)) + "." + width.type + " ";
      const std::string values = registers(prefix_of(width), count);
      // Written by one thread and read by another, and back.
      const std::string swap = "xor.b32 %r50, %r60, 33;\n";
      for (const std::string space : {".shared", ".shared::cta"}) {
        expect_copied(swap + "mov.u32 %r42, buffer;\nmad.lo.u32 %r40, %r60, " + std::to_string(bytes) +
                          ", %r42;\nmad.lo.u32 %r41, %r50, " + std::to_string(bytes) + ", %r42;\nld.global" +
                          suffix + values + ", [%rd0];\nst" + space + suffix + "[%r40], " + values +
                          ";\nbar.sync 0;\nld" + space + suffix + values + ", [%r41];\nbar.sync 0;\nst" +
                          space + suffix + "[%r41], " + values + ";\nbar.sync 0;\nld" + space + suffix +
                          values + ", [%r40];\nst.global" + suffix + "[%rd1], " + values + ";\n",
                      static_cast<std::size_t>(bytes), declarations);
      }
    }
  }
}

TEST(Memory, LocalMemoryIsEachThreadsOwn) {
  const std::string body = R"(
  .local .align 16 .b8 stack[64];
  ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd0];
  mov.u64 %rd10, stack;
  cvta.local.u64 %rd11, %rd10;
  st.local.v4.b32 [%rd10+32], {%r0, %r1, %r2, %r3};
  st.b64 [%rd11], %rd0;
  bar.sync 0;
  ld.v4.b32 {%r4, %r5, %r6, %r7}, [%rd11+32];
  ld.local.b64 %rd12, [stack];
  ld.global.b32 %r4, [%rd12];
  st.global.v4.b32 [%rd1], {%r4, %r5, %r6, %r7};
)";
  expect_copied(body, 16);
}

TEST(Memory, OrderedAccessesMoveTheSame) {
  for (const std::string kind : {"volatile", "relaxed.gpu", "relaxed.cta", "acquire.sys", "weak"}) {
    const std::string store = kind == "acquire.sys" ? "release.sys" : kind;
    expect_copied("ld." + kind + ".global.v2.u32 {%r0, %r1}, [%rd0];\nst." + store +
                      ".global.v2.u32 [%rd1], {%r0, %r1};\n",
                  8);
    expect_copied("ld." + kind + ".u64 %rd2, [%rd0];\nst." + store + ".u64 [%rd1], %rd2;\n", 8);
  }
}

TEST(Memory, CacheModifiersAreAdvice) {
  expect_copied("ld.mmio.relaxed.sys.global.u32 %r0, [%rd0];\nst.mmio.relaxed.sys.global.u32 [%rd1], %r0;\n",
                4);
  const std::string policy = "createpolicy.fractional.L2::evict_last.b64 %rd9, 1.0;\n";
  for (const std::string load :
       {"ld.global.nc.", "ld.global.ca.", "ld.global.cg.", "ld.global.cs.", "ld.global.lu.", "ld.global.cv.",
        "ld.global.L1::evict_last.", "ld.global.nc.L1::no_allocate.L2::256B.", "ldu.global."}) {
    expect_copied(load + "u32 %r0, [%rd0];\nst.global.wb.u32 [%rd1], %r0;\n", 4);
  }
  expect_copied(policy +
                    "ld.global.nc.L2::cache_hint.v2.f32 {%f0, %f1}, [%rd0], %rd9;\n"
                    "st.global.L1::no_allocate.L2::cache_hint.v2.f32 [%rd1], {%f0, %f1}, %rd9;\n",
                8);
  expect_copied(
      "prefetch.global.L2 [%rd0];\nprefetch.global.L1 [%rd0];\nprefetchu.L1 "
      "[%rd0];\nprefetch.global.L2::evict_last "
      "[%rd0];\ncreatepolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd9, [%rd0], 128, 256;\n"
      "ld.global.u32 %r0, [%rd0];\nst.global.u32 [%rd1], %r0;\n",
      4);
}

// Loads into wider registers fill them up with zeros or the sign.
TEST(Memory, WiderRegistersAreFilledByType) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>{0x8384f1f2u, 0x12345678u});
  const std::uint64_t out = device.room<std::uint64_t>(8);
  const LaunchResult result = device.run(kernel_of(R"(
  ld.global.s8 %rd0, [%rd60];
  ld.global.u8 %rd1, [%rd60];
  ld.global.s16 %r0, [%rd60];
  ld.global.b16 %r1, [%rd60];
  ld.global.s32 %rd2, [%rd60];
  ld.global.u32 %rd3, [%rd60];
  ld.global.s8 %h0, [%rd60];
  cvt.u32.u16 %r2, %h0;
  st.global.u64 [%rd61], %rd0;
  st.global.u64 [%rd61+8], %rd1;
  st.global.v2.u32 [%rd61+16], {%r0, %r1};
  st.global.u64 [%rd61+24], %rd2;
  st.global.u64 [%rd61+32], %rd3;
  st.global.u32 [%rd61+40], %r2;
  st.global.u16 [%rd61+44], %rd2;
  st.global.u8 [%rd61+46], %r0;
  st.global.b8 [%rd61+47], 255;
)"),
                                         {}, {}, in, out);
  EXPECT_EQ(findings_of(result), "");
  const auto values = device.download<std::uint64_t>(out, 6);
  EXPECT_EQ(values[0], 0xfffffffffffffff2u);
  EXPECT_EQ(values[1], 0xf2u);
  EXPECT_EQ(values[2], 0x0000f1f2fffff1f2u);
  EXPECT_EQ(values[3], 0xffffffff8384f1f2u);
  EXPECT_EQ(values[4], 0x8384f1f2u);
  EXPECT_EQ(values[5], 0xfff2f1f20000fff2u);
}

TEST(Memory, OnlyLanesWhoseGuardHoldsTakePart) {
  TestDevice device;
  std::vector<std::uint32_t> input(32);
  for (std::uint32_t i = 0; i < 32; ++i) input[i] = 100 + i;
  const std::uint64_t in = device.upload(input), out = device.upload(std::vector<std::uint32_t>(32, 7));
  // The lanes that are left out have addresses that would be out of bounds.
  const LaunchResult result = device.run(kernel_of(R"(
  and.b32 %r0, %r60, 1;
  setp.eq.u32 %p0, %r0, 1;
  mad.wide.u32 %rd0, %r60, 4, %rd60;
  mad.wide.u32 %rd1, %r60, 4, %rd61;
  @!%p0 mov.u64 %rd0, 0;
  mov.u32 %r1, 55;
  @%p0 ld.global.u32 %r1, [%rd0];
  setp.gt.u32 %p1, %r1, 120;
  @%p1 st.global.u32 [%rd1], %r1;
  setp.eq.u32 %p2, %r1, 55;
  @%p2 st.global.u32 [%rd1], 1;
)"),
                                         {.block = {32, 1, 1}}, {}, in, out);
  EXPECT_EQ(findings_of(result), "");
  const auto values = device.download<std::uint32_t>(out, 32);
  for (std::uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(values[i], i % 2 == 0 ? 1 : 100 + i > 120 ? 100 + i : 7) << i;
}

TEST(Memory, ParametersConstantsAndVariables) {
  TestDevice device;
  const std::uint64_t out = device.room<std::uint32_t>(8);
  const LaunchResult result = device.run(kernel_of(R"(
  mov.u64 %rd0, table;
  ld.const.u32 %r0, [table+8];
  ld.const.v2.u32 {%r1, %r2}, [%rd0];
  cvta.const.u64 %rd0, %rd0;
  ld.u32 %r3, [%rd0+12];
  ld.global.u32 %r4, [variable];
  st.global.u32 [variable], 9;
  ld.global.u32 %r5, [variable];
  ld.param.u32 %r6, [in+4];
  mov.b64 %rd1, in;
  ld.param.u32 %r7, [%rd1];
  st.global.v4.u32 [%rd61], {%r0, %r1, %r2, %r3};
  st.global.v4.u32 [%rd61+16], {%r4, %r5, %r6, %r7};
)",
                                                   ".const .align 8 .u32 table[4] = {10, 11, 12, 13};\n"
                                                   ".global .align 4 .u32 variable = 4;\n"),
                                         {}, {}, std::uint64_t{0x0000000500000006}, out);
  EXPECT_EQ(findings_of(result), "");
  EXPECT_EQ(device.download<std::uint32_t>(out, 8), (std::vector<std::uint32_t>{12, 10, 11, 13, 4, 9, 5, 6}));
}

TEST(Memory, SharedMemoryOfTheOtherBlockOfACluster) {
  TestDevice device;
  const std::uint64_t out = device.room<std::uint32_t>(64);
  const std::string body = R"(
  mov.u32 %r0, buffer;
  mad.lo.u32 %r1, %r60, 4, %r0;
  mov.u32 %r2, %cluster_ctarank;
  mad.lo.u32 %r3, %r2, 100, %r60;
  st.shared.u32 [%r1], %r3;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  xor.b32 %r4, %r2, 1;
  mapa.shared::cluster.u32 %r5, %r1, %r4;
  ld.shared::cluster.u32 %r6, [%r5];
  cvta.shared.u64 %rd0, buffer;
  mapa.u64 %rd1, %rd0, %r4;
  mad.wide.u32 %rd1, %r60, 4, %rd1;
  ld.u32 %r7, [%rd1];
  add.u32 %r6, %r6, %r7;
  mad.lo.u32 %r8, %r2, 32, %r60;
  mad.wide.u32 %rd2, %r8, 4, %rd61;
  st.global.u32 [%rd2], %r6;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";
  const LaunchResult result =
      device.run(kernel_of(body, ".shared .align 4 .b8 buffer[128];\n"),
                 {.grid = {2, 1, 1}, .block = {32, 1, 1}, .cluster = {2, 1, 1}}, {}, std::uint64_t{0}, out);
  EXPECT_EQ(findings_of(result), "");
  const auto values = device.download<std::uint32_t>(out, 64);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], 2 * (i < 32 ? 100 + i : i - 32)) << i;
}

// One finding each, at the right place, and the process goes on.
class BadAccesses : public ::testing::Test {
 protected:
  LaunchResult run(const std::string& body, const std::string& declarations = "") {
    const std::uint64_t in = device_.upload(std::vector<std::uint32_t>(32, 1));
    const std::uint64_t out = device_.room<std::uint32_t>(32);
    return device_.run(
        kernel_of("mad.wide.u32 %rd0, %r60, 4, %rd60;\nmad.wide.u32 %rd1, %r60, 4, %rd61;\n" + body,
                  declarations),
        {.block = {32, 1, 1}}, {}, in, out);
  }
  void expect(FindingKind kind, const std::string& message, const std::string& body,
              const std::string& declarations = "") {
    const LaunchResult result = run(body, declarations);
    ASSERT_EQ(result.findings.size(), 1u) << findings_of(result) << body;
    EXPECT_EQ(result.findings[0].kind, kind) << findings_of(result);
    EXPECT_NE(result.findings[0].message.find(message), std::string::npos) << result.findings[0].message;
  }
  TestDevice device_;
};

TEST_F(BadAccesses, OutOfBounds) {
  expect(FindingKind::out_of_bounds, "lies 0 bytes behind the end of the 128 bytes",
         "ld.global.u32 %r0, [%rd0+4];\n");
  expect(FindingKind::out_of_bounds, "writes 4 bytes", "st.global.u32 [%rd1+128], 0;\n");
  expect(FindingKind::out_of_bounds, "null pointer", "mov.u64 %rd5, 16;\nld.global.u32 %r0, [%rd5];\n");
  expect(FindingKind::out_of_bounds, "lies in no memory",
         "mov.u64 %rd5, 0x7f0000000000;\nld.u32 %r0, [%rd5];\n");
  expect(FindingKind::out_of_bounds, "local memory, which has 16",
         ".local .align 4 .b8 stack[16];\nld.local.u32 %r0, [stack+16];\n");
  expect(FindingKind::out_of_bounds, "parameters, which have 16",
         "mov.b64 %rd5, in;\nld.param.u64 %rd6, [%rd5+16];\n");
  expect(FindingKind::out_of_bounds, "32 bits", "mov.u64 %rd5, 0x100000400;\nld.shared.u32 %r0, [%rd5];\n",
         ".shared .align 4 .b8 buffer[128];\n");
}

TEST_F(BadAccesses, Misaligned) {
  expect(FindingKind::misaligned, "not a multiple of 4", "ld.global.u32 %r0, [%rd0+2];\n");
  expect(FindingKind::misaligned, "not a multiple of 16", "st.global.v4.u32 [%rd1], {%r0, %r0, %r0, %r0};\n");
  expect(FindingKind::misaligned, "not a multiple of 8",
         ".local .align 8 .b8 stack[16];\nst.local.u64 [stack+4], %rd0;\n");
}

TEST_F(BadAccesses, UninitializedReadsGoOn) {
  const LaunchResult result =
      run("ld.global.u32 %r0, [%rd1];\nst.global.u32 [%rd1], 3;\nld.global.u32 %r0, [%rd1];\n");
  ASSERT_EQ(result.findings.size(), 1u) << findings_of(result);
  EXPECT_EQ(result.findings[0].kind, FindingKind::uninitialized_read);
  EXPECT_EQ(result.findings[0].lane, 0);
}

TEST_F(BadAccesses, ParametersAreNotWritten) {
  expect(FindingKind::illegal_instruction, "parameters",
         "mov.b64 %rd5, in;\ncvta.param.u64 %rd5, %rd5;\nst.u32 [%rd5], 0;\n");
  EXPECT_THROW(run("st.param.u32 [in], 0;\n"), PtxError);
}

TEST_F(BadAccesses, MalformedInstructionsAreRefused) {
  for (const char* bad :
       {"ld.global.v2.u32 %r0, [%rd0];\n", "ld.global.v2.u32 {%r0, %r1, %r2}, [%rd0];\n",
        "ld.global.u64 %r0, [%rd0];\n", "ld.global.u32 %h0, [%rd0];\n", "ld.global.u32 %r0, [%r1];\n",
        "ld.global.pred %p0, [%rd0];\n", "ld.global.foo.u32 %r0, [%rd0];\n",
        "ld.relaxed.global.u32 %r0, [%rd0];\n", "ld.release.gpu.global.u32 %r0, [%rd0];\n",
        "st.global.u32 [%rd0];\n", "ld.global.u32 %r0, %rd0;\n",
        "ld.global.v4.u64 {%rd1,%rd2,%rd3,%rd4}, [%rd0];\n", "ld.global.L2::cache_hint.u32 %r0, [%rd0];\n",
        "ld.global.u32 %r0, [nowhere];\n", "discard.global.L2 [%rd0], 128;\n",
        "createpolicy.fractional.b64 %rd1;\n", "prefetch.global.L3 [%rd0];\n",
        "ld.mmio.relaxed.sys.global.v2.u32 {%r0, %r1}, [%rd0];\n"}) {
    EXPECT_THROW(run(bad), PtxError) << bad;
  }
}

TEST(MemoryCounts, BytesAndBankConflicts) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(256, 1));
  const std::string body = R"(
  mad.wide.u32 %rd0, %r60, 16, %rd60;
  mov.u32 %r0, buffer;
  mad.lo.u32 %r1, %r60, 16, %r0;
  mad.lo.u32 %r2, %r60, 128, %r0;
  setp.lt.u32 %p0, %r60, 8;
  ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd0];
  st.shared.v4.u32 [%r1], {%r10, %r11, %r12, %r13};
  st.shared.u32 [%r2], %r10;
  @%p0 st.global.u16 [%rd0], %h0;
  @%p0 ld.shared.u32 %r3, [%r2];
  .local .align 4 .b8 stack[4];
  st.local.u32 [stack], %r10;
)";
  const std::string ptx = kernel_of(body, ".shared .align 128 .b8 buffer[4096];\n");
  const auto program = load_program(ptx, device.arch());
  const LaunchResult result = device.run(ptx, {.block = {32, 1, 1}}, {.check_races = false}, in, in);
  EXPECT_EQ(findings_of(result), "");
  const auto count = [&](const std::string& name) {
    const auto& info = program->kernels[0].info;
    for (std::size_t i = 0; i < info.size(); ++i) {
      if (info[i].name == name) return result.counts[i];
    }
    ADD_FAILURE() << name;
    return InstructionCounts{};
  };
  EXPECT_EQ(count("ld.global.v4.u32").global_read_bytes, 512u);
  EXPECT_EQ(count("ld.global.v4.u32").lanes, 32u);
  EXPECT_EQ(count("st.shared.v4.u32").shared_write_bytes, 512u);
  EXPECT_EQ(count("st.shared.v4.u32").bank_wavefronts, 4u);
  EXPECT_EQ(count("st.shared.v4.u32").ideal_wavefronts, 4u);
  EXPECT_EQ(count("st.shared.u32").bank_wavefronts, 32u);
  EXPECT_EQ(count("st.shared.u32").ideal_wavefronts, 1u);
  EXPECT_EQ(count("st.global.u16").global_write_bytes, 16u);
  EXPECT_EQ(count("ld.shared.u32").shared_read_bytes, 32u);
  EXPECT_EQ(count("ld.shared.u32").bank_wavefronts, 8u);
  EXPECT_EQ(count("st.local.u32").local_bytes, 128u);
}

}  // namespace
}  // namespace jit::emulator::testing
