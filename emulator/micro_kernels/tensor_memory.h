// Parts of programs on tensor memory: one block of 128 threads, where thread t accesses lane t.
#pragma once

#include <string>

#include "micro_kernels/kernel_text.h"

namespace jit::conformance {

inline constexpr unsigned tensor_threads = 128;

/// Fills in `kernel.ptx`. Around the body the text allocates `columns` of tensor memory and frees them. The body finds
///   %r40: address of the columns; %r41: that of the warp's own lanes   .b32
///   %r42: address of an mbarrier for one arrival   .b32
///   %p20: of warp 0; %p21: of thread 0   .pred
/// `shared`: what fills shared memory before.
MicroKernel with_tensor_memory(MicroKernel kernel, const std::string& target, int columns,
                               const std::string& shared, const std::string& body);

/// Copies words of an input to columns from `column`, and columns to the output; word t of 128 is lane t's.
/// Both use %r50 to %r57; `count` is a multiple of 8.
std::string fill_columns(int column, int count, int input);
std::string store_columns(int column, int count);

/// Synchronizes all threads; their tensor-memory operations are then complete.
std::string meet();
/// Thread 0 commits; all threads wait for its operations.
std::string commit_and_wait();

/// Sets %d`to` to a descriptor with these bits of shared memory from `at`.
std::string make_descriptor(int to, unsigned at, std::uint64_t bits);

/// Descriptor bits for rows of 16-byte pieces without swizzle: groups of 8 rows follow each other, then the
/// next pieces.
std::uint64_t plain_descriptor(unsigned rows);

}  // namespace jit::conformance
