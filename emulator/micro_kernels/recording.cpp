#include "micro_kernels/recording.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace jit::conformance {
namespace {

// A file: the magic, then for each kernel a header, its name and its output. Little endian, as all machines
// with such a GPU are.
constexpr std::string_view magic = "JITCONF1";

struct Header {
  std::uint64_t ptx_hash;
  std::uint64_t contents_hash;
  std::uint32_t name_bytes;
  std::uint32_t output_bytes;
};

}  // namespace

std::string to_text(const Recordings& recordings) {
  std::string text(magic);
  for (const auto& [name, recording] : recordings) {
    const Header header{recording.ptx_hash, recording.contents_hash, static_cast<std::uint32_t>(name.size()),
                        static_cast<std::uint32_t>(recording.output.size())};
    text.append(reinterpret_cast<const char*>(&header), sizeof(header));
    text += name;
    text.append(reinterpret_cast<const char*>(recording.output.data()), recording.output.size());
  }
  return text;
}

Recordings parse_recordings(std::string_view text, const std::string& name) {
  const auto fail = [&] { throw std::runtime_error(name + " is no file of recordings, or was cut short"); };
  if (!text.starts_with(magic)) fail();
  Recordings recordings;
  std::size_t at = magic.size();
  while (at < text.size()) {
    Header header;
    if (text.size() - at < sizeof(header)) fail();
    std::memcpy(&header, text.data() + at, sizeof(header));
    at += sizeof(header);
    if (text.size() - at < std::size_t{header.name_bytes} + header.output_bytes) fail();
    const std::string of_kernel(text.substr(at, header.name_bytes));
    at += header.name_bytes;
    Recording& recording = recordings[of_kernel];
    recording = {header.ptx_hash, header.contents_hash, std::vector<std::byte>(header.output_bytes)};
    if (header.output_bytes != 0) std::memcpy(recording.output.data(), text.data() + at, header.output_bytes);
    at += header.output_bytes;
  }
  return recordings;
}

Recordings read_recordings(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  std::ifstream file(path, std::ios::binary);
  return parse_recordings(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()},
                          path.string());
}

void write_recordings(const std::filesystem::path& path, const Recordings& recordings) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << to_text(recordings) << std::flush;
  if (!file) throw std::runtime_error(path.string() + " cannot be written");
}

bool is_of(const Recording& recording, const MicroKernel& kernel) {
  return recording.ptx_hash == hash(kernel.ptx) && recording.contents_hash == hash_of_contents(kernel) &&
         recording.output.size() == kernel.output.bytes();
}

}  // namespace jit::conformance
