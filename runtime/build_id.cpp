#include "runtime/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <jit/error.h>

namespace jit {
namespace {

class File {
 public:
  explicit File(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
      const int error = errno;
      if (descriptor_ >= 0) close(descriptor_);
      throw Error(ErrorCode::io_error, "compile", "nvrtc",
                  fmt::format("{} cannot be read: {}", path, std::strerror(error)));
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const { return size_; }

  // The bytes of a range; fewer at the end of the file.
  std::vector<unsigned char> read(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset >= size_) return {};
    std::vector<unsigned char> data(std::min(bytes, size_ - offset));
    const ssize_t count = pread(descriptor_, data.data(), data.size(), static_cast<off_t>(offset));
    data.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return data;
  }

 private:
  int descriptor_;
  std::uint64_t size_ = 0;
};

constexpr std::uint64_t prefix_bytes = 64 * 1024;

// A structure of the ELF format at `offset`; zeros past the end of `data`.
template <class Structure>
Structure structure_at(const std::vector<unsigned char>& data, std::uint64_t offset) {
  Structure structure{};
  if (offset <= data.size() && data.size() - offset >= sizeof(Structure)) {
    std::memcpy(&structure, data.data() + offset, sizeof(Structure));
  }
  return structure;
}

// The build-id in a note segment, or an empty string.
std::string build_id_of_notes(const std::vector<unsigned char>& notes) {
  const auto align = [](std::uint64_t bytes) { return (bytes + 3) / 4 * 4; };
  std::uint64_t offset = 0;
  while (offset + sizeof(Elf64_Nhdr) <= notes.size()) {
    const auto note = structure_at<Elf64_Nhdr>(notes, offset);
    const std::uint64_t name = offset + sizeof(note);
    const std::uint64_t content = name + align(note.n_namesz);
    if (content + note.n_descsz > notes.size()) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(&notes[name], "GNU", 4) == 0) {
      std::string hex;
      for (std::uint64_t i = 0; i < note.n_descsz; ++i) hex += fmt::format("{:02x}", notes[content + i]);
      return hex;
    }
    offset = content + align(note.n_descsz);
  }
  return {};
}

}  // namespace

std::string build_id(const std::string& path) {
  const File file(path);
  const std::vector<unsigned char> prefix = file.read(0, prefix_bytes);
  const auto header = structure_at<Elf64_Ehdr>(prefix, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64) {
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      const auto segment = structure_at<Elf64_Phdr>(prefix, header.e_phoff + i * sizeof(Elf64_Phdr));
      if (segment.p_type != PT_NOTE) continue;
      std::string id =
          build_id_of_notes(file.read(segment.p_offset, std::min(segment.p_filesz, prefix_bytes)));
      if (!id.empty()) return id;
    }
  }
  return fmt::format("{}-{:016x}", file.size(), XXH3_64bits(prefix.data(), prefix.size()));
}

}  // namespace jit
