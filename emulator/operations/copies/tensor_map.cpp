#include "operations/copies/tensor_map.h"

#include <cstring>
#include <type_traits>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

using Element = TensorMap::Element;
using Interleave = TensorMap::Interleave;
using Swizzle = TensorMap::Swizzle;

constexpr std::uint64_t magic = 0x70614d726f736e54u;  // "TnsorMap"

/// The bytes of a map, without the checksum at the end.
struct Encoded {
  std::uint64_t magic;
  std::uint64_t address;
  std::array<std::uint64_t, 4> strides;
  std::array<std::uint32_t, 5> last;  // each dimension's size minus one, as 2³² is legal
  std::array<std::uint16_t, 5> box;
  std::array<std::uint8_t, 5> element_strides;
  std::uint8_t rank, element, interleave, swizzle, l2_promotion, out_of_bounds;
  std::array<std::uint8_t, 31> zeros;
  std::uint64_t checksum;
};
static_assert(sizeof(Encoded) == tensor_map_bytes);
static_assert(std::has_unique_object_representations_v<Encoded>);

// FNV-1a over all that precedes the checksum.
std::uint64_t checksum(const Encoded& encoded) {
  std::array<unsigned char, offsetof(Encoded, checksum)> bytes;
  std::memcpy(bytes.data(), &encoded, bytes.size());
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

bool is_floating(Element element) {
  switch (element) {
    case Element::f16:
    case Element::f32:
    case Element::f64:
    case Element::bf16:
    case Element::f32_ftz:
    case Element::tf32:
    case Element::tf32_ftz:
      return true;
    default:
      return false;
  }
}

std::optional<std::string> check_kinds(const TensorMap& map) {
  if (map.element > Element::u6x16_align16) {
    return fmt::format("the data type {} is none; CU_TENSOR_MAP_DATA_TYPE_* are 0 to 15",
                       static_cast<int>(map.element));
  }
  if (map.interleave > Interleave::bytes32) {
    return fmt::format("the interleave {} is none; CU_TENSOR_MAP_INTERLEAVE_* are 0 to 2",
                       static_cast<int>(map.interleave));
  }
  if (map.swizzle > Swizzle::bytes128_atom64) {
    return fmt::format("the swizzle {} is none; CU_TENSOR_MAP_SWIZZLE_* are 0 to 6",
                       static_cast<int>(map.swizzle));
  }
  if (map.l2_promotion > TensorMap::L2Promotion::bytes256) {
    return fmt::format("the L2 promotion {} is none; CU_TENSOR_MAP_L2_PROMOTION_* are 0 to 3",
                       static_cast<int>(map.l2_promotion));
  }
  if (map.out_of_bounds > TensorMap::OutOfBounds::nan) {
    return fmt::format("the out-of-bounds fill {} is none; CU_TENSOR_MAP_FLOAT_OOB_FILL_* are 0 and 1",
                       static_cast<int>(map.out_of_bounds));
  }
  if (element_bytes(map.element) == 0) {
    return fmt::format(
        "the data type {} has packed elements of less than a byte, which the emulator does not model",
        static_cast<int>(map.element));
  }
  if (map.element == Element::tf32 || map.element == Element::tf32_ftz) {
    return std::string(
        "the data type TFLOAT32 rounds in a way that is not documented and that the emulator does not model; "
        "FLOAT32 moves the same bytes unrounded");
  }
  if (map.interleave != Interleave::none) {
    return std::string(
        "the emulator models interleave NONE only; give channels a dimension of their own instead");
  }
  if (map.swizzle > Swizzle::bytes128) {
    return fmt::format("the emulator does not model swizzle {} (128B_ATOM_*); NONE, 32B, 64B and 128B work",
                       static_cast<int>(map.swizzle));
  }
  if (map.out_of_bounds == TensorMap::OutOfBounds::nan && !is_floating(map.element)) {
    return std::string(
        "out-of-bounds elements can be filled with NaN only where the data type is a floating one");
  }
  return {};
}

}  // namespace

std::uint32_t element_bytes(Element element) {
  switch (element) {
    case Element::u8:
      return 1;
    case Element::u16:
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::u32:
    case Element::s32:
    case Element::f32:
    case Element::f32_ftz:
    case Element::tf32:
    case Element::tf32_ftz:
      return 4;
    case Element::u64:
    case Element::s64:
    case Element::f64:
      return 8;
    default:
      return 0;
  }
}

std::uint32_t swizzle_span(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return 16;
    case Swizzle::bytes32:
      return 32;
    case Swizzle::bytes64:
      return 64;
    default:
      return 128;
  }
}

std::uint32_t swizzled(Swizzle swizzle, std::uint32_t offset) {
  // The bits from bit 7, as many as the span's 16-byte pieces need, are XORed into those from bit 4.
  const std::uint32_t pieces = swizzle_span(swizzle) / 16 - 1;
  return offset ^ ((offset >> 7 & pieces) << 4);
}

std::uint32_t box_extent(const TensorMap& map, std::uint32_t dimension) {
  const std::uint32_t step = dimension == 0 ? 1 : map.element_strides[dimension];
  return (map.box[dimension] + step - 1) / step;
}

std::uint64_t box_bytes(const TensorMap& map) {
  std::uint64_t bytes = element_bytes(map.element);
  for (std::uint32_t i = 0; i < map.rank; ++i) bytes *= box_extent(map, i);
  return bytes;
}

std::optional<std::string> validate(const TensorMap& map) {
  if (auto wrong = check_kinds(map)) return wrong;
  if (map.rank < 1 || map.rank > 5) return fmt::format("the rank {} must be 1 to 5", map.rank);
  if (map.address == 0 || map.address % 16 != 0) {
    return fmt::format("the global address {:#x} must be a multiple of 16 and not 0", map.address);
  }
  for (std::uint32_t i = 0; i < map.rank; ++i) {
    if (map.dimensions[i] < 1 || map.dimensions[i] > std::uint64_t{1} << 32) {
      return fmt::format("globalDim[{}] = {} must be 1 to 2^32", i, map.dimensions[i]);
    }
    if (map.box[i] < 1 || map.box[i] > 256) {
      return fmt::format("boxDim[{}] = {} must be 1 to 256", i, map.box[i]);
    }
    if (map.element_strides[i] < 1 || map.element_strides[i] > 8) {
      return fmt::format("elementStrides[{}] = {} must be 1 to 8", i, map.element_strides[i]);
    }
  }
  for (std::uint32_t i = 0; i + 1 < map.rank; ++i) {
    if (map.strides[i] % 16 != 0 || map.strides[i] >= std::uint64_t{1} << 40) {
      return fmt::format("globalStrides[{}] = {} bytes must be a multiple of 16 and less than 2^40", i,
                         map.strides[i]);
    }
  }
  const std::uint32_t inner = map.box[0] * element_bytes(map.element);
  if (inner % 16 != 0) {
    return fmt::format(
        "a row of the box has boxDim[0] = {} elements of {} bytes, which is no multiple of 16 bytes",
        map.box[0], element_bytes(map.element));
  }
  if (map.swizzle != Swizzle::none && inner > swizzle_span(map.swizzle)) {
    return fmt::format("a row of the box has {} bytes, the swizzle allows at most {}: make boxDim[0] = {}",
                       inner, swizzle_span(map.swizzle),
                       swizzle_span(map.swizzle) / element_bytes(map.element));
  }
  return {};
}

std::array<std::byte, tensor_map_bytes> encode(const TensorMap& map) {
  Encoded encoded = {};
  encoded.magic = magic;
  encoded.address = map.address;
  encoded.strides = map.strides;
  for (std::size_t i = 0; i < 5; ++i) {
    encoded.last[i] = static_cast<std::uint32_t>(map.dimensions[i] - 1);
    encoded.box[i] = static_cast<std::uint16_t>(map.box[i]);
    encoded.element_strides[i] = static_cast<std::uint8_t>(map.element_strides[i]);
  }
  encoded.rank = static_cast<std::uint8_t>(map.rank);
  encoded.element = static_cast<std::uint8_t>(map.element);
  encoded.interleave = static_cast<std::uint8_t>(map.interleave);
  encoded.swizzle = static_cast<std::uint8_t>(map.swizzle);
  encoded.l2_promotion = static_cast<std::uint8_t>(map.l2_promotion);
  encoded.out_of_bounds = static_cast<std::uint8_t>(map.out_of_bounds);
  encoded.checksum = checksum(encoded);
  std::array<std::byte, tensor_map_bytes> bytes;
  std::memcpy(bytes.data(), &encoded, bytes.size());
  return bytes;
}

std::optional<TensorMap> decode(std::span<const std::byte, tensor_map_bytes> bytes) {
  Encoded encoded;
  std::memcpy(&encoded, bytes.data(), bytes.size());
  if (encoded.magic != magic || encoded.checksum != checksum(encoded)) return {};
  TensorMap map;
  map.element = static_cast<Element>(encoded.element);
  map.rank = encoded.rank;
  map.address = encoded.address;
  map.strides = encoded.strides;
  for (std::size_t i = 0; i < 5; ++i) {
    map.dimensions[i] = std::uint64_t{encoded.last[i]} + 1;
    map.box[i] = encoded.box[i];
    map.element_strides[i] = encoded.element_strides[i];
  }
  map.interleave = static_cast<Interleave>(encoded.interleave);
  map.swizzle = static_cast<Swizzle>(encoded.swizzle);
  map.l2_promotion = static_cast<TensorMap::L2Promotion>(encoded.l2_promotion);
  map.out_of_bounds = static_cast<TensorMap::OutOfBounds>(encoded.out_of_bounds);
  if (validate(map)) return {};
  return map;
}

}  // namespace jit::emulator
