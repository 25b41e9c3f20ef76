#include "operations/tensor/wgmma_descriptor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "machine/address_space.h"

namespace jit::emulator {
namespace {

using Swizzle = MatrixDescriptor::Swizzle;

constexpr std::uint32_t piece_bytes = 16;
constexpr std::uint64_t reserved_bits = 0x3ff1'c000'c000'c000;

// Bytes of a pattern row.
std::uint32_t span_of(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::bytes128:
      return 128;
    case Swizzle::bytes64:
      return 64;
    case Swizzle::bytes32:
      return 32;
    case Swizzle::none:
      break;
  }
  return piece_bytes;
}

}  // namespace

MatrixDescriptor MatrixDescriptor::parse(std::uint64_t bits) {
  const auto offset = [&](int first) { return static_cast<std::uint32_t>(bits >> first & 0x3fff) << 4; };
  return {.start = offset(0),
          .leading = offset(16),
          .stride = offset(32),
          .base_offset = static_cast<std::uint32_t>(bits >> 49 & 7),
          .swizzle = static_cast<Swizzle>(bits >> 62)};
}

OperandLayout::OperandLayout(const MatrixDescriptor& descriptor, Major major)
    : start_(descriptor.start),
      group_(descriptor.stride),
      pitch_(span_of(descriptor.swizzle)),
      atom_(descriptor.leading),
      atom_pieces_(pitch_ / piece_bytes),
      swizzle_mask_(atom_pieces_ - 1),
      base_offset_(descriptor.base_offset) {
  // Without swizzle, the two offsets are exchanged ("Strides").
  if (descriptor.swizzle == Swizzle::none && major == Major::mn) std::swap(group_, atom_);
}

void OperandLayout::read(SharedMemory& memory, const Access& access, int first_line, int lines,
                         int first_piece, int pieces, std::byte* to) const {
  const auto line_bytes = static_cast<std::size_t>(pieces) * piece_bytes;
  const auto bytes_at = [&](std::uint32_t address, std::uint32_t bytes) {
    return memory.read(access, address - shared_begin, bytes);
  };
  if (atom_pieces_ == 1) {
    // One piece of each of eight lines: 128 contiguous bytes.
    for (int line = 0; line < lines; line += 8) {
      for (int piece = 0; piece < pieces; ++piece) {
        const std::byte* from = bytes_at(address(first_line + line, first_piece + piece), 8 * piece_bytes);
        std::byte* place =
            to + static_cast<std::size_t>(line) * line_bytes + static_cast<std::size_t>(piece) * piece_bytes;
        for (int i = 0; i < 8; ++i, from += piece_bytes, place += line_bytes) {
          std::memcpy(place, from, piece_bytes);
        }
      }
    }
    return;
  }
  const auto atom_pieces = static_cast<int>(atom_pieces_);
  for (int line = first_line; line < first_line + lines; ++line) {
    for (int piece = first_piece; piece < first_piece + pieces;) {
      // Pieces within one pattern row, which the swizzle permutes.
      const int count = std::min(atom_pieces - piece % atom_pieces, first_piece + pieces - piece);
      std::array<std::uint32_t, 8> addresses;
      std::uint32_t low = ~0u, high = 0;
      for (int i = 0; i < count; ++i) {
        const std::uint32_t place = addresses[static_cast<std::size_t>(i)] = address(line, piece + i);
        low = std::min(low, place);
        high = std::max(high, place);
      }
      const std::uint32_t bytes = static_cast<std::uint32_t>(count) * piece_bytes;
      const std::byte* const all = high - low + piece_bytes == bytes ? bytes_at(low, bytes) : nullptr;
      for (int i = 0; i < count; ++i, to += piece_bytes) {
        const std::uint32_t place = addresses[static_cast<std::size_t>(i)];
        std::memcpy(to, all ? all + (place - low) : bytes_at(place, piece_bytes), piece_bytes);
      }
      piece += count;
    }
  }
}

std::string descriptor_fault(std::uint64_t bits, Major major, int pieces) {
  const MatrixDescriptor descriptor = MatrixDescriptor::parse(bits);
  if ((bits & reserved_bits) != 0) {
    return fmt::format("bits {:#018x} must be 0 (only 0–13, 16–29, 32–45, 49–51 and 62–63 mean something)",
                       bits & reserved_bits);
  }
  return layout_fault(descriptor, major, pieces);
}

std::string layout_fault(const MatrixDescriptor& descriptor, Major major, int pieces) {
  if (descriptor.start < shared_begin) {
    return fmt::format("start address {:#x} is below shared memory, which begins at {:#x}", descriptor.start,
                       shared_begin);
  }
  if (descriptor.swizzle == Swizzle::none) {
    if (descriptor.base_offset == 0) return {};
    return fmt::format("base offset {} needs a swizzle mode", descriptor.base_offset);
  }
  const std::uint32_t span = span_of(descriptor.swizzle);
  const std::uint32_t taken = std::min(static_cast<std::uint32_t>(pieces) * piece_bytes, span);
  const std::uint32_t begin = descriptor.start % span;
  if (begin + taken <= span) return {};
  return fmt::format(
      "start address {:#x} is {} bytes into a row of the {}-byte swizzle, where the {} bytes along {} do not "
      "fit",
      descriptor.start, begin, span, taken, major == Major::k ? "k" : "the rows or columns");
}

}  // namespace jit::emulator
