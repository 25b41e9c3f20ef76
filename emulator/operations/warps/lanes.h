// Functions applied lane by lane. A warp's 32 lanes make loops that vectorize; they are also compiled for
// AVX2 and FMA, with a choice at run time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "machine/decoder.h"
#include "machine/warp.h"

namespace jit::emulator {

/// The unit of the register file for a value of type T: 64 bits, or 32 into which narrower values are
/// zero-extended.
template <class T>
using Unit = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;

template <class T>
constexpr T value_of(Unit<T> unit) {
  if constexpr (sizeof(T) == sizeof(unit)) {
    return std::bit_cast<T>(unit);
  } else {
    return static_cast<T>(unit);
  }
}

template <class T>
constexpr Unit<T> unit_of(T value) {
  if constexpr (sizeof(T) == sizeof(Unit<T>)) {
    return std::bit_cast<Unit<T>>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

/// The Decoder's type for values of type T; literals are read as such.
template <class T>
constexpr Type ptx_type() {
  if constexpr (std::is_same_v<T, float>) return Type::f32;
  if constexpr (std::is_same_v<T, double>) return Type::f64;
  constexpr std::array by_size = {Type::b8, Type::b16, Type::b32, Type::b64};
  return by_size[static_cast<std::size_t>(std::countr_zero(sizeof(T)))];
}

/// The 32 lanes of a register that holds values of type T.
template <class T>
Unit<T>* lanes(Warp& warp, Slot slot) {
  if constexpr (sizeof(T) > 4) {
    return warp.r64(slot);
  } else {
    return warp.r32(slot);
  }
}

/// One bit for each lane, as a table so that masks and lanes combine in vector registers.
inline constexpr auto lane_bits = [] {
  std::array<std::uint32_t, warp_lanes> bits{};
  for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) bits[lane] = 1u << lane;
  return bits;
}();

template <class Body, class... Arguments>
[[gnu::flatten, gnu::noinline]] auto run_as_compiled(const Body& body, Arguments... arguments) {
  return body(arguments...);
}

#if defined(__x86_64__)
template <class Body, class... Arguments>
[[gnu::target("avx2,fma"), gnu::flatten, gnu::noinline]] auto run_with_avx2(const Body& body,
                                                                            Arguments... arguments) {
  return body(arguments...);
}
#endif

/// Runs body(arguments…), a loop over lanes, compiled for the widest vectors of this host.
template <class Body, class... Arguments>
auto vectorized(const Body& body, Arguments... arguments) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return run_with_avx2(body, arguments...);
  }
#endif
  return run_as_compiled(body, arguments...);
}

/// Copies the lanes of `mask`.
template <class T>
inline void copy_lanes(std::uint32_t mask, T* to, const T* from) {
  if (mask == all_lanes) {
    std::memcpy(to, from, warp_lanes * sizeof(T));
    return;
  }
  for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
    // A mask instead of a conditional, which would become a branch around the store.
    const T chosen = (mask & lane_bits[lane]) != 0 ? static_cast<T>(~T{0}) : T{0};
    to[lane] = (from[lane] & chosen) | (to[lane] & ~chosen);
  }
}

/// The registers of an instruction d, a, b, …
template <class Signature>
struct Operands;
template <class To, class... From>
struct Operands<To(From...)> {
  Slot to = 0;
  std::array<Slot, sizeof...(From)> from = {};
};

/// Operand 0 as the destination, and the following ones as sources.
template <class To, class... From>
Operands<To(From...)> take_operands(Decoder& decoder, std::type_identity<To(From...)>) {
  decoder.expect_count(1 + sizeof...(From));
  std::size_t index = 1;
  const Slot to = decoder.destination(0, ptx_type<To>());
  return {to, {decoder.source(index++, ptx_type<From>())...}};
}

/// d = f(a, b, …), where f is cheap and defined for all bits: every lane is computed, and disabled lanes
/// discard the result.
template <class F, class Signature>
struct Lanewise;
template <class F, class To, class... From>
struct Lanewise<F, To(From...)> final : Operation {
  Lanewise(F f, Operands<To(From...)> slots) : function(std::move(f)), operands(slots) {}

  F function;
  Operands<To(From...)> operands;

  Flow execute(Warp& warp) const override { return execute(warp, std::index_sequence_for<From...>()); }

 private:
  template <std::size_t... index>
  Flow execute(Warp& warp, std::index_sequence<index...>) const {
    const auto loop = [](const F* f, std::uint32_t mask, Unit<To>* to, const Unit<From>*... from) {
      std::array<Unit<To>, warp_lanes> results;
      for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
        results[lane] = unit_of<To>((*f)(value_of<From>(from[lane])...));
      }
      copy_lanes(mask, to, results.data());
    };
    vectorized(loop, &function, warp.exec, lanes<To>(warp, operands.to),
               static_cast<const Unit<From>*>(lanes<From>(warp, operands.from[index]))...);
    return Flow::next;
  }
};

template <class Signature, class F>
std::unique_ptr<const Operation> lanewise(Operands<Signature> operands, F f) {
  return std::make_unique<Lanewise<F, Signature>>(std::move(f), operands);
}
template <class Signature, class F>
std::unique_ptr<const Operation> lanewise(Decoder& decoder, F f) {
  return lanewise<Signature>(take_operands(decoder, std::type_identity<Signature>()), std::move(f));
}

/// d = f(a, b, …), where f is expensive: only executing lanes are computed.
template <class F, class Signature>
struct LaneByLane;
template <class F, class To, class... From>
struct LaneByLane<F, To(From...)> final : Operation {
  LaneByLane(F f, Operands<To(From...)> slots) : function(std::move(f)), operands(slots) {}

  F function;
  Operands<To(From...)> operands;

  Flow execute(Warp& warp) const override { return execute(warp, std::index_sequence_for<From...>()); }

 private:
  template <std::size_t... index>
  Flow execute(Warp& warp, std::index_sequence<index...>) const {
    Unit<To>* const to = lanes<To>(warp, operands.to);
    for_each_lane(warp.exec, [&](int lane) {
      to[lane] = unit_of<To>(function(value_of<From>(lanes<From>(warp, operands.from[index])[lane])...));
    });
    return Flow::next;
  }
};

template <class Signature, class F>
std::unique_ptr<const Operation> lane_by_lane(Operands<Signature> operands, F f) {
  return std::make_unique<LaneByLane<F, Signature>>(std::move(f), operands);
}
template <class Signature, class F>
std::unique_ptr<const Operation> lane_by_lane(Decoder& decoder, F f) {
  return lane_by_lane<Signature>(take_operands(decoder, std::type_identity<Signature>()), std::move(f));
}

/// Calls f(std::true_type) or f(std::false_type): a branch outside of the loop over lanes.
template <class F>
auto with_flag(bool flag, F f) {
  return flag ? f(std::true_type()) : f(std::false_type());
}

/// f on both 16-bit halves of packed values; Half is f's type.
template <class Half, class F>
auto on_halves(F f) {
  return [f](auto... packed) {
    const auto low = static_cast<std::uint16_t>(f(static_cast<Half>(packed)...));
    const auto high = static_cast<std::uint16_t>(f(static_cast<Half>(packed >> 16)...));
    return std::uint32_t{low} | std::uint32_t{high} << 16;
  };
}

/// The instruction's last type modifier. Takes nothing.
inline std::optional<Type> last_type(const Decoder& decoder) {
  std::optional<Type> found;
  for (const std::string& modifier : decoder.text().modifiers) {
    if (const auto type = parse_type(modifier)) found = type;
  }
  return found;
}

}  // namespace jit::emulator
