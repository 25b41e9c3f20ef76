// Tensor cores by the warp (PTX ISA, "mma"). The inputs are random fragments, so that nothing here depends on
// where a matrix element lies.
#include <string>

#include <fmt/format.h>

#include "micro_kernels/distributions.h"
#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 128;

struct Factor {
  const char* name;
  Element element;
};

constexpr Factor f16{"f16", Element::f16}, bf16{"bf16", Element::bf16}, tf32{"tf32", Element::tf32},
    e4m3{"e4m3", Element::e4m3}, e5m2{"e5m2", Element::e5m2}, s8{"s8", Element::i8}, u8{"u8", Element::i8};

struct Shape {
  int m, n, k;
};

struct Product {
  Shape shape;
  Factor first, second;
  const char* result;
  const char* sum;
  const char* target = sm_80;
  const char* suffix = "";
};

int registers_of(int rows, int columns, std::size_t bytes) {
  return rows * columns * static_cast<int>(bytes) / (32 * 4);
}

std::string list(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%r{}", i == 0 ? "" : ", ", first + i);
  return text + "}";
}

Element element_of_sum(std::string_view type) {
  return type == "f32" ? Element::f32 : type == "f16" ? Element::f16 : Element::i32;
}

MicroKernel mma_kernel(const Product& product, const Distribution& distribution) {
  const auto& [m, n, k] = product.shape;
  const int a = registers_of(m, k, bytes_of(product.first.element));
  const int b = registers_of(n, k, bytes_of(product.second.element));
  const int c = registers_of(m, n, bytes_of(element_of_sum(product.sum)));
  const int d = registers_of(m, n, bytes_of(element_of_sum(product.result)));
  const std::string name =
      fmt::format("mma.sync.aligned.m{}n{}k{}.row.col{}.{}.{}.{}.{}", m, n, k, product.suffix, product.result,
                  product.first.name, product.second.name, product.sum);
  const auto buffer = [](Element element, Pattern pattern, int registers) {
    return Buffer{.element = element,
                  .pattern = pattern,
                  .count = static_cast<std::size_t>(registers) * threads * 4 / bytes_of(element)};
  };
  MicroKernel kernel;
  kernel.name = name + "/" + std::string(distribution.name);
  kernel.block = {threads, 1, 1};
  kernel.inputs = {buffer(product.first.element, distribution.first, a),
                   buffer(product.second.element, distribution.second, b),
                   buffer(element_of_sum(product.sum), distribution.sum, c)};
  kernel.comparison.element = element_of_sum(product.result);
  kernel.output = buffer(kernel.comparison.element, Pattern::filler, d);
  return with_text(std::move(kernel), {.target = product.target,
                                       .body = load_words(0, a, 0, threads) + load_words(10, b, 1, threads) +
                                               load_words(20, c, 2, threads) +
                                               fmt::format("  {} {}, {}, {}, {};\n", name, list(30, d),
                                                           list(0, a), list(10, b), list(20, c)) +
                                               store_words(30, d, threads)});
}

}  // namespace

std::vector<MicroKernel> mma_kernels() {
  std::vector<Product> products = {
      {{16, 8, 8}, f16, f16, "f32", "f32"},   {{16, 8, 8}, f16, f16, "f16", "f16"},
      {{16, 8, 16}, f16, f16, "f32", "f32"},  {{16, 8, 16}, f16, f16, "f16", "f16"},
      {{16, 8, 8}, bf16, bf16, "f32", "f32"}, {{16, 8, 16}, bf16, bf16, "f32", "f32"},
      {{16, 8, 4}, tf32, tf32, "f32", "f32"}, {{16, 8, 8}, tf32, tf32, "f32", "f32"},
  };
  for (const int k : {16, 32}) {
    for (const Factor& first : {e4m3, e5m2}) {
      for (const Factor& second : {e4m3, e5m2}) {
        products.push_back({{16, 8, k}, first, second, "f32", "f32", sm_90a});
        products.push_back({{16, 8, k}, first, second, "f16", "f16", sm_90a});
      }
    }
  }
  for (const Shape& shape : {Shape{16, 8, 16}, Shape{16, 8, 32}}) {
    for (const Factor& first : {s8, u8}) {
      for (const Factor& second : {s8, u8}) {
        products.push_back({shape, first, second, "s32", "s32"});
        products.push_back({shape, first, second, "s32", "s32", sm_80, ".satfinite"});
      }
    }
  }
  std::vector<MicroKernel> kernels;
  for (const Product& product : products) {
    for (const Distribution& distribution : distributions(product.first.element)) {
      kernels.push_back(mma_kernel(product, distribution));
    }
  }
  return kernels;
}

}  // namespace jit::conformance
