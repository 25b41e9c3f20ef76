// Descriptors of tcgen05.mma (PTX ISA, "Instruction descriptor", "Matrix Descriptor").
#pragma once

#include <cstdint>
#include <string>

#include "machine/types.h"
#include "operations/tensor/wgmma_descriptor.h"

namespace jit::emulator {

enum class ProductKind { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };

/// The 32 bits taken apart.
struct ProductShape {
  int m = 0, n = 0;
  Type a{}, b{}, d{};
  bool negates_a = false, negates_b = false;
  Major a_major = Major::k, b_major = Major::k;
  bool saturates = false;      ///< of integers
  bool is_stationary = false;  ///< .ws; set before it is parsed
  // Only for block-scaled kinds:
  int a_scale_id = 0, b_scale_id = 0;
  bool has_power_scales = false;  ///< ue8m0, else ue4m3

  /// The fault of `bits` for a product of this kind by `blocks` blocks; empty: none. Sets the other members.
  std::string parse(std::uint32_t bits, ProductKind kind, int blocks);
};

bool is_block_scaled(ProductKind kind);
/// Whether elements have 4 bits, two in a byte.
bool is_of_nibbles(ProductKind kind);

/// The fault of a zero-column mask descriptor; empty: none.
std::string zero_mask_fault(std::uint64_t bits);
/// Whether the mask zeroes a column of B (PTX ISA, "Zero-Column Mask Descriptor": its examples decide the
/// meaning of the two spans).
bool is_zero_column(std::uint64_t bits, const ProductShape& shape, int column);

/// The fault of a matrix descriptor for lines of `pieces` 16-byte pieces; empty: none.
std::string tensor_descriptor_fault(std::uint64_t bits, Major major, int pieces);
/// A valid descriptor in wgmma's layout.
MatrixDescriptor parse_tensor_descriptor(std::uint64_t bits);

}  // namespace jit::emulator
