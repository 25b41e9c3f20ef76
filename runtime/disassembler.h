// SASS of a cubin, by the toolkit's disassembler if one is installed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace jit {

struct Disassembly {
  std::string text;     ///< SASS; empty if unavailable
  std::string tool;     ///< path of the disassembler
  std::string missing;  ///< why `text` is empty: searched tools, and how to install one
};

/// Runs nvdisasm, else cuobjdump, from PATH, CUDA_HOME/bin, /usr/local/cuda/bin or a Python wheel, without a
/// shell. Throws Error io_error if the temporary file cannot be written.
Disassembly disassemble(std::span<const std::byte> cubin);

}  // namespace jit
