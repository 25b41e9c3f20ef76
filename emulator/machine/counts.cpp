#include <emulator/counts.h>
#include <emulator/module.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "machine/kernel.h"

namespace jit::emulator {
namespace {

using Json = nlohmann::ordered_json;

/// The single list of counters with their names.
struct Field {
  const char* name;
  std::uint64_t InstructionCounts::*member;
};
constexpr Field fields[] = {
    {"warp_instructions", &InstructionCounts::warps},
    {"thread_instructions", &InstructionCounts::lanes},
    {"tensor_flops", &InstructionCounts::tensor_flops},
    {"global_read_bytes", &InstructionCounts::global_read_bytes},
    {"global_write_bytes", &InstructionCounts::global_write_bytes},
    {"shared_read_bytes", &InstructionCounts::shared_read_bytes},
    {"shared_write_bytes", &InstructionCounts::shared_write_bytes},
    {"local_bytes", &InstructionCounts::local_bytes},
    {"bank_wavefronts", &InstructionCounts::bank_wavefronts},
    {"ideal_wavefronts", &InstructionCounts::ideal_wavefronts},
    {"waits", &InstructionCounts::waits},
};

// Omits zeros, except for the number of instructions.
Json to_json(const InstructionCounts& counts) {
  Json json = Json::object();
  for (const Field& field : fields) {
    if (counts.*field.member != 0 || &field == fields) json[field.name] = counts.*field.member;
  }
  return json;
}

}  // namespace

InstructionCounts& InstructionCounts::operator+=(const InstructionCounts& other) {
  for (const Field& field : fields) this->*field.member += other.*field.member;
  return *this;
}

std::string counts_json(const Function& function, const Counts& counts) {
  const Kernel& kernel = function.kernel();
  InstructionCounts total;
  std::map<std::string_view, InstructionCounts> by_class;
  std::map<std::pair<std::string, int>, InstructionCounts> by_line;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const InstructionInfo& info = kernel.info[i];
    total += counts[i];
    if (counts[i].warps == 0) continue;
    by_class[to_string(info.kind)] += counts[i];
    const auto file = info.source ? static_cast<std::size_t>(info.source->file) : kernel.files.size();
    const bool has_file = file < kernel.files.size();
    by_line[{has_file ? kernel.files[file] : std::string("ptx"),
             has_file ? info.source->line : info.ptx_line}] += counts[i];
  }
  Json json = {{"kernel", kernel.name}, {"total", to_json(total)}};
  json["by_class"] = Json::object();
  for (const auto& [name, sum] : by_class) json["by_class"][std::string(name)] = to_json(sum);
  json["by_line"] = Json::array();
  for (const auto& [place, sum] : by_line) {
    Json row = {{"file", place.first}, {"line", place.second}};
    row.update(to_json(sum));
    json["by_line"].push_back(std::move(row));
  }
  return json.dump(2);
}

std::string annotated_listing(const Function& function, const Counts& counts) {
  const Kernel& kernel = function.kernel();
  const std::string_view ptx = function.program()->ptx;
  std::map<int, InstructionCounts> by_line;
  std::map<int, std::uint32_t> first_on_line;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    by_line[kernel.info[i].ptx_line] += counts[i];
    first_on_line.try_emplace(kernel.info[i].ptx_line, static_cast<std::uint32_t>(i));
  }
  std::string listing =
      fmt::format("{:>10} {:>6} {:>12} {:>10}  {}\n", "warps", "lanes", "bytes", "conflicts", "PTX");
  std::string place;
  int number = 0;
  for (std::size_t begin = 0; begin < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', begin), ptx.size());
    const std::string_view text = ptx.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const auto found = by_line.find(number);
    if (found == by_line.end()) continue;
    const std::string here = place_of(kernel, first_on_line.at(number));
    if (here != place && !here.starts_with("PTX line")) listing += fmt::format("{:41}  // {}\n", "", here);
    place = here;
    const InstructionCounts& sum = found->second;
    if (sum.warps == 0) {
      listing += fmt::format("{:>41}  {}\n", "", text);
      continue;
    }
    const std::uint64_t bytes = sum.global_read_bytes + sum.global_write_bytes + sum.shared_read_bytes +
                                sum.shared_write_bytes + sum.local_bytes;
    const std::uint64_t conflicts = sum.bank_wavefronts - sum.ideal_wavefronts;
    listing += fmt::format("{:>10} {:>6.1f} {:>12} {:>10}  {}\n", sum.warps,
                           static_cast<double>(sum.lanes) / static_cast<double>(sum.warps),
                           bytes ? fmt::format("{}", bytes) : "",
                           conflicts ? fmt::format("{}", conflicts) : "", text);
  }
  return listing;
}

}  // namespace jit::emulator
