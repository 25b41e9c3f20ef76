// The record of a kernel's machine code, and the files that keep it: one for each NVRTC that recorded.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <jit/kernel_config.h>

#include "generator/build/image.h"
#include "runtime/nvrtc_library.h"

namespace jit::machine_code {

struct Record {
  int registers = 0;      ///< per thread, as are spills
  int spilled_bytes = 0;  ///< stored and loaded
  int static_smem = 0;    ///< bytes per block
  int dynamic_smem = 0;   ///< the same
  std::string digest;     ///< code_digest(), hexadecimal
  /// The family, and what fields of its config are not as by default: "forward_wgmma tile_kv=128"; "-" where there is
  /// none. It is told, not compared.
  std::string config = "-";
};

Record record_of(const KernelImage& image, const std::string& config);

/// As Record::config has it.
std::string short_text(const KernelConfig& config);

/// The differences, such as "registers 168 → 170, machine code"; empty: none.
std::string difference(const Record& before, const Record& after);

/// The records of one build of NVRTC, by the kernels' names.
struct Records {
  std::string compiler;  ///< NvrtcLocation::identity
  std::map<std::string, Record> kernels;
};

/// Where records of such a version are kept: in the source tree.
std::filesystem::path records_path(const NvrtcVersion& version);

/// None where there is no file. Throws std::runtime_error, with its line, for one that cannot be read.
Records read_records(const std::filesystem::path& path);
void write_records(const std::filesystem::path& path, const Records& records);

/// The files of all versions, sorted.
std::vector<std::filesystem::path> records_files();

}  // namespace jit::machine_code
