// tcgen05.ld and st of every shape, and tcgen05.cp.
#include <string>

#include <fmt/format.h>

#include "micro_kernels/blackwell.h"
#include "micro_kernels/tensor_memory.h"

namespace jit::conformance {
namespace {

constexpr int columns = 64;

struct Shape {
  std::string name;  // with .xN, and .pack of a load where there is one
  int registers;
  bool is_of_half = false;  // 16 lanes
  const char* split = "";   // another operand
};

std::string list(int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%r{}", i == 0 ? "" : ", ", i);
  return text + "}";
}

// Bits that no layout leaves alike.
MicroKernel of_words(std::string name, std::size_t inputs, std::size_t outputs) {
  MicroKernel kernel;
  kernel.name = std::move(name);
  kernel.inputs = {words(columns * tensor_threads), words(inputs)};
  for (Buffer& input : kernel.inputs) input.pattern = Pattern::bits;
  kernel.output = words(outputs);
  return kernel;
}

void add_shape(std::vector<MicroKernel>& kernels, const std::string& target, const Shape& shape, int lane) {
  const std::size_t count = static_cast<std::size_t>(shape.registers) * tensor_threads;
  const std::string address = fmt::format("[%r41+{}]", lane << 16 | 4);
  const std::string place = lane == 0 ? "" : fmt::format(" from lane {}", lane);
  kernels.push_back(with_tensor_memory(
      of_words("tcgen05.ld." + shape.name + place, count, count), target, columns, "",
      fill_columns(0, columns, 0) +
          fmt::format("  tcgen05.ld.sync.aligned.{}.b32 {}, {}{};\n  tcgen05.wait::ld.sync.aligned;\n",
                      shape.name, list(shape.registers), address, shape.split) +
          store_words(0, shape.registers, tensor_threads)));
  std::string name = shape.name;
  if (const std::size_t at = name.find("pack"); at != std::string::npos) name.insert(at, "un");
  kernels.push_back(with_tensor_memory(
      of_words("tcgen05.st." + name + place, count, columns * tensor_threads), target, columns, "",
      fill_columns(0, columns, 0) + load_words(0, shape.registers, 1, tensor_threads) +
          fmt::format("  tcgen05.st.sync.aligned.{}.b32 {}{}, {};\n  tcgen05.wait::st.sync.aligned;\n", name,
                      address, shape.split, list(shape.registers)) +
          store_columns(0, columns)));
}

MicroKernel copy(const std::string& target, const char* shape, unsigned rows, unsigned row_bytes) {
  MicroKernel kernel =
      of_words(std::string("tcgen05.cp.") + shape, rows * row_bytes / 4, 16 * tensor_threads);
  kernel.dynamic_smem = rows * row_bytes;
  return with_tensor_memory(
      std::move(kernel), target, columns, fill_shared(0, 1, 0, rows * row_bytes, tensor_threads),
      fill_columns(0, columns, 0) + meet() + make_descriptor(10, 0, plain_descriptor(rows)) +
          fmt::format("  @%p21 tcgen05.cp.cta_group::1.{} [%r40+4], %d10;\n", shape) + commit_and_wait() +
          store_columns(0, 16));
}

}  // namespace

std::vector<MicroKernel> tensor_memory_moves(const std::string& target) {
  const Shape shapes[] = {
      {"32x32b.x1", 1},           {"32x32b.x32", 32},
      {"32x32b.x4.pack::16b", 4}, {"16x64b.x1", 1, true},
      {"16x64b.x8", 8, true},     {"16x128b.x1", 2, true},
      {"16x128b.x4", 8, true},    {"16x256b.x1", 4, true},
      {"16x256b.x4", 16, true},   {"16x32bx2.x4", 4, true, ", 32"},
  };
  std::vector<MicroKernel> kernels;
  for (const Shape& shape : shapes) {
    add_shape(kernels, target, shape, 0);
    if (shape.is_of_half) add_shape(kernels, target, shape, 16);
  }
  kernels.push_back(copy(target, "128x256b", 128, 32));
  kernels.push_back(copy(target, "128x128b", 128, 16));
  kernels.push_back(copy(target, "128x128b.b8x16.b4x16_p64", 128, 16));
  kernels.push_back(copy(target, "128x128b.b8x16.b6x16_p32", 128, 16));
  kernels.push_back(copy(target, "64x128b.warpx2::02_13", 64, 16));
  kernels.push_back(copy(target, "64x128b.warpx2::01_23", 64, 16));
  kernels.push_back(copy(target, "32x128b.warpx4", 32, 16));
  return kernels;
}

}  // namespace jit::conformance
