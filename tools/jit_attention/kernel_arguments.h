// Arguments of an emulated kernel: values, arrays in .npy files, tensor maps over them, and structs of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <emulator/memory.h>
#include <emulator/module.h>
#include <emulator/tensor_map.h>

#include "npy.h"

namespace jit::tool {

/// An array in device memory, and its input or output file.
struct ArrayFile {
  std::string path;
  bool is_read = false;     ///< false: its memory is uninitialized when the kernel begins
  bool is_written = false;  ///< to the file, when the kernel has ended
  NpyArray array;
  std::uint64_t address = 0;
};

class KernelArguments {
 public:
  /// Parses the texts of --arg and reads files. Throws BadInput.
  explicit KernelArguments(const std::vector<std::string>& texts);

  const std::vector<ArrayFile>& files() const { return files_; }
  /// Bytes of device memory for all arrays.
  std::size_t capacity() const;
  /// Copies the arrays to memory and returns the kernel's parameter block. Throws BadInput.
  std::vector<std::byte> place(const emulator::Function& kernel, emulator::Memory& memory);
  /// Writes output arrays to their files.
  void fetch(const emulator::Memory& memory);

 private:
  using Bytes = std::vector<std::byte>;
  struct Pointer {
    std::size_t file;  ///< in files_
  };
  struct Map {
    std::size_t file;
    emulator::TensorMap map;  ///< without the address
  };
  struct Member {
    std::variant<Bytes, Pointer, Map> value;
    std::size_t alignment = 1;
  };
  using Argument = std::vector<Member>;

  Argument read_argument(const std::string& text);
  Member read_member(const std::string& text);
  Member read_array(const std::string& text, const std::string& direction, const std::string& rest);
  std::size_t file_of(const std::string& text, ArrayFile file);
  Bytes bytes_of(const Member& member) const;

  std::vector<ArrayFile> files_;
  std::vector<std::pair<std::string, Argument>> arguments_;
};

}  // namespace jit::tool
