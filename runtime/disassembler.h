// SASS of a cubin, by the toolkit's own disassembler where there is one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace jit {

struct Disassembly {
  std::string text;     ///< SASS; empty when it could not be had
  std::string tool;     ///< path of the program that wrote it
  std::string missing;  ///< why there is no text: what was looked for and how to get it
};

/// Runs nvdisasm, else cuobjdump, from PATH, CUDA_HOME/bin, /usr/local/cuda/bin or a wheel of Python that has it. No shell
/// is involved.
/// Throws Error io_error when the temporary file cannot be written.
Disassembly disassemble(std::span<const std::byte> cubin);

}  // namespace jit
