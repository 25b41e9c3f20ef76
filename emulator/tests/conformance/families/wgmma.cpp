// Tensor cores by the warpgroup (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
// Instructions"). Shared memory is filled with random bytes as they come, so that nothing here depends on
// where a matrix element lies: the hardware alone says what a descriptor means.
#include <algorithm>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "micro_kernels/distributions.h"
#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 128;
constexpr int sums = 100;  ///< first register of the accumulators

// A matrix in shared memory: how its descriptor describes it.
struct Layout {
  unsigned swizzle = 128;  ///< bytes; 0: none
  bool k_major = true;
  unsigned leading = 16;   ///< byte offset
  unsigned stride = 1024;  ///< byte offset
  unsigned start = 0;      ///< bytes from the beginning of the matrix
};

struct Product {
  const char* first = "bf16";
  const char* second = "bf16";
  const char* result = "f32";
  int n = 64;
  Layout a = {};
  Layout b = {};
  bool a_in_registers = false;
  bool adds = true;  ///< to what is in the accumulators
  int a_sign = 1;
  int b_sign = 1;
  int steps = 1;  ///< instructions in a row, 32 bytes apart along k
};

Element element_of(std::string_view type) {
  if (type == "f16") return Element::f16;
  if (type == "bf16") return Element::bf16;
  if (type == "tf32") return Element::tf32;
  if (type == "e4m3") return Element::e4m3;
  if (type == "e5m2") return Element::e5m2;
  if (type == "f32") return Element::f32;
  throw std::logic_error(fmt::format("no matrix is of {}", type));
}

// Enough bytes for whatever the two offsets mean.
unsigned reach(const Layout& layout, int rows, int steps) {
  const unsigned far = std::max(layout.leading, layout.stride);
  const unsigned bytes =
      static_cast<unsigned>(rows) / 8 * far + far + 1024 + layout.start + 32 * static_cast<unsigned>(steps);
  return (bytes + 2047) / 2048 * 2048;
}

std::string descriptor(const char* name, const Layout& layout, unsigned offset) {
  const std::uint64_t kind = layout.swizzle == 128  ? 1
                             : layout.swizzle == 64 ? 2
                             : layout.swizzle == 32 ? 3
                                                    : 0;
  const std::uint64_t bits =
      kind << 62 | std::uint64_t{layout.stride / 16} << 32 | std::uint64_t{layout.leading / 16} << 16;
  return fmt::format(
      "  add.u32 %r5, %smem, {};\n  shr.u32 %r5, %r5, 4;\n  and.b32 %r5, %r5, 0x3fff;\n  cvt.u64.u32 {}, "
      "%r5;\n"
      "  or.b64 {}, {}, {:#x};\n",
      offset + layout.start, name, name, name, bits);
}

std::string list(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%r{}", i == 0 ? "" : ", ", first + i);
  return text + "}";
}

std::string describe(const Layout& layout) {
  return fmt::format("{}{}.{}.{}{}", layout.k_major ? "k" : "mn", layout.swizzle, layout.leading,
                     layout.stride, layout.start == 0 ? "" : fmt::format("+{}", layout.start));
}

MicroKernel wgmma_kernel(const Product& product, const Distribution& distribution) {
  const Element first = element_of(product.first), second = element_of(product.second),
                result = element_of(product.result);
  const int k = 32 / static_cast<int>(bytes_of(first));
  const int registers = 64 * product.n * static_cast<int>(bytes_of(result)) / (4 * 128);
  const bool has_major = bytes_of(first) == 2;
  const unsigned a_bytes = product.a_in_registers ? 0 : reach(product.a, 64, product.steps);
  const unsigned b_bytes = reach(product.b, product.n, product.steps);
  const std::string operation = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}", product.n, k,
                                            product.result, product.first, product.second);
  MicroKernel kernel;
  kernel.name = fmt::format("{}/{}/{}/{}{}{}{}{}", operation,
                            product.a_in_registers ? "registers" : describe(product.a), describe(product.b),
                            distribution.name, product.adds ? "" : ".overwrite",
                            product.a_sign < 0 ? ".nega" : "", product.b_sign < 0 ? ".negb" : "",
                            product.steps == 1 ? "" : fmt::format(".x{}", product.steps));
  kernel.block = {threads, 1, 1};
  kernel.dynamic_smem = a_bytes + b_bytes;
  const auto buffer = [](Element element, Pattern pattern, std::size_t bytes) {
    return Buffer{.element = element, .pattern = pattern, .count = bytes / bytes_of(element)};
  };
  kernel.inputs = {buffer(first, distribution.first, product.a_in_registers ? 4 * threads * 4 : a_bytes),
                   buffer(second, distribution.second, b_bytes),
                   buffer(result, distribution.sum, static_cast<std::size_t>(registers) * threads * 4)};
  kernel.output = buffer(result, Pattern::filler, static_cast<std::size_t>(registers) * threads * 4);
  kernel.comparison.element = result;

  std::string body =
      product.a_in_registers ? load_words(10, 4, 0, threads) : fill_shared(0, 0, 0, a_bytes, threads);
  body += fill_shared(a_bytes, 1, 0, b_bytes, threads) + "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n";
  body += load_words(sums, registers, 2, threads) +
          fmt::format("  setp.eq.u32 %p1, {}, 1;\n", product.adds ? 1 : 0);
  std::string products;
  for (int step = 0; step < product.steps; ++step) {
    Layout a = product.a, b = product.b;
    a.start += 32 * static_cast<unsigned>(step);
    b.start += 32 * static_cast<unsigned>(step);
    const std::string a_descriptor = fmt::format("%d{}", 10 + 2 * step),
                      b_descriptor = fmt::format("%d{}", 11 + 2 * step);
    if (!product.a_in_registers) body += descriptor(a_descriptor.c_str(), a, 0);
    body += descriptor(b_descriptor.c_str(), b, a_bytes);
    products += fmt::format("  {} {}, {}, {}, {}", operation, list(sums, registers),
                            product.a_in_registers ? list(10, 4) : a_descriptor, b_descriptor,
                            step == 0 ? "%p1" : "1");
    products += fmt::format(", {}, {}", product.a_sign, product.b_sign);
    if (has_major && !product.a_in_registers) products += product.a.k_major ? ", 0" : ", 1";
    if (has_major) products += product.b.k_major ? ", 0" : ", 1";
    products += ";\n";
  }
  body += "  wgmma.fence.sync.aligned;\n" + products +
          "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n" +
          store_words(sums, registers, threads);
  return with_text(std::move(kernel), {.target = sm_90a, .body = body, .registers = 256});
}

struct Types {
  const char* first;
  const char* second;
  const char* result;
};

// Every layout of both operands, on numbers whose sums show each element that went into them.
void append_layouts(std::vector<MicroKernel>& kernels) {
  const Distribution integers{"integers", Pattern::integers, Pattern::integers, Pattern::integers};
  const Distribution normals{"normals", Pattern::normals, Pattern::normals, Pattern::normals};
  // Small integers and their sums are exact in f16 too.
  const auto add = [&](Product product) {
    product.first = product.second = product.result = "f16";
    kernels.push_back(wgmma_kernel(product, integers));
  };
  const Layout k_layouts[] = {{128}, {64, true, 16, 512}, {32, true, 16, 256}, {0, true, 128, 256}};
  const Layout mn_layouts[] = {
      {128, false, 2048, 1024}, {64, false, 1024, 512}, {32, false, 512, 256}, {0, false, 128, 256}};
  for (int i = 0; i < 4; ++i) {
    for (const bool a_is_k : {true, false}) {
      for (const bool b_is_k : {true, false}) {
        add({.n = 64,
             .a = a_is_k ? k_layouts[i] : mn_layouts[i],
             .b = b_is_k ? k_layouts[i] : mn_layouts[i]});
      }
    }
    add({.n = 32, .a = k_layouts[i], .b = mn_layouts[(i + 1) % 4]});
    add({.n = 8, .b = mn_layouts[i], .a_in_registers = true});
  }
  // Offsets other than those of dense tiles, and starts inside of the swizzle's pattern.
  add({.n = 32, .a = {128, true, 16, 2048}, .b = {128, true, 64, 1024}});
  add({.n = 16, .a = {0, true, 1024, 128}, .b = {0, true, 512, 128}});
  add({.n = 16, .a = {0, true, 256, 512}, .b = {0, false, 1024, 128}});
  add({.n = 16, .a = {0, false, 1024, 128}, .b = {0, false, 256, 512}});
  add({.n = 32, .a = {64, false, 2048, 512}, .b = {32, false, 256, 1024}});
  for (const unsigned start : {32u, 64u, 96u})
    add({.n = 16, .a = {128, true, 16, 1024, start}, .b = {128, true, 16, 1024, start}});
  add({.n = 16, .a = {64, true, 16, 512, 32}, .b = {64, true, 16, 512, 32}});
  add({.n = 64, .a = {128, false, 2048, 1024, 2048}, .b = {128, false, 2048, 1024, 2048}});
  add({.n = 16, .a = {}, .b = {128, false, 1024, 1024, 32}});
  for (const int n : {24, 40, 96, 128}) add({.n = n});
  add({.n = 256});
  kernels.push_back(wgmma_kernel({.n = 64, .b = {128, false, 2048, 1024}, .a_in_registers = true}, integers));
  for (const Layout& a : {k_layouts[0], mn_layouts[0]}) {
    for (const Layout& b : {k_layouts[0], mn_layouts[0]})
      kernels.push_back(wgmma_kernel({.n = 32, .a = a, .b = b}, normals));
  }
  // The other widths, in each swizzle.
  for (const Types& types : {Types{"tf32", "tf32", "f32"}, Types{"e4m3", "e4m3", "f32"}}) {
    for (const Layout& layout : k_layouts) {
      kernels.push_back(
          wgmma_kernel({types.first, types.second, types.result, 16, layout, layout}, integers));
    }
  }
}

void append_modes(std::vector<MicroKernel>& kernels) {
  const Distribution normals{"normals", Pattern::normals, Pattern::normals, Pattern::normals};
  const Distribution specials{"specials", Pattern::specials, Pattern::specials, Pattern::specials};
  for (const Types& types : {Types{"bf16", "bf16", "f32"}, Types{"f16", "f16", "f16"},
                             Types{"tf32", "tf32", "f32"}, Types{"e5m2", "e4m3", "f32"}}) {
    const auto add = [&](Product product) {
      product.first = types.first;
      product.second = types.second;
      product.result = types.result;
      product.n = 8;
      kernels.push_back(wgmma_kernel(product, product.adds ? normals : specials));
    };
    add({.adds = false});
    add({.a_sign = -1});
    add({.b_sign = -1});
    add({.a_sign = -1, .b_sign = -1});
    add({.a_in_registers = true});
    add({.a_in_registers = true, .a_sign = -1});
    add({.steps = 4});
    add({.adds = false, .steps = 2});
  }
}

// Two groups in flight on different registers; the first is waited for while the second runs.
MicroKernel groups_kernel() {
  MicroKernel kernel =
      wgmma_kernel({.n = 8}, {"normals", Pattern::normals, Pattern::normals, Pattern::normals});
  kernel.name = "wgmma.wait_group/1";
  const std::size_t begin = kernel.ptx.find("  wgmma.fence");
  const std::size_t end = kernel.ptx.find("  st.global.b32", begin);
  const std::string operation = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 ";
  const std::string operands = ", %d10, %d11, 1, 1, 1, 0, 0;\n  wgmma.commit_group.sync.aligned;\n";
  kernel.ptx.replace(begin, end - begin,
                     "  mov.b32 %r110, 0f3F800000;\n  mov.b32 %r111, 0f40000000;\n  mov.b32 %r112, %r100;\n  "
                     "mov.b32 %r113, %r101;\n"
                     "  wgmma.fence.sync.aligned;\n" +
                         operation + list(100, 4) + operands + operation + list(110, 4) + operands +
                         "  wgmma.wait_group.sync.aligned 1;\n  add.f32 %r100, %r100, %r101;\n"
                         "  wgmma.wait_group.sync.aligned 0;\n  add.f32 %r101, %r110, %r111;\n"
                         "  add.f32 %r102, %r102, %r112;\n  add.f32 %r103, %r103, %r113;\n");
  return kernel;
}

}  // namespace

std::vector<MicroKernel> wgmma_kernels() {
  std::vector<MicroKernel> kernels;
  append_layouts(kernels);
  append_modes(kernels);
  kernels.push_back(groups_kernel());
  std::vector<Types> all = {
      {"f16", "f16", "f32"},
      {"f16", "f16", "f16"},
      {"bf16", "bf16", "f32"},
      {"tf32", "tf32", "f32"},
  };
  for (const char* first : {"e4m3", "e5m2"}) {
    for (const char* second : {"e4m3", "e5m2"}) {
      all.push_back({first, second, "f32"});
      all.push_back({first, second, "f16"});
    }
  }
  for (const Types& types : all) {
    for (const Distribution& distribution : distributions(element_of(types.first))) {
      kernels.push_back(wgmma_kernel({types.first, types.second, types.result, 8}, distribution));
    }
  }
  return kernels;
}

}  // namespace jit::conformance
