// Shared-memory layout of wgmma operands (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"
// and "Matrix Descriptor Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "machine/shared_memory.h"

namespace jit::emulator {

/// The dimension along which elements are contiguous in memory.
enum class Major : std::uint8_t {
  k,
  mn,  ///< "transposed": rows of A, or columns of B
};

/// The fields of the 64 bits.
struct MatrixDescriptor {
  enum class Swizzle : std::uint8_t { none, bytes128, bytes64, bytes32 };

  std::uint32_t start = 0;    ///< low 18 bits of a .shared address, a multiple of 16
  std::uint32_t leading = 0;  ///< leading dimension byte offset
  std::uint32_t stride = 0;   ///< stride dimension byte offset
  std::uint32_t base_offset = 0;
  Swizzle swizzle = Swizzle::none;

  static MatrixDescriptor parse(std::uint64_t bits);
};

/// Addresses of a matrix's 16-byte pieces. Lines follow the major dimension: rows of A or columns of B when
/// that is k, else one line for each k. Eight lines make a group.
class OperandLayout {
 public:
  OperandLayout(const MatrixDescriptor& descriptor, Major major);
  /// Address in .shared of the first byte of a piece.
  std::uint32_t address(int line, int piece) const {
    const auto l = static_cast<std::uint32_t>(line), p = static_cast<std::uint32_t>(piece);
    const std::uint32_t linear =
        start_ + l / 8 * group_ + l % 8 * pitch_ + p / atom_pieces_ * atom_ + p % atom_pieces_ * 16;
    return linear ^ (((linear >> 7) - base_offset_) & swizzle_mask_) << 4;
  }
  /// Copies lines [first_line, + lines) of `pieces` pieces each, from first_piece on, one line behind the
  /// other. `lines` is a multiple of 8, and so is first_line. Every byte is read from `memory` as `access`
  /// says, in as few pieces as possible.
  void read(SharedMemory& memory, const Access& access, int first_line, int lines, int first_piece,
            int pieces, std::byte* to) const;

 private:
  std::uint32_t start_, group_, pitch_, atom_, atom_pieces_, swizzle_mask_, base_offset_;
};

/// The fault of a descriptor for lines of `pieces` pieces; empty: none.
std::string descriptor_fault(std::uint64_t bits, Major major, int pieces);
/// The fault of the described layout, independent of the encoding.
std::string layout_fault(const MatrixDescriptor& descriptor, Major major, int pieces);

}  // namespace jit::emulator
