// Running one instruction over many operands, a thread for each set of them.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"

namespace jit::emulator::testing {

template <class T>
std::string register_type() {
  return fmt::format("b{}", 8 * sizeof(T) < 16 ? 16 : 8 * sizeof(T));
}

/// Executes `body`, which reads %a, %b, %c (as many as there are vectors of inputs) and writes %d, in a
/// thread for each index. Registers are of type .b16, .b32 or .b64; the body may use what kernel_of declares,
/// but for %r60 … %r63 and %rd59 … %rd63. The last warp is not whole.
template <class Out, class... In>
std::vector<Out> run_lanes(const std::string& body, TargetArch arch, const std::vector<In>&... inputs) {
  const std::size_t count = std::get<0>(std::tie(inputs...)).size();
  TestDevice device(arch);
  std::vector<std::byte> block;
  std::string loads;
  char name = 'a';
  const auto add = [&](const auto& values) {
    using T = typename std::remove_cvref_t<decltype(values)>::value_type;
    block.resize((block.size() + 15) / 16 * 16);
    const char* load = sizeof(T) == 1 ? "u8" : sizeof(T) == 2 ? "b16" : sizeof(T) == 4 ? "b32" : "b64";
    loads += fmt::format(
        "  .reg .{0} %{1};\n  mad.wide.u32 %rd59, %r62, {2}, %rd60;\n  ld.global.{3} %{1}, [%rd59+{4}];\n",
        register_type<T>(), name++, sizeof(T), load, block.size());
    const std::size_t begin = block.size();
    block.resize(begin + count * sizeof(T));
    std::memcpy(block.data() + begin, values.data(), count * sizeof(T));
  };
  (add(inputs), ...);
  const std::string ptx = kernel_of(
      fmt::format("  mov.u32 %r61, %ctaid.x;\n  mad.lo.u32 %r62, %r61, 96, %r60;\n"
                  "  setp.ge.u32 %p31, %r62, {};\n  @%p31 exit;\n{}  .reg .{} %d;\n{}\n"
                  "  mad.wide.u32 %rd59, %r62, {}, %rd61;\n  st.global.{} [%rd59], %d;\n",
                  count, loads, register_type<Out>(), body, sizeof(Out),
                  sizeof(Out) == 1 ? "u8" : register_type<Out>()),
      "",
      fmt::format("sm_{}{}{}", arch.major, arch.minor, arch.suffix != 0 ? std::string(1, arch.suffix) : ""));
  const std::uint64_t in = device.upload(block);
  const std::uint64_t out = device.room<Out>(count);
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>((count + 95) / 96), 1, 1};
  shape.block = {96, 1, 1};
  const LaunchResult result = device.run(ptx, shape, {}, in, out);
  for (const Finding& finding : result.findings) ADD_FAILURE() << to_string(finding) << "\n" << body;
  return device.download<Out>(out, count);
}

template <class Out, class... In>
std::vector<Out> run_lanes(const std::string& body, const std::vector<In>&... inputs) {
  return run_lanes<Out>(body, TargetArch{9, 0, 'a'}, inputs...);
}

/// Expects reference(a, b, …), bit for bit, from `body` for each set of inputs.
template <class Out, class Reference, class... In>
void expect_lanes(const std::string& body, TargetArch arch, Reference reference,
                  const std::vector<In>&... inputs) {
  const std::vector<Out> results = run_lanes<Out>(body, arch, inputs...);
  int shown = 0;
  for (std::size_t i = 0; i < results.size() && shown < 5; ++i) {
    const Out expected = reference(inputs[i]...);
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits, of NaN and -0, too
    if (std::memcmp(&results[i], &expected, sizeof(Out)) == 0) continue;
    ++shown;
    const auto hex = [](const auto& value) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof value);
      return fmt::format(" {:#x}", bits);
    };
    ADD_FAILURE() << body << "\n  operands" << (hex(inputs[i]) + ...) << "\n  result " << hex(results[i])
                  << ", expected" << hex(expected);
  }
}

template <class Out, class Reference, class... In>
void expect_lanes(const std::string& body, Reference reference, const std::vector<In>&... inputs) {
  expect_lanes<Out>(body, TargetArch{9, 0, 'a'}, reference, inputs...);
}

/// Values where instructions are apt to go wrong, and as many random ones as there are.
template <class T>
std::vector<T> interesting_values(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values;
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    for (const T x : {T{0},
                      T{1},
                      T{2},
                      T{3},
                      T(0.5),
                      T(0.75),
                      T(1.5),
                      T(2.5),
                      T(1) / 3,
                      Limits::min(),
                      Limits::min() * T(1.5),
                      Limits::min() / 2,
                      Limits::denorm_min(),
                      Limits::denorm_min() * 3,
                      Limits::max(),
                      Limits::max() / 2,
                      Limits::epsilon(),
                      T{1} + Limits::epsilon(),
                      T{1} - Limits::epsilon() / 2,
                      T(255.5),
                      T(65504),
                      T(65520),
                      T(2147483648.0),
                      T(1e10),
                      Limits::infinity(),
                      Limits::quiet_NaN()}) {
      values.push_back(x);
      values.push_back(-x);
    }
    values.push_back(std::bit_cast<T>(std::bit_cast<Bits>(Limits::quiet_NaN()) | 0x12345));
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) {
      // Numbers of the same size, so that sums neither vanish nor are exact, or any bits at all.
      const auto bits = static_cast<Bits>(random());
      values.push_back(i % 2 == 0 ? std::bit_cast<T>(bits)
                                  : static_cast<T>(static_cast<std::int32_t>(bits)) / T(65537));
    }
  } else {
    using U = std::make_unsigned_t<T>;
    constexpr int width = 8 * sizeof(T);
    for (const std::uint64_t x : {0,  1,  2,  3,  4,  5,   7,   8,   15,  16,  17,  30, 31,
                                  32, 33, 63, 64, 65, 100, 127, 128, 200, 255, 256, 257}) {
      values.push_back(static_cast<T>(x));
      values.push_back(static_cast<T>(0 - x));
    }
    for (const int shift : {width / 2 - 1, width / 2, width - 2, width - 1}) {
      const std::uint64_t power = std::uint64_t{1} << shift;
      for (const std::uint64_t x : {power - 1, power, power + 1}) values.push_back(static_cast<T>(x));
    }
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<U>(random());
      values.push_back(static_cast<T>(bits >> (i % 3 == 0 ? random() % width : 0)));
    }
  }
  return values;
}

/// Every value with every other.
template <class A, class B>
std::tuple<std::vector<A>, std::vector<B>> all_pairs(const std::vector<A>& a, const std::vector<B>& b) {
  std::tuple<std::vector<A>, std::vector<B>> pairs;
  for (const A& x : a) {
    for (const B& y : b) {
      std::get<0>(pairs).push_back(x);
      std::get<1>(pairs).push_back(y);
    }
  }
  return pairs;
}

template <class T>
auto interesting_pairs() {
  return all_pairs(interesting_values<T>(1), interesting_values<T>(2));
}

/// `count` triples of interesting values.
template <class A, class B = A, class C = A>
std::tuple<std::vector<A>, std::vector<B>, std::vector<C>> interesting_triples(std::size_t count = 20000) {
  const auto a = interesting_values<A>(3);
  const auto b = interesting_values<B>(4);
  const auto c = interesting_values<C>(5);
  std::mt19937 random(6);
  std::tuple<std::vector<A>, std::vector<B>, std::vector<C>> triples;
  for (std::size_t i = 0; i < count; ++i) {
    std::get<0>(triples).push_back(a[random() % a.size()]);
    std::get<1>(triples).push_back(b[random() % b.size()]);
    std::get<2>(triples).push_back(c[random() % c.size()]);
  }
  return triples;
}

/// Expects reference(a, b) from `body` for all pairs of interesting values.
template <class Out, class A, class B = A, class Reference>
void expect_pairs(const std::string& body, Reference reference, TargetArch arch = {9, 0, 'a'}) {
  const auto [a, b] = all_pairs(interesting_values<A>(1), interesting_values<B>(2));
  expect_lanes<Out>(body, arch, reference, a, b);
}

template <class Out, class A, class Reference>
void expect_values(const std::string& body, Reference reference, TargetArch arch = {9, 0, 'a'}) {
  expect_lanes<Out>(body, arch, reference, interesting_values<A>(1));
}

template <class Out, class A, class B = A, class C = A, class Reference>
void expect_triples(const std::string& body, Reference reference, TargetArch arch = {9, 0, 'a'}) {
  const auto [a, b, c] = interesting_triples<A, B, C>();
  expect_lanes<Out>(body, arch, reference, a, b, c);
}

}  // namespace jit::emulator::testing
