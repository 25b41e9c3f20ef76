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
  // Block-scaled kinds alone:
  int a_scale_id = 0, b_scale_id = 0;
  bool has_power_scales = false;  ///< ue8m0, else ue4m3

  /// The fault of `bits` for a product of this kind by so many blocks; empty: nothing. Fills the rest.
  std::string parse(std::uint32_t bits, ProductKind kind, int blocks);
};

bool is_block_scaled(ProductKind kind);
/// Elements of 4 bits, two in a byte.
bool is_of_nibbles(ProductKind kind);

/// The fault of a zero-column mask descriptor; empty: nothing.
std::string zero_mask_fault(std::uint64_t bits);
/// Whether the mask takes a column of B as zeros (PTX ISA, "Zero-Column Mask Descriptor": the examples decide which of
/// the two spans is which).
bool is_zero_column(std::uint64_t bits, const ProductShape& shape, int column);

/// The fault of a matrix descriptor, for lines of `pieces` pieces of 16 bytes; empty: nothing.
std::string tensor_descriptor_fault(std::uint64_t bits, Major major, int pieces);
/// A descriptor without fault, as wgmma's layout.
MatrixDescriptor parse_tensor_descriptor(std::uint64_t bits);

}  // namespace jit::emulator
