// Bulk copies of tensors through tensor maps (PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor",
// "Tensors").
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

constexpr unsigned threads = 32;

struct Tensor {
  std::string name;
  Element element;
  TensorMap map;
  /// Where boxes begin; along the innermost dimension on a multiple of 16 bytes, all else an H200 refuses.
  std::vector<std::vector<int>> corners;
  unsigned smem_offset = 0;
};

unsigned box_bytes(const Tensor& tensor) {
  unsigned bytes = static_cast<unsigned>(bytes_of(tensor.element));
  for (std::size_t i = 0; i < tensor.map.box.size(); ++i) {
    const unsigned step = tensor.map.element_steps.empty() ? 1 : tensor.map.element_steps[i];
    bytes *= (tensor.map.box[i] + step - 1) / step;
  }
  return bytes;
}

std::size_t tensor_elements(const Tensor& tensor) {
  std::size_t bytes = tensor.map.sizes[0] * bytes_of(tensor.element);
  for (std::size_t i = 1; i < tensor.map.sizes.size(); ++i) {
    bytes += (tensor.map.sizes[i] - 1) * tensor.map.strides[i - 1];
  }
  return bytes / bytes_of(tensor.element);
}

std::string coordinates(const std::vector<int>& corner) {
  std::string text = "{";
  for (std::size_t i = 0; i < corner.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", corner[i]);
  return text + "}";
}

std::string begin_gate(unsigned bytes) {
  return fmt::format(
      "  .shared .align 8 .b8 gates[8];\n  .reg .b32 %gate;\n  mov.u32 %gate, gates;\n  setp.eq.u32 %p31, "
      "%thread, 0;\n"
      "  @%p31 mbarrier.init.shared.b64 [%gate], 1;\n  fence.proxy.async;\n  bar.sync 0;\n  @!%p31 bra "
      "ISSUED;\n"
      "  mbarrier.arrive.expect_tx.shared.b64 _, [%gate], {};\n",
      bytes);
}
const std::string end_gate =
    "ISSUED:\n  bar.warp.sync 0xffffffff;\nWAIT:\n  mbarrier.try_wait.parity.shared.b64 %p9, [%gate], 0;\n  "
    "@!%p9 bra WAIT;\n";

// Boxes one behind the other in shared memory, stored as they lie there.
MicroKernel load_kernel(const Tensor& tensor, const std::string& modifiers = "",
                        const std::string& before = "", const std::string& hint = "") {
  const unsigned box = box_bytes(tensor);
  const unsigned all = box * static_cast<unsigned>(tensor.corners.size());
  MicroKernel kernel;
  kernel.name =
      fmt::format("cp.async.bulk.tensor.{}d.load{}/{}", tensor.map.sizes.size(), modifiers, tensor.name);
  kernel.block = {threads, 1, 1};
  kernel.dynamic_smem = tensor.smem_offset + all;
  kernel.inputs = {{.element = tensor.element, .pattern = Pattern::bits, .count = tensor_elements(tensor)}};
  kernel.output = words(all / 4);
  kernel.maps = {tensor.map};
  std::string body = begin_gate(all) + before;
  for (std::size_t i = 0; i < tensor.corners.size(); ++i) {
    body += fmt::format(
        "  cp.async.bulk.tensor.{}d.shared::cluster.global{}.mbarrier::complete_tx::bytes{} [%smem+{}], "
        "[%map0, {}], [%gate]{};\n",
        tensor.map.sizes.size(), modifiers, hint.empty() ? "" : ".L2::cache_hint",
        tensor.smem_offset + i * box, coordinates(tensor.corners[i]), hint);
  }
  return with_text(
      std::move(kernel),
      {.target = sm_90a, .body = body + end_gate + store_shared(0, tensor.smem_offset, all, threads)});
}

// The other way round; `reduction` is "" or ".add" and the like.
MicroKernel store_kernel(const Tensor& tensor, const std::string& reduction = "",
                         Pattern pattern = Pattern::bits) {
  const unsigned box = box_bytes(tensor);
  const unsigned all = box * static_cast<unsigned>(tensor.corners.size());
  MicroKernel kernel;
  kernel.name = fmt::format("cp{}.async.bulk.tensor.{}d.store{}/{}", reduction.empty() ? "" : ".reduce",
                            tensor.map.sizes.size(), reduction, tensor.name);
  kernel.block = {threads, 1, 1};
  kernel.dynamic_smem = all;
  kernel.inputs = {{.element = tensor.element, .pattern = pattern, .count = all / bytes_of(tensor.element)}};
  kernel.output = {.element = tensor.element,
                   .pattern = reduction.empty() ? Pattern::filler : pattern,
                   .count = tensor_elements(tensor)};
  kernel.comparison.element = tensor.element;
  kernel.maps = {tensor.map};
  kernel.maps[0].buffer = -1;
  std::string body =
      fill_shared(0, 0, 0, all, threads) +
      "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  setp.ne.u32 %p31, %thread, 0;\n  @%p31 bra DONE;\n";
  for (std::size_t i = 0; i < tensor.corners.size(); ++i) {
    body += fmt::format(
        "  cp{}.async.bulk.tensor.{}d.global.shared::cta{}.tile.bulk_group [%map0, {}], [%smem+{}];\n",
        reduction.empty() ? "" : ".reduce", tensor.map.sizes.size(), reduction,
        coordinates(tensor.corners[i]), i * box);
  }
  body += "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\nDONE:\n";
  return with_text(std::move(kernel), {.target = sm_90a, .body = body});
}

constexpr auto f16 = TensorElement::f16;

std::vector<Tensor> shapes() {
  std::vector<Tensor> all = {
      {"f16",
       Element::f16,
       {.type = f16, .sizes = {1000}, .strides = {}, .box = {256}},
       {{0}, {8}, {904}, {-104}}},
      {"u8",
       Element::i8,
       {.type = TensorElement::u8, .sizes = {555}, .strides = {}, .box = {128}},
       {{0}, {16}, {496}, {-16}}},
      {"f32",
       Element::f32,
       {.type = TensorElement::f32, .sizes = {300}, .strides = {}, .box = {128}},
       {{0}, {8}, {252}, {-500}}},
      {"f64",
       Element::f64,
       {.type = TensorElement::f64, .sizes = {100}, .strides = {}, .box = {64}},
       {{0}, {50}}},
      {"rows",
       Element::f16,
       {.type = f16, .sizes = {72, 20}, .strides = {160}, .box = {64, 8}},
       {{0, 0}, {8, 3}, {32, 15}, {-8, -2}}},
      {"narrow",
       Element::i32,
       {.type = TensorElement::s32, .sizes = {40, 40}, .strides = {160}, .box = {4, 32}},
       {{0, 0}, {36, 20}}},
      {"nan",
       Element::f16,
       {.type = f16, .sizes = {72, 20}, .strides = {160}, .box = {64, 8}, .fill = TensorFill::nan},
       {{32, 15}, {-8, -2}}},
      {"nan.bf16",
       Element::bf16,
       {.type = TensorElement::bf16,
        .sizes = {72, 20},
        .strides = {160},
        .box = {64, 8},
        .fill = TensorFill::nan},
       {{32, 15}, {-8, -2}}},
      {"nan.f32",
       Element::f32,
       {.type = TensorElement::f32,
        .sizes = {30, 20},
        .strides = {160},
        .box = {32, 8},
        .fill = TensorFill::nan},
       {{16, 15}, {-8, -2}}},
      {"ftz",
       Element::f32,
       {.type = TensorElement::f32_ftz, .sizes = {32, 16}, .strides = {128}, .box = {32, 8}},
       {{0, 0}, {0, 12}}},
      {"cube",
       Element::bf16,
       {.type = TensorElement::bf16, .sizes = {40, 9, 5}, .strides = {96, 960}, .box = {32, 4, 4}},
       {{0, 0, 0}, {8, 7, 3}, {-8, -1, -1}}},
      {"four",
       Element::f16,
       {.type = f16, .sizes = {32, 6, 5, 4}, .strides = {64, 384, 1920}, .box = {16, 4, 2, 2}},
       {{0, 0, 0, 0}, {24, 4, 4, 3}, {-8, -2, -1, -1}}},
      {"five",
       Element::f32,
       {.type = TensorElement::f32,
        .sizes = {16, 4, 3, 3, 3},
        .strides = {64, 256, 768, 2304},
        .box = {8, 2, 2, 2, 2}},
       {{0, 0, 0, 0, 0}, {12, 3, 2, 2, 2}, {-4, -1, -1, -1, -1}}},
      // A broadcast dimension, as grouped heads have it.
      {"stride",
       Element::f16,
       {.type = f16, .sizes = {64, 4, 8}, .strides = {512, 128}, .box = {32, 2, 8}},
       {{0, 0, 0}, {32, 3, 4}}},
      {"steps",
       Element::i32,
       {.type = TensorElement::s32,
        .sizes = {64, 40},
        .strides = {256},
        .box = {32, 16},
        .element_steps = {1, 2}},
       {{0, 0}, {16, 30}}},
  };
  // The boxes of swizzled shared memory: whole and partial rows of the pattern, inside and across the edge.
  struct Swizzle {
    const char* name;
    TensorSwizzle kind;
    unsigned bytes;
  };
  for (const Swizzle& swizzle :
       {Swizzle{"swizzle32", TensorSwizzle::bytes32, 32}, Swizzle{"swizzle64", TensorSwizzle::bytes64, 64},
        Swizzle{"swizzle128", TensorSwizzle::bytes128, 128}}) {
    const std::string name = swizzle.name;
    const auto half = [&](unsigned inner) {
      return TensorMap{
          .type = f16, .sizes = {88, 40}, .strides = {176}, .box = {inner, 8}, .swizzle = swizzle.kind};
    };
    all.push_back({name, Element::f16, half(swizzle.bytes / 2), {{0, 0}, {8, 5}, {64, 30}, {-8, -3}}});
    all.push_back({name + ".offset", Element::f16, half(swizzle.bytes / 2), {{0, 0}, {8, 5}}, 128});
    all.push_back({name + ".u8",
                   Element::i8,
                   {.type = TensorElement::u8,
                    .sizes = {200, 40},
                    .strides = {208},
                    .box = {swizzle.bytes, 8},
                    .swizzle = swizzle.kind},
                   {{0, 0}, {144, 30}}});
    all.push_back({name + ".f32",
                   Element::f32,
                   {.type = TensorElement::f32,
                    .sizes = {40, 40},
                    .strides = {160},
                    .box = {swizzle.bytes / 4, 8},
                    .swizzle = swizzle.kind},
                   {{0, 0}, {28, 30}}});
    all.push_back({name + ".cube",
                   Element::f16,
                   {.type = f16,
                    .sizes = {64, 6, 6},
                    .strides = {128, 768},
                    .box = {swizzle.bytes / 2, 4, 4},
                    .swizzle = swizzle.kind},
                   {{0, 0, 0}, {16, 3, 3}}});
  }
  return all;
}

const Tensor& named(const std::vector<Tensor>& all, std::string_view name) {
  for (const Tensor& tensor : all) {
    if (tensor.name == name) return tensor;
  }
  throw std::logic_error(fmt::format("no tensor is named {}", name));
}

}  // namespace

std::vector<MicroKernel> tensor_kernels() {
  const std::vector<Tensor> all = shapes();
  std::vector<MicroKernel> kernels;
  for (const Tensor& tensor : all) kernels.push_back(load_kernel(tensor));
  for (const char* name : {"f16", "u8", "f32", "rows", "narrow", "cube", "four", "five", "steps", "swizzle32",
                           "swizzle64", "swizzle128", "swizzle128.cube"}) {
    Tensor tensor = named(all, name);
    // Boxes that overlap would be stored in no order. An H200 refuses to store one that begins before the
    // tensor.
    std::erase_if(tensor.corners, [](const std::vector<int>& corner) { return corner[0] < 0; });
    tensor.corners.erase(tensor.corners.begin(), tensor.corners.end() - 1);
    kernels.push_back(store_kernel(tensor));
    tensor.corners = {named(all, name).corners[1]};
    tensor.name += ".inside";
    kernels.push_back(store_kernel(tensor));
  }
  const Tensor rows = named(all, "swizzle128");
  kernels.push_back(load_kernel(rows, ".tile"));
  kernels.push_back(
      load_kernel(rows, "", "  createpolicy.fractional.L2::evict_first.b64 %d5, 1.0;\n", ", %d5"));
  kernels.back().name += ".hint";
  kernels.push_back(load_kernel(
      rows, "",
      "  prefetch.tensormap [%map0];\n  cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map0, {0, 0}];\n"));
  kernels.back().name += ".prefetch";

  struct Reduction {
    const char* operation;
    const char* name;
    TensorElement type;
    Element element;
    Pattern pattern;
  };
  for (const Reduction& reduction :
       {Reduction{".add", "s32", TensorElement::s32, Element::i32, Pattern::bits},
        Reduction{".add", "u64", TensorElement::u64, Element::i64, Pattern::bits},
        Reduction{".min", "u32", TensorElement::u32, Element::i32, Pattern::bits},
        Reduction{".max", "s32", TensorElement::s32, Element::i32, Pattern::bits},
        Reduction{".min", "s64", TensorElement::s64, Element::i64, Pattern::bits},
        Reduction{".inc", "u32", TensorElement::u32, Element::i32, Pattern::bits},
        Reduction{".dec", "u32", TensorElement::u32, Element::i32, Pattern::bits},
        Reduction{".and", "u32", TensorElement::u32, Element::i32, Pattern::bits},
        Reduction{".or", "u32", TensorElement::u32, Element::i32, Pattern::bits},
        Reduction{".xor", "u32", TensorElement::u32, Element::i32, Pattern::bits},
        Reduction{".add", "f16", f16, Element::f16, Pattern::normals},
        Reduction{".add", "f16.wide", f16, Element::f16, Pattern::wide},
        Reduction{".add", "f16.special", f16, Element::f16, Pattern::specials},
        Reduction{".min", "f16", f16, Element::f16, Pattern::specials},
        Reduction{".max", "f16", f16, Element::f16, Pattern::specials},
        Reduction{".add", "bf16", TensorElement::bf16, Element::bf16, Pattern::normals},
        Reduction{".max", "bf16", TensorElement::bf16, Element::bf16, Pattern::specials},
        Reduction{".add", "f32", TensorElement::f32, Element::f32, Pattern::normals},
        Reduction{".add", "f32.small", TensorElement::f32, Element::f32, Pattern::subnormals},
        Reduction{".add", "f32.special", TensorElement::f32, Element::f32, Pattern::specials},
        Reduction{".add", "f32.ftz", TensorElement::f32_ftz, Element::f32, Pattern::subnormals},
        Reduction{".add", "f64", TensorElement::f64, Element::f64, Pattern::normals}}) {
    const unsigned bytes = static_cast<unsigned>(bytes_of(reduction.element));
    Tensor tensor{
        reduction.name,
        reduction.element,
        {.type = reduction.type, .sizes = {128 / bytes, 20}, .strides = {128}, .box = {64 / bytes, 16}},
        {{8, 8}}};
    kernels.push_back(store_kernel(tensor, reduction.operation, reduction.pattern));
  }
  return kernels;
}

}  // namespace jit::conformance
