#include "runtime/resource_usage.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace jit {
namespace {

// The number before `what`, as in "16 bytes smem"; 0 if the line does not contain `what`.
int number_before(std::string_view line, std::string_view what) {
  const std::size_t position = line.find(what);
  if (position == std::string_view::npos) return 0;
  const std::string_view before = line.substr(0, position);
  const std::size_t begin = before.find_last_not_of("0123456789") + 1;
  int number = 0;
  std::from_chars(before.data() + begin, before.data() + before.size(), number);
  return number;
}

// The number after `what`, as in "used 1 barriers".
int number_after(std::string_view line, std::string_view what) {
  const std::size_t position = line.find(what);
  if (position == std::string_view::npos) return 0;
  const std::string_view after = line.substr(position + what.size());
  int number = 0;
  std::from_chars(after.data(), after.data() + after.size(), number);
  return number;
}

// Whether the line is a warning or advice on performance, an info with "(C7510)" or the like.
bool is_remark(std::string_view line) {
  return line.starts_with("ptxas") && (line.starts_with("ptxas warning") || line.find("(C7") != line.npos);
}

// Takes the maximum: an entry needs as much as the functions that it calls.
void keep_larger(ResourceUsage& usage, const ResourceUsage& other) {
  usage.registers = std::max(usage.registers, other.registers);
  usage.spill_store_bytes = std::max(usage.spill_store_bytes, other.spill_store_bytes);
  usage.spill_load_bytes = std::max(usage.spill_load_bytes, other.spill_load_bytes);
  usage.stack_bytes = std::max(usage.stack_bytes, other.stack_bytes);
  usage.static_smem_bytes = std::max(usage.static_smem_bytes, other.static_smem_bytes);
  usage.barriers = std::max(usage.barriers, other.barriers);
}

ResourceUsage parse_line(std::string_view line) {
  ResourceUsage usage;
  usage.spill_store_bytes = number_before(line, " bytes spill stores");
  usage.spill_load_bytes = number_before(line, " bytes spill loads");
  usage.stack_bytes = std::max(number_before(line, " bytes stack frame"),
                               number_before(line, " bytes cumulative stack size"));
  usage.registers = number_after(line, "Used ");
  usage.barriers = number_after(line, ", used ");
  usage.static_smem_bytes = number_before(line, " bytes smem");
  return usage;
}

}  // namespace

ResourceUsage parse_resource_usage(std::string_view log, std::string_view kernel) {
  constexpr std::string_view entry_mark = "Compiling entry function '";
  std::map<std::string_view, ResourceUsage> entries;
  std::string_view entry;
  std::vector<std::string> remarks;
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
    if (is_remark(line)) {
      remarks.emplace_back(line);
    } else if (const std::size_t mark = line.find(entry_mark); mark != std::string_view::npos) {
      entry = line.substr(mark + entry_mark.size());
      entry = entry.substr(0, entry.find('\''));
    } else if (line.starts_with("ptxas") || line.starts_with("    ")) {
      keep_larger(entries[entry], parse_line(line));
    }
  }
  ResourceUsage usage;
  if (const auto named = entries.find(kernel); !kernel.empty() && named != entries.end()) {
    usage = named->second;
  } else {
    for (const auto& [name, other] : entries) keep_larger(usage, other);
  }
  usage.remarks = std::move(remarks);
  return usage;
}

bool ResourceUsage::serializes_wgmma() const {
  return std::any_of(remarks.begin(), remarks.end(),
                     [](const std::string& remark) { return remark.find("(C75") != std::string::npos; });
}

}  // namespace jit
