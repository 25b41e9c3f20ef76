// A recording: a device's results of micro-kernels, in one file.
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

/// Conversion of recordings to a file's text and back; `name` is the file's. Throws std::runtime_error for
/// invalid text.
std::string to_text(const Recordings& recordings);
Recordings parse_recordings(std::string_view text, const std::string& name);

/// Empty when the file does not exist. Throws as parse_recordings does.
Recordings read_recordings(const std::filesystem::path& path);
/// Throws std::runtime_error when the file cannot be written.
void write_recordings(const std::filesystem::path& path, const Recordings& recordings);

/// Whether the recording matches the kernel's present text and contents.
bool is_of(const Recording& recording, const MicroKernel& kernel);

}  // namespace jit::conformance
