// Tensor maps: a CUtensorMap contains the emulator's own encoding.
#include <algorithm>
#include <cstring>

#include <emulator/tensor_map.h>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

static_assert(sizeof(CUtensorMap) == emulator::tensor_map_bytes);

// Clamps to 8 bits, so that no invalid number wraps to a valid one.
template <class Enum, class Number>
Enum cast(Number value) {
  return static_cast<Enum>(std::min<unsigned>(static_cast<unsigned>(value), 255));
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* result, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dimensions, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill out_of_bounds) {
  return call([&] {
    require(result, "tensorMap");
    require(dimensions, "globalDim");
    require(box, "boxDim");
    require(element_strides, "elementStrides");
    if (reinterpret_cast<std::uintptr_t>(result) % emulator::tensor_map_alignment != 0) {
      fail(CUDA_ERROR_INVALID_VALUE, "tensorMap must be aligned to 64 bytes");
    }
    if (rank < 1 || rank > 5) {
      fail(CUDA_ERROR_INVALID_VALUE, "tensorRank is " + std::to_string(rank) + "; it must be 1 to 5");
    }
    if (rank > 1) require(strides, "globalStrides");
    using Map = emulator::TensorMap;
    Map map{.element = cast<Map::Element>(type),
            .rank = rank,
            .address = reinterpret_cast<std::uintptr_t>(address),
            .interleave = cast<Map::Interleave>(interleave),
            .swizzle = cast<Map::Swizzle>(swizzle),
            .l2_promotion = cast<Map::L2Promotion>(l2_promotion),
            .out_of_bounds = cast<Map::OutOfBounds>(out_of_bounds)};
    std::copy_n(dimensions, rank, map.dimensions.begin());
    std::copy_n(box, rank, map.box.begin());
    std::copy_n(element_strides, rank, map.element_strides.begin());
    if (rank > 1) std::copy_n(strides, rank - 1, map.strides.begin());
    if (const auto wrong = emulator::validate(map)) fail(CUDA_ERROR_INVALID_VALUE, *wrong);
    const auto bytes = emulator::encode(map);
    std::memcpy(result, bytes.data(), bytes.size());
  });
}

}  // namespace jit::emulated_driver
