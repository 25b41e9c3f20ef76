// A recording of a device: the results of micro-kernels in one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

struct Recording {
  std::uint64_t ptx_hash = 0;       ///< of the text that ran
  std::uint64_t contents_hash = 0;  ///< of its buffers before the launch
  std::vector<std::byte> output;
};

/// By the micro-kernel's name.
using Recordings = std::map<std::string, Recording>;

/// A file of recordings in memory, and back; `name` is the file's. Throws std::runtime_error for text that is none.
std::string to_text(const Recordings& recordings);
Recordings parse_recordings(std::string_view text, const std::string& name);

/// Empty where there is no such file. Throws as parse_recordings does.
Recordings read_recordings(const std::filesystem::path& path);
/// Throws std::runtime_error when the file cannot be written.
void write_recordings(const std::filesystem::path& path, const Recordings& recordings);

/// Whether the recording is of this kernel as it is now.
bool is_of(const Recording& recording, const MicroKernel& kernel);

}  // namespace jit::conformance
