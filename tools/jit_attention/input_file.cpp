#include "input_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "command.h"

namespace jit::tool {

std::string read_input(const std::string& path, std::size_t most) {
  constexpr std::size_t step = 1 << 20;
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error))
    throw BadInput(fmt::format("{} cannot be read", path));
  std::string text;
  while (file && text.size() <= most) {
    const std::size_t size = text.size();
    text.resize(size + std::min(step, most + 1 - size));
    file.read(text.data() + size, static_cast<std::streamsize>(text.size() - size));
    text.resize(size + static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > most) throw BadInput(fmt::format("{} is larger than {} bytes", path, most));
  return text;
}

}  // namespace jit::tool
