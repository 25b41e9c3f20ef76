#include "runtime/compile_log.h"

#include <charconv>
#include <map>

#include <fmt/format.h>

namespace jit {
namespace {

constexpr std::string_view assembler_mark = "ptxas application ptx input, line ";

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string without(std::string_view text, std::string_view removed) {
  std::string result(text);
  if (removed.empty()) return result;
  for (std::size_t position = 0; (position = result.find(removed, position)) != std::string::npos;) {
    result.erase(position, removed.size());
  }
  return result;
}

// Rewrites "mask(3): error" as "mask:3: error"; keeps other lines.
std::string with_plain_location(std::string line) {
  const std::size_t open = line.find('(');
  const std::size_t close = line.find("): ");
  if (open == std::string::npos || close == std::string::npos || open == 0 || close <= open + 1) return line;
  if (line.find_first_not_of("0123456789", open + 1) != close) return line;
  return fmt::format("{}:{}{}", line.substr(0, open), line.substr(open + 1, close - open - 1),
                     line.substr(close + 1));
}

// Parses the first number of `text` and removes the text up to its end; -1 if there is none.
int take_number(std::string_view& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return -1;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc()) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// The operands after the directive on its line, "1 30 28" of "\t.loc\t1 30 28"; empty for other lines.
std::string_view operands_of(std::string_view line, std::string_view directive) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos || !line.substr(begin).starts_with(directive)) return {};
  return line.substr(begin + directive.size());
}

struct Location {
  int file = -1;
  int line = 0;
};

// The source location of each line of PTX, and the names of the files.
struct LineTable {
  std::vector<Location> locations;
  std::map<int, std::string> files;
};

LineTable read_line_table(std::string_view ptx) {
  LineTable table;
  Location location;
  for (std::string_view line : split_lines(ptx)) {
    if (std::string_view operands = operands_of(line, ".loc"); !operands.empty()) {
      location.file = take_number(operands);
      location.line = take_number(operands);
    } else if (operands = operands_of(line, ".file"); !operands.empty()) {
      const int file = take_number(operands);
      const std::size_t open = operands.find('"');
      const std::size_t close = operands.rfind('"');
      if (open < close) table.files[file] = operands.substr(open + 1, close - open - 1);
    } else if (line.starts_with("}")) {
      location = {};  // the end of a function
    }
    table.locations.push_back(location);
  }
  return table;
}

}  // namespace

std::string with_plain_locations(std::string_view log, std::string_view folder) {
  std::string result;
  for (std::string_view line : split_lines(log)) result += with_plain_location(without(line, folder)) + '\n';
  return result;
}

std::string without_warnings_about(const std::function<bool(std::string_view)>& is_known,
                                   std::string_view log) {
  std::string result;
  bool is_left_out = false;
  for (std::string_view line : split_lines(log)) {
    // A diagnostic continues in lines that begin with a space, and ends with an empty line.
    if (!line.empty() && !line.starts_with(' ')) {
      const std::size_t warning = line.find(": warning ");
      const std::size_t number = warning == std::string_view::npos ? warning : line.rfind(':', warning - 1);
      is_left_out = line.starts_with("Remark: ") ||
                    (number != std::string_view::npos && is_known(line.substr(0, number)));
    }
    if (!is_left_out) result.append(line).append("\n");
  }
  return result;
}

std::vector<std::string> compiler_warnings(std::string_view log, std::string_view folder) {
  std::vector<std::string> warnings;
  for (std::string_view line : split_lines(log)) {
    if (!line.starts_with(' ') && line.find("): warning ") != std::string_view::npos)
      warnings.push_back(with_plain_location(without(line, folder)));
  }
  return warnings;
}

bool has_assembler_error(std::string_view log) { return log.find(assembler_mark) != std::string_view::npos; }

std::string locate_assembler_errors(std::string_view log, std::string_view ptx, std::string_view folder) {
  const LineTable table = read_line_table(ptx);
  std::string result;
  for (std::string_view line : split_lines(log)) {
    if (!line.starts_with(assembler_mark)) continue;
    std::string_view rest = line.substr(assembler_mark.size());
    const int ptx_line = take_number(rest);
    const std::size_t colon = rest.find(": ");
    if (rest.find("error") == std::string_view::npos || colon == std::string_view::npos) continue;
    if (ptx_line < 1 || static_cast<std::size_t>(ptx_line) > table.locations.size()) continue;
    const Location location = table.locations[static_cast<std::size_t>(ptx_line) - 1];
    const auto file = table.files.find(location.file);
    if (file == table.files.end()) continue;
    result += fmt::format("{}:{}: error: {} (found by the assembler)\n", without(file->second, folder),
                          location.line, rest.substr(colon + 2));
  }
  return result;
}

std::string with_plain_files(std::string ptx, std::initializer_list<std::string_view> prefixes) {
  constexpr std::string_view directive = ".file";
  for (std::size_t at = ptx.find(directive); at != std::string::npos; at = ptx.find(directive, at + 1)) {
    const std::size_t name = ptx.find('"', at) + 1;
    if (name == 0 || name > ptx.find('\n', at)) continue;
    for (const std::string_view prefix : prefixes) {
      if (ptx.compare(name, prefix.size(), prefix) == 0) ptx.erase(name, prefix.size());
    }
  }
  return ptx;
}

}  // namespace jit
