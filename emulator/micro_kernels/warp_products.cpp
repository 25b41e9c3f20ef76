// Blackwell's mma.sync. The inputs are random fragments, so that the layout of a matrix does not matter here.
#include <string>

#include <fmt/format.h>

#include "micro_kernels/blackwell.h"
#include "micro_kernels/distributions.h"
#include "micro_kernels/kernel_text.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 128;
constexpr int a_registers = 4, b_registers = 2;  // of all shapes here

struct Product {
  const char* shape;
  const char* kind;
  Element a, b;
  Element sum = Element::f32;
  bool is_scaled = false;
  Pattern scales = Pattern::range;  // ue8m0
  std::string selectors = {};       // "SFA's byte, thread, SFB's byte, thread"
};

std::string list(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%r{}", i == 0 ? "" : ", ", first + i);
  return text + "}";
}

MicroKernel warp_product(const std::string& target, const Product& product,
                         const Distribution& distribution) {
  const int sums = product.sum == Element::f16 ? 2 : 4;
  const std::string instruction = fmt::format(
      "mma.sync.aligned.{}.row.col{}.{}.{}.{}.{}{}", product.shape, product.kind, to_string(product.sum),
      to_string(product.a), to_string(product.b), to_string(product.sum), product.is_scaled ? ".ue8m0" : "");
  const auto buffer = [](Element element, Pattern pattern, int registers) {
    return Buffer{.element = element,
                  .pattern = pattern,
                  .count = static_cast<std::size_t>(registers) * threads * 4 / bytes_of(element)};
  };
  MicroKernel kernel;
  kernel.name = fmt::format("{}{}{}/{}", instruction, product.selectors.empty() ? "" : " ", product.selectors,
                            distribution.name);
  if (product.scales == Pattern::bits) kernel.name += ", any scales";
  kernel.block = {threads, 1, 1};
  kernel.inputs = {buffer(product.a, distribution.first, a_registers),
                   buffer(product.b, distribution.second, b_registers),
                   buffer(product.sum, distribution.sum, sums)};
  std::string body = load_words(0, a_registers, 0, threads) + load_words(10, b_registers, 1, threads) +
                     load_words(20, sums, 2, threads);
  std::string operands = fmt::format("{}, {}, {}, {}", list(30, sums), list(0, a_registers),
                                     list(10, b_registers), list(20, sums));
  if (product.is_scaled) {
    Buffer scales = buffer(Element::i8, product.scales, 2);
    scales.low = 120;
    scales.high = 134;
    kernel.inputs.push_back(scales);
    body += load_words(40, 2, 3, threads);
    const std::string& s = product.selectors;  // four digits
    operands += fmt::format(", %r40, {{{}, {}}}, %r41, {{{}, {}}}", s[0], s[1], s[2], s[3]);
  }
  kernel.comparison.element = product.sum;
  kernel.output = buffer(product.sum, Pattern::filler, sums);
  body += fmt::format("  {} {};\n", instruction, operands) + store_words(30, sums, threads);
  return with_text(std::move(kernel), {.target = target, .body = body, .version = blackwell_ptx});
}

}  // namespace

std::vector<MicroKernel> warp_products(const std::string& target, bool with_scales) {
  std::vector<Product> products = {{"m16n8k16", "", Element::bf16, Element::bf16},
                                   {"m16n8k16", "", Element::f16, Element::f16},
                                   {"m16n8k16", "", Element::f16, Element::f16, Element::f16},
                                   {"m16n8k32", "", Element::e4m3, Element::e4m3}};
  constexpr const char *plain = ".kind::f8f6f4", *scaled = ".kind::mxf8f6f4.block_scale.scale_vec::1X";
  for (const Element a : {Element::e4m3, Element::e5m2}) {
    for (const Element b : {Element::e4m3, Element::e5m2}) {
      if (!with_scales) break;
      products.push_back({"m16n8k32", plain, a, b});
      products.push_back({"m16n8k32", plain, a, b, Element::f16});
      products.push_back({"m16n8k32", scaled, a, b, Element::f32, true, Pattern::range, "0000"});
    }
  }
  std::vector<MicroKernel> kernels;
  for (const Product& product : products) {
    for (const Distribution& distribution : distributions(product.a))
      kernels.push_back(warp_product(target, product, distribution));
  }
  if (!with_scales) return kernels;
  const Distribution integers = distributions(Element::e4m3).front();
  const auto add = [&](Pattern scales, const char* selectors) {
    const Product product = {"m16n8k32",   scaled, Element::e4m3, Element::e4m3,
                             Element::f32, true,   scales,        selectors};
    kernels.push_back(warp_product(target, product, integers));
  };
  for (const char* const selectors : {"1000", "2100", "3001", "0112", "0123", "0030", "3133"})
    add(Pattern::range, selectors);
  add(Pattern::bits, "0000");
  return kernels;
}

}  // namespace jit::conformance
