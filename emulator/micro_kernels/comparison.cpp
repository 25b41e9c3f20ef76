#include "micro_kernels/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace jit::conformance {
namespace {

constexpr std::size_t shown = 6;

std::uint64_t element_at(std::span<const std::byte> bytes, Element element, std::size_t index) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * bytes_of(element), bytes_of(element));
  return bits;
}

// A float's position in the order of all floats of its type; both zeros have the same one.
double place(Element element, std::uint64_t bits) {
  const int width = static_cast<int>(bytes_of(element)) * 8;
  const std::uint64_t magnitude = bits & ((std::uint64_t{1} << (width - 1)) - 1);
  const bool negative = (bits >> (width - 1) & 1) != 0;
  const double scale = element == Element::tf32 ? 0x1p-13 : 1;
  return (negative ? -1 : 1) * static_cast<double>(magnitude) * scale;
}

double ulps_between(Element element, std::uint64_t left, std::uint64_t right) {
  return std::fabs(place(element, left) - place(element, right));
}

bool agree(const Comparison& comparison, std::uint64_t expected, std::uint64_t got) {
  if (expected == got) return true;
  if (!is_float(comparison.element)) return false;
  const double expected_value = decode(comparison.element, expected);
  const double got_value = decode(comparison.element, got);
  if (std::isnan(expected_value) || std::isnan(got_value)) {
    return comparison.any_nan && std::isnan(expected_value) && std::isnan(got_value);
  }
  if (comparison.ulps > 0 && ulps_between(comparison.element, expected, got) <= comparison.ulps) return true;
  return comparison.absolute > 0 && std::fabs(expected_value - got_value) <= comparison.absolute;
}

// The operands of the thread that wrote an element, when each thread has one or two elements of each input.
std::string operands_of(const MicroKernel& kernel, std::size_t index) {
  const std::size_t threads = threads_of(kernel);
  if (kernel.output.count % threads != 0) return "";
  const std::size_t thread = index % kernel.output.count / (kernel.output.count / threads);
  std::string text;
  for (std::size_t i = 0; i < kernel.inputs.size(); ++i) {
    const Buffer& input = kernel.inputs[i];
    if (input.count != threads && input.count != 2 * threads) return "";
    const std::vector<std::byte> bytes = contents(kernel, static_cast<int>(i));
    const std::size_t each = input.count / threads;
    for (std::size_t j = 0; j < each; ++j) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ",
                          describe(input.element, element_at(bytes, input.element, thread * each + j)));
    }
  }
  return fmt::format(" of ({})", text);
}

}  // namespace

Mismatches compare(const MicroKernel& kernel, std::span<const std::byte> expected,
                   std::span<const std::byte> got) {
  const Element element = kernel.comparison.element;
  Mismatches mismatches;
  mismatches.of = expected.size() / bytes_of(element);
  for (std::size_t i = 0; i < mismatches.of; ++i) {
    const std::uint64_t wanted = element_at(expected, element, i);
    const std::uint64_t found = element_at(got, element, i);
    if (agree(kernel.comparison, wanted, found)) continue;
    ++mismatches.count;
    if (is_float(element) && std::isfinite(decode(element, wanted)) &&
        std::isfinite(decode(element, found))) {
      mismatches.largest_ulps = std::max(mismatches.largest_ulps, ulps_between(element, wanted, found));
    }
    if (mismatches.count > shown) continue;
    mismatches.first += fmt::format("  element {}{}: recorded {}, now {}\n", i, operands_of(kernel, i),
                                    describe(element, wanted), describe(element, found));
  }
  return mismatches;
}

}  // namespace jit::conformance
