#include "tests/machine_code/code_digest.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace jit::machine_code {
namespace {

std::span<const std::byte> bytes_at(std::span<const std::byte> image, std::uint64_t offset,
                                    std::uint64_t size) {
  if (offset > image.size() || size > image.size() - offset)
    throw std::runtime_error("the cubin is not a whole ELF image");
  return image.subspan(offset, size);
}

template <class Structure>
Structure structure_at(std::span<const std::byte> image, std::uint64_t offset) {
  Structure structure;
  std::memcpy(&structure, bytes_at(image, offset, sizeof(structure)).data(), sizeof(structure));
  return structure;
}

std::string name_at(std::span<const std::byte> names, std::uint64_t offset) {
  std::string name;
  while (offset < names.size() && names[offset] != std::byte{}) name += static_cast<char>(names[offset++]);
  return name;
}

bool is_code(std::string_view section) {
  return section.starts_with(".text.") || section.starts_with(".nv.constant2.");
}

}  // namespace

Digest code_digest(std::span<const std::byte> cubin) {
  const auto header = structure_at<Elf64_Ehdr>(cubin, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr))
    throw std::runtime_error("the cubin is not a whole ELF image");
  const auto section = [&](std::uint64_t index) {
    return structure_at<Elf64_Shdr>(cubin, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto contents = [&](const Elf64_Shdr& of) { return bytes_at(cubin, of.sh_offset, of.sh_size); };
  const std::span<const std::byte> names = contents(section(header.e_shstrndx));
  Digester digester;
  bool has_instructions = false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr own = section(i);
    if (own.sh_type != SHT_PROGBITS || !is_code(name_at(names, own.sh_name))) continue;
    has_instructions = has_instructions || (own.sh_flags & SHF_EXECINSTR) != 0;
    digester.add(contents(own));
  }
  if (!has_instructions) throw std::runtime_error("the cubin has no instructions");
  return digester.finish();
}

}  // namespace jit::machine_code
