// A micro-kernel: PTX that isolates one instruction, with its buffers and launch shape. A GPU and the
// emulator run the same one and must write the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <emulator/tensor_map.h>

#include "micro_kernels/values.h"

namespace jit::conformance {

using TensorElement = emulator::TensorMap::Element;
using TensorSwizzle = emulator::TensorMap::Swizzle;
using TensorFill = emulator::TensorMap::OutOfBounds;

/// Arguments of cuTensorMapEncodeTiled for one of the kernel's buffers; enumerators have its values.
struct TensorMap {
  int buffer = 0;  ///< of MicroKernel::inputs; −1: the output
  TensorElement type = TensorElement::f16;
  std::vector<std::uint64_t> sizes;               ///< elements, innermost first
  std::vector<std::uint64_t> strides = {};        ///< bytes, one less than sizes
  std::vector<std::uint32_t> box;                 ///< elements
  std::vector<std::uint32_t> element_steps = {};  ///< empty: ones
  TensorSwizzle swizzle = TensorSwizzle::none;
  TensorFill fill = TensorFill::zero;
};

/// Tolerance between an output and the recording, per element.
struct Comparison {
  Element element = Element::i32;
  double ulps = 0;       ///< largest difference in units in the last place; 0: the same bits
  double absolute = 0;   ///< or the largest absolute difference
  bool any_nan = false;  ///< any NaN equals any other
};

struct MicroKernel {
  std::string name;  ///< unique; begins with the tested instruction: "add.rz.f32"
  /// One entry, `micro`, with the parameters: address of the output, addresses of the inputs, tensor maps
  /// (.align 64 .b8[128]).
  std::string ptx;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {32, 1, 1};
  std::array<unsigned, 3> cluster = {1, 1, 1};
  unsigned dynamic_smem = 0;
  int registers = 0;  ///< per thread, where the text says .maxnreg
  std::vector<Buffer> inputs;
  Buffer output;  ///< its contents before the launch
  std::vector<TensorMap> maps;
  Comparison comparison;
};

/// Threads of the whole grid.
unsigned threads_of(const MicroKernel& kernel);

/// Contents of the input `index`, or of the output before the launch for −1.
std::vector<std::byte> contents(const MicroKernel& kernel, int index);
/// Hash of all contents; it detects changes of the generator after a recording.
std::uint64_t hash_of_contents(const MicroKernel& kernel);

/// Micro-kernels that belong together.
struct Family {
  std::string name;
  std::vector<MicroKernel> kernels;
};

}  // namespace jit::conformance
