#include "tests/machine_code/record.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "tests/machine_code/code_digest.h"

namespace jit::machine_code {
namespace {

constexpr const char* about =
    "# Machine code of the kernels of kernels.txt, written by `machine_code --renew` (docs/building.md).\n"
    "# name, registers, spilled bytes, static and dynamic shared memory, digest of the code, config\n";
constexpr std::string_view compiler_mark = "compiler: ";

const std::filesystem::path folder = JIT_ATTENTION_SOURCE_DIR "/tests/machine_code";

// "registers 168 → 170"; nothing where they are equal.
std::string change(const char* what, int before, int after) {
  return before == after ? "" : fmt::format("{} {} → {}, ", what, before, after);
}

}  // namespace

Record record_of(const KernelImage& image, const std::string& config) {
  return {.registers = image.resources.registers,
          .spilled_bytes = image.resources.spill_bytes(),
          .static_smem = image.resources.static_smem_bytes,
          .dynamic_smem = image.program.smem_bytes,
          .digest = code_digest(image.code).hex(),
          .config = config};
}

std::string short_text(const KernelConfig& config) {
  const KernelConfig usual =
      std::visit([](const auto& own) { return KernelConfig(std::decay_t<decltype(own)>{}); }, config);
  const std::vector<ConfigValue> values = config_values(config), usual_values = config_values(usual);
  std::string text(family_name(config));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].text != usual_values[i].text) text += fmt::format(" {}={}", values[i].name, values[i].text);
  }
  return text;
}

std::string difference(const Record& before, const Record& after) {
  std::string text = change("registers", before.registers, after.registers) +
                     change("spilled bytes", before.spilled_bytes, after.spilled_bytes) +
                     change("static shared memory", before.static_smem, after.static_smem) +
                     change("dynamic shared memory", before.dynamic_smem, after.dynamic_smem);
  if (before.digest != after.digest) text += text.empty() ? "machine code alone, " : "machine code, ";
  if (text.empty()) return text;
  text.resize(text.size() - 2);
  if (before.config != after.config) text += fmt::format("; config {} → {}", before.config, after.config);
  return text;
}

std::filesystem::path records_path(const NvrtcVersion& version) {
  return folder / fmt::format("nvrtc_{}.{}.txt", version.major, version.minor);
}

std::vector<std::filesystem::path> records_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    if (item.path().filename().string().starts_with("nvrtc_")) files.push_back(item.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Records read_records(const std::filesystem::path& path) {
  Records records;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with("#")) continue;
    if (line.starts_with(compiler_mark)) {
      records.compiler = line.substr(compiler_mark.size());
      continue;
    }
    std::istringstream words(line);
    std::string name;
    Record record;
    words >> name >> record.registers >> record.spilled_bytes >> record.static_smem >> record.dynamic_smem >>
        record.digest >> std::ws;
    if (!words || !std::getline(words, record.config))
      throw std::runtime_error(fmt::format("{}: cannot read '{}'", path.string(), line));
    records.kernels[name] = record;
  }
  return records;
}

void write_records(const std::filesystem::path& path, const Records& records) {
  std::ofstream file(path, std::ios::trunc);
  file << about << compiler_mark << records.compiler << "\n";
  for (const auto& [name, record] : records.kernels) {
    file << fmt::format("{} {} {} {} {} {} {}\n", name, record.registers, record.spilled_bytes,
                        record.static_smem, record.dynamic_smem, record.digest, record.config);
  }
  if (!file.flush()) throw std::runtime_error(fmt::format("cannot write {}", path.string()));
}

}  // namespace jit::machine_code
