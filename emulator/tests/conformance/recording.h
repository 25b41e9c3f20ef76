// A recording of a GPU: the results of a family's micro-kernels in one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/conformance/micro_kernel.h"

namespace jit::conformance {

struct Recording {
  std::uint64_t ptx_hash = 0;       ///< of the text that ran
  std::uint64_t contents_hash = 0;  ///< of its buffers before the launch
  std::vector<std::byte> output;
};

/// By the micro-kernel's name.
using Recordings = std::map<std::string, Recording>;

/// Empty where there is no such file. Throws std::runtime_error for a file that is none of write_recordings.
Recordings read_recordings(const std::filesystem::path& path);
/// Throws std::runtime_error when the file cannot be written.
void write_recordings(const std::filesystem::path& path, const Recordings& recordings);

/// Whether the recording is of this kernel as it is now.
bool is_of(const Recording& recording, const MicroKernel& kernel);

}  // namespace jit::conformance
