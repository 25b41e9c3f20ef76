// Raw results of bench/results, which are kept compressed.
#pragma once

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>

namespace jit::testing {

/// The lines of bench/results/`name`.gz, which gzip unpacks.
inline std::istringstream recorded_lines(const std::string& name) {
  const std::string path = std::string(JIT_ATTENTION_SOURCE_DIR) + "/bench/results/" + name + ".gz";
  FILE* const pipe = popen(("gzip -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("gzip cannot be started");
  std::string text;
  char buffer[1 << 16];
  for (std::size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, count);
  if (pclose(pipe) != 0) throw std::runtime_error(path + " cannot be unpacked");
  return std::istringstream(text);
}

}  // namespace jit::testing
