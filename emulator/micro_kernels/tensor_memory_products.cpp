// tcgen05.mma: operands are random bytes of shared memory, so that an element read from the wrong address
// shows.
#include <string>

#include <fmt/format.h>

#include "micro_kernels/blackwell.h"
#include "micro_kernels/distributions.h"
#include "micro_kernels/tensor_memory.h"

namespace jit::conformance {
namespace {

constexpr unsigned line_bytes = 32;  // of a row of A along k, for all kinds

// Layout of an operand in shared memory.
struct Layout {
  bool along_k = true;
  unsigned swizzle = 128;
};

struct Product {
  std::string kind;
  Element a, b;
  bool to_f16 = false;
  int m = 128, n = 32;
  bool a_in_tensor_memory = false;
  Layout a_layout = {}, b_layout = {};
  bool accumulates = true, negates = false;
  int scale = 0;                    // D · 2^−scale
  Pattern scales = Pattern::range;  // of the block-scaled kinds
  int scale_id = 0;
  std::uint32_t narrow = 0;    // type of A and B in the descriptor: elements of 4 or 6 bits
  bool is_stationary = false;  // .ws

  bool is_scaled() const { return kind.starts_with("mx"); }
  bool is_of_nibbles() const { return kind.starts_with("mxf4"); }
};

struct Place {
  unsigned bytes;
  std::uint64_t descriptor;
};

Place place_of(const Layout& layout, unsigned lines, unsigned element_bytes) {
  if (layout.swizzle == 0) return {lines * line_bytes, plain_descriptor(lines)};
  const std::uint64_t mode = layout.swizzle == 128 ? 2 : layout.swizzle == 64 ? 4 : 6;
  const unsigned k = line_bytes / element_bytes, panel = k * layout.swizzle;
  const std::uint64_t leading = layout.along_k ? 16 : panel;
  const unsigned bytes = layout.along_k
                             ? lines * layout.swizzle
                             : (lines * element_bytes + layout.swizzle - 1) / layout.swizzle * panel;
  return {bytes, mode << 61 | std::uint64_t{1} << 46 | std::uint64_t{8 * layout.swizzle / 16} << 32 |
                     leading / 16 << 16};
}

std::uint32_t instruction_of(const Product& product) {
  const auto code = [&](Element element) {
    return product.narrow != 0                                                               ? product.narrow
           : product.is_of_nibbles() || element == Element::bf16 || element == Element::e5m2 ? 1u
                                                                                             : 0u;
  };
  const std::uint32_t common =
      code(product.a) << 7 | code(product.b) << 10 | std::uint32_t{product.negates} << 13 |
      std::uint32_t{!product.a_layout.along_k} << 15 | std::uint32_t{!product.b_layout.along_k} << 16 |
      static_cast<std::uint32_t>(product.n / 8) << 17;
  if (!product.is_scaled()) {
    return common | (product.to_f16 ? 0u : 1u << 4) | static_cast<std::uint32_t>(product.m / 16) << 24;
  }
  const auto id = static_cast<std::uint32_t>(product.scale_id);
  const bool is_power = product.kind.find("4X") == std::string::npos;
  return common | id << 4 | std::uint32_t{is_power} << 23 | 1u << 27 | id << 29;
}

std::string name_of(const Product& product, std::string_view distribution) {
  std::string name =
      fmt::format("tcgen05.mma.kind::{}.{}.{} m{}n{} to {}", product.kind, to_string(product.a),
                  to_string(product.b), product.m, product.n, product.to_f16 ? "f16" : "f32");
  if (product.narrow != 0) name += fmt::format(" of type {}", product.narrow);
  if (product.is_stationary) name += ", weights stationary";
  if (product.a_in_tensor_memory) name += ", A in tensor memory";
  const auto add = [&](const char* operand, const Layout& layout) {
    if (layout.along_k && layout.swizzle == 128) return;
    name += fmt::format(", {} {} with swizzle {}", operand, layout.along_k ? "along k" : "across k",
                        layout.swizzle);
  };
  add("A", product.a_layout);
  add("B", product.b_layout);
  if (!product.accumulates) name += ", D anew";
  if (product.negates) name += ", -A";
  if (product.scale != 0) name += fmt::format(", D times 2^-{}", product.scale);
  if (product.scale_id != 0) name += fmt::format(", scale {}", product.scale_id);
  if (product.scales != Pattern::range) name += ", any scales";
  return fmt::format("{}/{}", name, distribution);
}

MicroKernel tensor_product(const std::string& target, const Product& product,
                           const Distribution& distribution) {
  const auto rows = static_cast<unsigned>(product.m), n = static_cast<unsigned>(product.n);
  const Place a = product.a_in_tensor_memory
                      ? Place{0, 0}
                      : place_of(product.a_layout, rows, static_cast<unsigned>(bytes_of(product.a)));
  const Place b = place_of(product.b_layout, n, static_cast<unsigned>(bytes_of(product.b)));
  const unsigned b_at = (a.bytes + 1023) / 1024 * 1024, scales_at = (b_at + b.bytes + 1023) / 1024 * 1024;
  constexpr unsigned scale_bytes = 512;  // of 128 rows
  const auto buffer = [](Element element, Pattern pattern, std::size_t bytes) {
    return Buffer{.element = element, .pattern = pattern, .count = bytes / bytes_of(element)};
  };
  const Element sum = product.to_f16 ? Element::f16 : Element::f32;
  const std::size_t tile_bytes = std::size_t{4} * tensor_threads * n;
  MicroKernel kernel;
  kernel.name = name_of(product, distribution.name);
  kernel.inputs = {buffer(product.a, distribution.first,
                          product.a_in_tensor_memory ? tensor_threads * line_bytes : a.bytes),
                   buffer(product.b, distribution.second, b.bytes),
                   buffer(sum, distribution.sum, tile_bytes)};
  kernel.output = buffer(sum, Pattern::filler, tile_bytes);
  kernel.comparison.element = sum;
  kernel.dynamic_smem = scales_at;

  std::string shared = product.a_in_tensor_memory ? "" : fill_shared(0, 0, 0, a.bytes, tensor_threads);
  shared += fill_shared(b_at, 1, 0, b.bytes, tensor_threads);
  std::string body = fill_columns(0, product.n, 2);
  if (product.a_in_tensor_memory) body += fill_columns(product.n, line_bytes / 4, 0);
  std::string scales;
  body += meet() + make_descriptor(11, b_at, b.descriptor);
  if (!product.a_in_tensor_memory) body += make_descriptor(10, 0, a.descriptor);
  if (product.is_scaled()) {
    Buffer of_blocks = buffer(Element::i8, product.scales, 2 * scale_bytes);
    const bool is_power = product.kind.find("4X") == std::string::npos;
    of_blocks.low = is_power ? 120 : 0x20;
    of_blocks.high = is_power ? 134 : 0x50;
    kernel.inputs.push_back(of_blocks);
    kernel.dynamic_smem += 2 * scale_bytes;
    shared += fill_shared(scales_at, 3, 0, 2 * scale_bytes, tensor_threads);
    for (int i = 0; i < 2; ++i) {
      body +=
          make_descriptor(12, scales_at + static_cast<unsigned>(i) * scale_bytes, plain_descriptor(32)) +
          fmt::format("  @%p21 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r40+{}], %d12;\n", product.n + 4 * i);
    }
    scales = fmt::format(", [%r46], [%r47]");
    body += fmt::format("  add.u32 %r46, %r40, {};\n  add.u32 %r47, %r40, {};\n", product.n, product.n + 4);
  }
  body += fmt::format(
      "  mov.u32 %r45, {:#x};\n  setp.ne.u32 %p23, {}, 0;\n  add.u32 %r48, %r40, {};\n"
      "  @%p21 tcgen05.mma{}.cta_group::1.kind::{} [%r40], {}, %d11, %r45{}, %p23{};\n",
      instruction_of(product), product.accumulates ? 1 : 0, product.n, product.is_stationary ? ".ws" : "",
      product.kind, product.a_in_tensor_memory ? "[%r48]" : "%d10", scales,
      product.scale != 0 ? fmt::format(", {}", product.scale) : "");
  body += commit_and_wait() + store_columns(0, product.n);
  return with_tensor_memory(std::move(kernel), target, product.n > 120 ? 256 : 64, shared, body);
}

}  // namespace

std::vector<MicroKernel> tensor_memory_products(const std::string& target) {
  constexpr Element bf16 = Element::bf16, f16 = Element::f16, e4m3 = Element::e4m3, e5m2 = Element::e5m2;
  std::vector<MicroKernel> kernels;
  const auto add_all = [&](const Product& product) {
    for (const Distribution& distribution : distributions(product.a))
      kernels.push_back(tensor_product(target, product, distribution));
  };
  const auto add = [&](const Product& product) {
    kernels.push_back(tensor_product(target, product, distributions(product.a)[1]));
  };
  const std::string scaled = "mxf8f6f4.block_scale.scale_vec::1X";
  add_all({.kind = "f16", .a = bf16, .b = bf16});
  add_all({.kind = "f16", .a = f16, .b = f16});
  add_all({.kind = "f16", .a = f16, .b = f16, .to_f16 = true});
  add_all({.kind = "f8f6f4", .a = e4m3, .b = e4m3});
  add_all({.kind = "f8f6f4", .a = e5m2, .b = e4m3});
  add_all({.kind = "f8f6f4", .a = e4m3, .b = e5m2, .to_f16 = true});
  add_all({.kind = scaled, .a = e4m3, .b = e4m3});
  add_all({.kind = scaled, .a = e5m2, .b = e5m2});
  for (const int id : {1, 2, 3}) add({.kind = scaled, .a = e4m3, .b = e4m3, .scale_id = id});
  add({.kind = scaled, .a = e4m3, .b = e4m3, .scales = Pattern::bits});
  for (const char* const kind :
       {"mxf4nvf4.block_scale.scale_vec::4X", "mxf4nvf4.block_scale.scale_vec::2X"}) {
    kernels.push_back(tensor_product(target, {.kind = kind, .a = Element::i8, .b = Element::i8},
                                     {"bits", Pattern::bits, Pattern::bits, Pattern::normals}));
  }
  for (const Element element : {bf16, e4m3}) {
    const Product plain{.kind = element == bf16 ? "f16" : "f8f6f4", .a = element, .b = element};
    Product product = plain;
    product.a_in_tensor_memory = true;
    add(product);
    product.m = 64;
    add(product);
    product.a_in_tensor_memory = false;
    add(product);
    product = plain;
    product.n = 128;
    add(product);
    for (const unsigned swizzle : {0u, 32u, 64u}) {
      product = plain;
      product.a_layout = product.b_layout = {true, swizzle};
      add(product);
    }
    for (const unsigned swizzle : {32u, 64u, 128u}) {
      product = plain;
      product.a_layout = {false, swizzle};
      add(product);
      product = plain;
      product.n = 128;
      product.b_layout = {false, swizzle};
      add(product);
    }
    product = plain;
    product.accumulates = false;
    add(product);
    product = plain;
    product.negates = true;
    add(product);
  }
  add({.kind = "f16", .a = bf16, .b = bf16, .scale = 3});
  for (const std::uint32_t type : {3u, 4u, 5u}) {  // e2m3, e3m2, e2m1
    Product product{.kind = "f8f6f4", .a = Element::i8, .b = Element::i8, .narrow = type};
    for (const bool in_tensor_memory : {false, true}) {
      product.a_in_tensor_memory = in_tensor_memory;
      kernels.push_back(
          tensor_product(target, product, {"bits", Pattern::bits, Pattern::bits, Pattern::normals}));
    }
  }
  for (const int m : {32, 64, 128})
    add({.kind = "f16", .a = bf16, .b = bf16, .m = m, .n = 64, .is_stationary = true});
  return kernels;
}

}  // namespace jit::conformance
