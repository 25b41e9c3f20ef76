// Writing the PTX of micro-kernels: what every one begins with, and the loads and stores around the
// instruction that is tested.
#pragma once

#include <string>
#include <string_view>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

inline constexpr const char* sm_80 = "sm_80";
inline constexpr const char* sm_90a = "sm_90a";

/// The parts of a micro-kernel's text besides its body.
struct Text {
  std::string target = sm_90a;
  std::string body;
  std::string declarations = {};  ///< of the module
  std::string directives = {};    ///< after the parameters
  int registers = 64;             ///< %r<…>
  const char* version = "8.7";    ///< of PTX
};

/// Fills in `kernel.ptx`. The body finds these registers:
///   %thread, %lane, %warp, %rank (ctaid.x), %index (of the thread in the grid)   .b32
///   %out, %in0, …: addresses of the buffers; %out_at, %in0_at, …: those plus 4 × %index   .b64
///   %smem: of the dynamic shared memory, when there is any   .b32
///   %map0, …: generic addresses of the tensor maps   .b64
/// and may use %r<registers> .b32, %d<64> .b64, %h<64> .b16, %p<32> .pred as it likes.
MicroKernel with_text(MicroKernel kernel, const Text& text);

/// Loads `count` words of each thread from an input into registers from %r`first`: word i of thread t is
/// element i · threads + t.
std::string load_words(int first, int count, int input, unsigned threads);
/// Stores `count` words of each thread to the output from element `row` · threads.
std::string store_words(int first, int count, unsigned threads, int row = 0);
/// Copies `bytes` of an input from `from` to shared memory at `to` with `threads` threads of a block;
/// store_shared copies back. `bytes` is a multiple of 16. Destroys %r0 … %r4, %d0 and %p29.
std::string fill_shared(unsigned to, int input, unsigned from, unsigned bytes, unsigned threads);
/// Copies shared memory from `from` to the output at `to` plus `bytes` times %rank.
std::string store_shared(unsigned to, unsigned from, unsigned bytes, unsigned threads);

/// `text` with every "$name" replaced.
std::string replace_all(std::string text, std::string_view name, std::string_view by);

/// An output of `count` words whose initial contents equal no result.
inline Buffer words(std::size_t count) {
  return {.element = Element::i32, .pattern = Pattern::filler, .count = count};
}

}  // namespace jit::conformance
