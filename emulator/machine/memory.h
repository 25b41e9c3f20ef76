// Memory that contains the variables of modules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include <emulator/memory.h>

#include "machine/global_memory.h"
#include "machine/kernel.h"

namespace jit::emulator {

struct Memory::Inside {
  Inside(std::size_t capacity, std::uint64_t begin) : global(capacity, begin) {}

  GlobalMemory global;

  /// Address of the program's variables, allocated at the first call; 0 when it has none, nothing when memory
  /// is short.
  std::optional<std::uint64_t> place(const std::shared_ptr<const Program>& program);
  void remove(const std::shared_ptr<const Program>& program);

 private:
  std::mutex mutex_;
  std::map<std::shared_ptr<const Program>, std::uint64_t> variables_;  // only of programs with variables
};

}  // namespace jit::emulator
