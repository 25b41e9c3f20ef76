// Callers' structs, compiled with an earlier or later header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "capi/errors.h"

namespace jit::c {

/// A caller's struct as this version's: members that the caller's version lacks are zero. Throws Error
/// invalid_argument for a null or unaligned pointer, an impossible size, and nonzero members that this
/// version does not know.
template <class T>
T known_part(const T* given, std::string_view argument) {
  const std::size_t size = checked_pointer(&checked_pointer(given, argument).size, argument);
  constexpr std::size_t largest = 1 << 12;  // no version is larger
  if (size <= sizeof(size) || size % alignof(T) != 0 || size > largest)
    refuse(argument, fmt::format("has size {}; set it to sizeof, {}", size, sizeof(T)));
  T known = {};
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t at = sizeof(T); at < size; ++at) {
    if (bytes[at] != 0)
      refuse(argument,
             fmt::format("has size {} and is not zero at byte {}; this library knows {} bytes: leave "
                         "members of later versions zero, or update the library",
                         size, at, sizeof(T)));
  }
  return known;
}

/// A struct's boolean. Throws Error invalid_argument unless it is 0 or 1.
inline bool truth(std::int32_t value, std::string_view name) {
  if (value != 0 && value != 1) refuse(name, fmt::format("is {}; it must be 0 or 1", value));
  return value == 1;
}

/// Throws Error invalid_argument for a nonzero reserved member.
inline void check_reserved(std::int32_t value) {
  if (value != 0) refuse("reserved", fmt::format("is {}; it must be 0", value));
}

/// Throws Error invalid_argument for a null array with elements.
template <class T>
void check_array(const T* first, std::size_t count, std::string_view name) {
  constexpr std::size_t most = 1 << 20;
  if (count > most) refuse(name, fmt::format("has {} elements; at most {} are possible", count, most));
  if (count > 0) checked_pointer(first, name);
}

}  // namespace jit::c
