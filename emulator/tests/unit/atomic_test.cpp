// atom and red beside updates made on the host.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "operations/arithmetic/numbers.h"
#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

using Word = std::uint64_t;

struct Operation {
  const char* name;  ///< "add.u32"
  int bytes;
  std::function<Word(Word, Word, Word)> update;
};

template <class T>
T as(Word word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}
template <class T>
Word word_of(T value) {
  Word word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}
template <class T, class F>
std::function<Word(Word, Word, Word)> on(F f) {
  return [f](Word old, Word b, Word) { return word_of(static_cast<T>(f(as<T>(old), as<T>(b)))); };
}

const auto plus = [](auto a, auto b) { return a + b; };
const auto lesser = [](auto a, auto b) { return b < a ? b : a; };
const auto greater_of = [](auto a, auto b) { return a < b ? b : a; };

std::vector<Operation> operations() {
  using U = std::uint32_t;
  using L = std::uint64_t;
  return {{"add.u32", 4, on<U>(plus)},
          {"add.s32", 4, on<U>(plus)},
          {"add.u64", 8, on<L>(plus)},
          {"min.u32", 4, on<U>(lesser)},
          {"min.s32", 4, on<std::int32_t>(lesser)},
          {"min.u64", 8, on<L>(lesser)},
          {"min.s64", 8, on<std::int64_t>(lesser)},
          {"max.u32", 4, on<U>(greater_of)},
          {"max.s32", 4, on<std::int32_t>(greater_of)},
          {"max.u64", 8, on<L>(greater_of)},
          {"max.s64", 8, on<std::int64_t>(greater_of)},
          {"and.b32", 4, on<U>([](U a, U b) { return a & b; })},
          {"or.b32", 4, on<U>([](U a, U b) { return a | b; })},
          {"xor.b32", 4, on<U>([](U a, U b) { return a ^ b; })},
          {"and.b64", 8, on<L>([](L a, L b) { return a & b; })},
          {"or.b64", 8, on<L>([](L a, L b) { return a | b; })},
          {"xor.b64", 8, on<L>([](L a, L b) { return a ^ b; })},
          {"exch.b32", 4, on<U>([](U, U b) { return b; })},
          {"exch.b64", 8, on<L>([](L, L b) { return b; })},
          {"inc.u32", 4, on<U>([](U a, U b) { return a >= b ? 0 : a + 1; })},
          {"dec.u32", 4, on<U>([](U a, U b) { return a == 0 || a > b ? b : a - 1; })},
          {"cas.b32", 4, [](Word old, Word b, Word c) { return old == b ? c : old; }},
          {"cas.b64", 8, [](Word old, Word b, Word c) { return old == b ? c : old; }}};
}

// 32 words, each updated by one lane; b and c lie behind them. The old values go to the output.
void check(const Operation& operation, bool shared, bool generic, std::mt19937& random) {
  const std::string name = operation.name;
  const bool is_cas = name.starts_with("cas");
  const auto bytes = static_cast<std::size_t>(operation.bytes);
  std::vector<Word> a(32), b(32), c(32);
  for (std::size_t i = 0; i < 32; ++i) {
    // Small numbers and the ends of the range, so that equal, lesser and wrapping operands come up.
    const auto pick = [&]() -> Word {
      const Word mask = bytes == 8 ? ~Word{0} : 0xffffffffu;
      switch (random() % 3) {
        case 0:
          return random() % 4;
        case 1:
          return (Word{0} - random() % 4) & mask;
        default:
          return (Word{random()} << 32 | random()) & mask;
      }
    };
    a[i] = pick();
    b[i] = random() % 4 == 0 ? a[i] : pick();
    c[i] = pick();
  }
  std::vector<std::uint8_t> image(96 * bytes);
  for (std::size_t i = 0; i < 32; ++i) {
    std::memcpy(image.data() + i * bytes, &a[i], bytes);
    std::memcpy(image.data() + (32 + i) * bytes, &b[i], bytes);
    std::memcpy(image.data() + (64 + i) * bytes, &c[i], bytes);
  }
  const std::string r = bytes == 8 ? "%rd" : "%r", bits = bytes == 8 ? ".b64 " : ".b32 ";
  const std::string size = std::to_string(bytes);
  std::string body = "mad.wide.u32 %rd0, %r60, " + size + ", %rd60;\nmad.wide.u32 %rd1, %r60, " + size +
                     ", %rd61;\nld.global" + bits + r + "11, [%rd0+" + std::to_string(32 * bytes) +
                     "];\nld.global" + bits + r + "12, [%rd0+" + std::to_string(64 * bytes) + "];\n";
  std::string place = "%rd0";
  if (shared) {
    body += "ld.global" + bits + r + "10, [%rd0];\nmov.u32 %r0, buffer;\nmad.lo.u32 %r0, %r60, " + size +
            ", %r0;\nst.shared" + bits + "[%r0], " + r +
            "10;\ncvt.u64.u32 %rd2, %r0;\ncvta.shared.u64 %rd2, %rd2;\n";
    place = generic ? "%rd2" : "%r0";
  }
  const std::string space = generic ? "" : shared ? ".shared" : ".global";
  const std::string operands = r + "11" + (is_cas ? ", " + r + "12" : "");
  body += "atom.relaxed.gpu" + space + "." + name + " " + r + "13, [" + place + "], " + operands +
          ";\nst.global" + bits + "[%rd1], " + r + "13;\n";
  if (shared) body += "ld.shared" + bits + r + "10, [%r0];\nst.global" + bits + "[%rd0], " + r + "10;\n";
  // Once more as red, in the other half of the output.
  const bool has_red = !is_cas && !name.starts_with("exch");
  if (has_red) {
    body += "ld.global" + bits + r + "14, [%rd0];\nst.global" + bits + "[%rd1+" + std::to_string(32 * bytes) +
            "], " + r + "14;\nred.global." + name + " [%rd1+" + std::to_string(32 * bytes) + "], " +
            operands + ";\n";
  }
  TestDevice device;
  const std::uint64_t in = device.upload(image), out = device.room<std::uint8_t>(64 * bytes);
  const LaunchResult result =
      device.run(kernel_of(body, ".shared .align 8 .b8 buffer[256];\n"), {.block = {32, 1, 1}}, {}, in, out);
  ASSERT_EQ(findings_of(result), "") << body;
  const auto updated = device.download<std::uint8_t>(in, 32 * bytes),
             old = device.download<std::uint8_t>(out, 64 * bytes);
  for (std::size_t i = 0; i < 32; ++i) {
    const auto at = [&](const std::vector<std::uint8_t>& from, std::size_t index) {
      Word word = 0;
      std::memcpy(&word, from.data() + index * bytes, bytes);
      return word;
    };
    const Word expected = operation.update(a[i], b[i], c[i]);
    EXPECT_EQ(at(updated, i), expected) << name << " " << a[i] << " " << b[i] << " " << c[i];
    EXPECT_EQ(at(old, i), a[i]) << name;
    if (!has_red) continue;
    EXPECT_EQ(at(old, 32 + i), operation.update(expected, b[i], c[i])) << "red " << name;
  }
}

TEST(Atomics, IntegersInEverySpace) {
  std::mt19937 random(21);
  for (const Operation& operation : operations()) {
    for (int round = 0; round < 3; ++round) {
      check(operation, false, false, random);
      check(operation, false, true, random);
      check(operation, true, false, random);
      check(operation, true, true, random);
    }
  }
}

TEST(Atomics, CompareAndSwapOf16Bits) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint16_t>{7, 0xabcd, 7, 1});
  const std::uint64_t out = device.room<std::uint16_t>(2);
  const LaunchResult result = device.run(kernel_of(R"(
  mov.b16 %h1, 0xabcd;
  mov.b16 %h2, 0x1234;
  atom.global.cas.b16 %h0, [%rd60+2], %h1, %h2;
  st.global.b16 [%rd61], %h0;
  atom.global.cas.b16 %h0, [%rd60+4], %h1, %h2;
  st.global.b16 [%rd61+2], %h0;
)"),
                                         {}, {}, in, out);
  EXPECT_EQ(findings_of(result), "");
  EXPECT_EQ(device.download<std::uint16_t>(in, 4), (std::vector<std::uint16_t>{7, 0x1234, 7, 1}));
  EXPECT_EQ(device.download<std::uint16_t>(out, 2), (std::vector<std::uint16_t>{0xabcd, 7}));
}

// Many threads of many blocks at the same words, on several host threads.
TEST(Atomics, AllThreadsCount) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(4, 0));
  const std::uint64_t out = device.upload(std::vector<double>(2, 0));
  LaunchOptions options;
  options.threads = 4;
  const LaunchResult result = device.run(kernel_of(R"(
  red.global.add.u32 [%rd60], 1;
  atom.global.max.u32 %r0, [%rd60+4], %r60;
  atom.global.inc.u32 %r1, [%rd60+8], 6;
  mov.f64 %fd0, 0d3FF0000000000000;
  red.global.add.f64 [%rd61], %fd0;
  setp.eq.u32 %p0, %r60, 0;
  @%p0 st.shared.u32 [sum], 0;
  bar.sync 0;
  atom.shared.add.u32 %r2, [sum], %r60;
  bar.sync 0;
  ld.shared.u32 %r3, [sum];
  @%p0 red.global.add.u32 [%rd60+12], %r3;
)",
                                                   ".shared .align 4 .u32 sum;\n"),
                                         {.grid = {50, 1, 1}, .block = {96, 1, 1}}, options, in, out);
  EXPECT_EQ(findings_of(result), "");
  EXPECT_EQ(device.download<std::uint32_t>(in, 4),
            (std::vector<std::uint32_t>{4800, 95, 4800 % 7, 50 * 95 * 48}));
  EXPECT_EQ(device.download<double>(out, 1)[0], 4800.0);
}

// f32 sums flush subnormals in global memory and keep them in shared memory (PTX ISA, "atom").
TEST(Atomics, SinglePrecisionSums) {
  const float tiny = std::bit_cast<float>(0x00000100u);
  const std::vector<float> a = {
      1.5f, tiny, -tiny, 1e-38f, 1e30f, std::numeric_limits<float>::infinity(), 0.1f, 16777216.0f};
  const std::vector<float> b = {
      2.25f, tiny, tiny / 2, -9.9e-39f, 1e38f, -std::numeric_limits<float>::infinity(), 0.2f, 1.0f};
  std::vector<float> input = a;
  input.insert(input.end(), b.begin(), b.end());
  for (const bool shared : {false, true}) {
    TestDevice device;
    const std::uint64_t in = device.upload(input), out = device.room<float>(8);
    const std::string update =
        shared ? "mov.u32 %r0, buffer;\nmad.lo.u32 %r0, %r60, 4, %r0;\nst.shared.f32 [%r0], %f0;\n"
                 "red.shared.add.f32 [%r0], %f1;\nld.shared.f32 %f2, [%r0];\n"
               : "red.global.add.f32 [%rd0], %f1;\nld.global.f32 %f2, [%rd0];\n";
    const LaunchResult result =
        device.run(kernel_of("mad.wide.u32 %rd0, %r60, 4, %rd60;\nmad.wide.u32 %rd1, %r60, 4, %rd61;\n"
                             "ld.global.f32 %f0, [%rd0];\nld.global.f32 %f1, [%rd0+32];\n" +
                                 update + "st.global.f32 [%rd1], %f2;\n",
                             ".shared .align 4 .b8 buffer[32];\n"),
                   {.block = {8, 1, 1}}, {}, in, out);
    EXPECT_EQ(findings_of(result), "");
    const auto sums = device.download<float>(out, 8);
    const auto flushed = [&](float x) {
      return !shared && std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x;
    };
    for (std::size_t i = 0; i < 8; ++i) {
      const float expected = flushed(flushed(a[i]) + flushed(b[i]));
      if (expected != expected) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(sums[i]), 0x7fffffffu);
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(sums[i]), std::bit_cast<std::uint32_t>(expected))
            << i << " " << shared;
      }
    }
  }
}

double value_of(std::uint16_t bits, bool is_brain) {
  return decode(is_brain ? bf16_format : f16_format, bits);
}

// Single, packed and vector forms, each against sums in double precision that are rounded once.
TEST(Atomics, HalfPrecision) {
  std::mt19937 random(22);
  struct Form {
    const char* name;
    int halves;
  };
  for (const bool is_brain : {false, true}) {
    const std::string t = is_brain ? "bf16" : "f16";
    for (const std::string op : {"add", "min", "max"}) {
      const std::vector<std::pair<std::string, int>> forms = {
          {"." + op + ".noftz." + t, 1},          {"." + op + ".noftz." + t + "x2", 2},
          {"." + op + ".noftz.v2." + t, 2},       {"." + op + ".noftz.v4." + t, 4},
          {"." + op + ".noftz.v8." + t, 8},       {"." + op + ".noftz.v2." + t + "x2", 4},
          {"." + op + ".noftz.v4." + t + "x2", 8}};
      for (const auto& [form, halves] : forms) {
        const bool is_vector = form.find(".v") != std::string::npos;
        if (op != "add" && !is_vector) continue;
        const auto count = static_cast<std::size_t>(halves);
        std::vector<std::uint16_t> input(64 * count);
        for (auto& bits : input) {
          do {
            bits = static_cast<std::uint16_t>(random());
          } while (!std::isfinite(value_of(bits, is_brain)));
        }
        // Equal magnitudes and zeros of both signs come up, too.
        for (std::size_t i = 0; i < 4 * count; ++i)
          input[32 * count + i] = static_cast<std::uint16_t>(input[i] ^ 0x8000);
        input[0] = 0x8000;
        input[32 * count] = 0;
        const bool is_pair = form.ends_with("x2");
        const int registers = is_pair ? halves / 2 : halves;
        const std::string prefix = is_pair ? "%r" : "%h", type = is_pair ? "b32" : "b16";
        std::string list, old,
            body = "mad.wide.u32 %rd0, %r60, " + std::to_string(2 * count) +
                   ", %rd60;\nmad.wide.u32 %rd1, %r60, " + std::to_string(2 * count) + ", %rd61;\n";
        for (int i = 0; i < registers; ++i) {
          list += (i ? ", " : "") + prefix + std::to_string(i);
          old += (i ? ", " : "") + prefix + std::to_string(20 + i);
          body += "ld.global." + type + " " + prefix + std::to_string(i) + ", [%rd0+" +
                  std::to_string(64 * count + static_cast<std::size_t>(i) * (is_pair ? 4 : 2)) + "];\n";
        }
        if (is_vector) {
          list = "{" + list + "}";
          old = "{" + old + "}";
        }
        body += "atom.global" + form + " " + old + ", [%rd0], " + list + ";\n";
        for (int i = 0; i < registers; ++i) {
          body += "st.global." + type + " [%rd1+" + std::to_string(i * (is_pair ? 4 : 2)) + "], " + prefix +
                  std::to_string(20 + i) + ";\n";
        }
        TestDevice device;
        const std::uint64_t in = device.upload(input), out = device.room<std::uint16_t>(32 * count);
        const LaunchResult result = device.run(kernel_of(body), {.block = {32, 1, 1}}, {}, in, out);
        ASSERT_EQ(findings_of(result), "") << body;
        const auto updated = device.download<std::uint16_t>(in, 32 * count),
                   before = device.download<std::uint16_t>(out, 32 * count);
        for (std::size_t i = 0; i < 32 * count; ++i) {
          const double a = value_of(input[i], is_brain), b = value_of(input[32 * count + i], is_brain);
          double expected = a + b;
          if (op != "add") {
            const bool a_is_less = a < b || (a == b && std::signbit(a));
            expected = (op == "min") == a_is_less ? a : b;
          }
          const Format& format = is_brain ? bf16_format : f16_format;
          EXPECT_EQ(updated[i], encode(format, expected, Rounding::nearest_even))
              << form << " " << a << " " << b;
          EXPECT_EQ(before[i], input[i]) << form;
        }
      }
    }
  }
}

TEST(Atomics, VectorsOfSinglePrecision) {
  TestDevice device;
  std::vector<float> input(128);
  std::iota(input.begin(), input.end(), 0.5f);
  const std::uint64_t in = device.upload(input), out = device.room<float>(2);
  const LaunchResult result = device.run(kernel_of(R"(
  mad.wide.u32 %rd0, %r60, 16, %rd60;
  mov.f32 %f0, 0f3F800000;
  mov.f32 %f1, 0f40000000;
  red.global.add.v4.f32 [%rd0], {%f0, %f1, %f0, %f1};
  red.global.v2.f32.add [%rd0+8], {%f0, %f0};
)"),
                                         {.block = {32, 1, 1}}, {}, in, out);
  EXPECT_EQ(findings_of(result), "");
  const auto sums = device.download<float>(in, 128);
  const std::array<float, 4> added = {1, 2, 2, 3};
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(sums[i], input[i] + added[i % 4]) << i;
}

TEST(Atomics, RedAsyncCompletesOnAnMbarrier) {
  TestDevice device;
  const std::uint64_t out = device.room<std::uint32_t>(6);
  const std::string body = init_by_first("ready", 1) + R"(
  mov.u32 %r1, ready;
  mov.u32 %r2, buffer;
  @%p30 st.shared.u32 [%r2], 5;
  @%p30 mbarrier.arrive.expect_tx.shared::cta.b64 %rd0, [%r1], 656;
  bar.sync 0;
  mapa.shared::cluster.u32 %r3, %r1, 0;
  mapa.shared::cluster.u32 %r4, %r2, 0;
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4], 2, [%r3];
  mad.lo.u32 %r5, %r60, 16, %r4;
  mov.u32 %r7, 77;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5+16], {%r60, %r7, %r7, %r60}, [%r3];
  st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r2+2048], %rd60, [%r3];
)" + wait_for("%r1", "0", "again") +
                           R"(
  ld.shared.u32 %r8, [%r2];
  xor.b32 %r9, %r60, 9;
  mad.lo.u32 %r9, %r9, 16, %r2;
  ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r9+16];
  setp.eq.u32 %p1, %r60, 3;
  @%p1 st.global.v2.u32 [%rd61], {%r8, %r10};
  @%p1 st.global.v2.u32 [%rd61+8], {%r11, %r13};
)";
  const std::string declarations = ".shared .align 8 .b64 ready;\n.shared .align 16 .b8 buffer[4096];\n";
  std::string one_b64 = body;
  // Thread 0 alone does the last store.
  one_b64.replace(one_b64.find("  st.async.shared::cluster"), 2, "  @%p30 ");
  one_b64.replace(one_b64.find("656"), 3, std::to_string(32 * 4 + 32 * 16 + 8));
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const LaunchResult result = device.run(kernel_of(one_b64, declarations), {.block = {32, 1, 1}},
                                           {.seed = seed}, std::uint64_t{0}, out);
    EXPECT_EQ(findings_of(result), "");
    EXPECT_EQ(device.download<std::uint32_t>(out, 4), (std::vector<std::uint32_t>{5 + 64, 3 ^ 9, 77, 3 ^ 9}));
  }
  // A look at the bytes before they have come.
  std::string early = one_b64;
  early.insert(early.find("again:"), "ld.shared.u32 %r10, [%r2+32];\n");
  EXPECT_TRUE(has_finding(
      device.run(kernel_of(early, declarations), {.block = {32, 1, 1}}, {}, std::uint64_t{0}, out),
      FindingKind::access_in_flight));
}

TEST(Atomics, BadAccesses) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(4, 1)),
                      out = device.room<std::uint32_t>(4);
  const auto kinds = [&](const std::string& body) {
    return findings_of(device.run(kernel_of(body, ".shared .align 4 .b8 buffer[16];\n"), {}, {}, in, out));
  };
  EXPECT_NE(kinds("red.global.add.u32 [%rd60+16], 1;\n").find("out of bounds"), std::string::npos);
  EXPECT_NE(kinds("red.global.add.u32 [%rd60+2], 1;\n").find("misaligned"), std::string::npos);
  EXPECT_NE(kinds("red.global.add.u32 [%rd61], 1;\n").find("uninitialized read"), std::string::npos);
  EXPECT_NE(kinds("red.shared.add.u32 [buffer], 1;\n").find("uninitialized read"), std::string::npos);
  EXPECT_NE(kinds("red.shared.add.u32 [buffer+16], 1;\n").find("out of bounds"), std::string::npos);
  EXPECT_NE(kinds(".local .align 4 .b8 stack[16];\nmov.u64 %rd0, stack;\ncvta.local.u64 %rd0, "
                  "%rd0;\nred.add.u32 [%rd0], 1;\n")
                .find("illegal instruction"),
            std::string::npos);
  for (const char* bad :
       {"red.global.exch.b32 [%rd60], 1;\n", "atom.global.cas.b32 %r0, [%rd60], 1;\n",
        "atom.global.add.b32 %r0, [%rd60], 1;\n", "atom.global.add.f16 %h0, [%rd60], %h1;\n",
        "atom.global.min.f32 %f0, [%rd60], %f1;\n", "atom.global.inc.s32 %r0, [%rd60], 1;\n",
        "red.local.add.u32 [%rd60], 1;\n", "red.shared.add.v2.f32 [buffer], {%f0, %f1};\n",
        "red.global.add.v8.f32 [%rd60], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};\n",
        "atom.global.exch.b128 %r0, [%rd60], %r1;\n", "red.global.sub.u32 [%rd60], 1;\n"}) {
    EXPECT_THROW(kinds(bad), PtxError) << bad;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
