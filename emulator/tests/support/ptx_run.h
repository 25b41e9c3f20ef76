// Running PTX on the emulator in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <emulator/launch.h>

namespace jit::emulator::testing {

/// A device with memory of its own.
class TestDevice {
 public:
  explicit TestDevice(TargetArch arch = {9, 0, 'a'}) : arch_(arch), memory_(std::size_t{1} << 32) {}

  template <class T>
  std::uint64_t upload(const std::vector<T>& values) {
    return memory_.upload(values);
  }
  /// Room for `count` values, not initialized.
  template <class T>
  std::uint64_t room(std::size_t count) {
    return memory_.allocate(count * sizeof(T));
  }
  template <class T>
  std::vector<T> download(std::uint64_t address, std::size_t count) const {
    return memory_.download<T>(address, count);
  }

  /// Runs the first kernel of `ptx`, behind what ran before. `arguments` are values of its parameters, in order, each laid out at its
  /// own alignment.
  template <class... Arguments>
  LaunchResult run(const std::string& ptx, const LaunchShape& shape, const LaunchOptions& options,
                   const Arguments&... arguments) {
    std::vector<std::byte> block;
    (append(block, arguments), ...);
    return launch(Module(ptx, arch_).functions().front(), shape, block, memory_, options, &in_front_);
  }

  Memory& memory() { return memory_; }
  TargetArch arch() const { return arch_; }

 private:
  template <class T>
  static void append(std::vector<std::byte>& block, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    block.resize((block.size() + alignof(T) - 1) / alignof(T) * alignof(T) + sizeof(T));
    std::memcpy(block.data() + block.size() - sizeof(T), &value, sizeof(T));
  }

  TargetArch arch_;
  Memory memory_;
  GridsInFront in_front_;
};

/// PTX of a module with one kernel `test(.param .u64 in, .param .u64 out)`: declares %r<64>, %rd<64>, %f<64>,
/// %fd<32>, %h<64> (b16) and %p<32>, loads the generic addresses into %rd60 (in) and %rd61 (out), %tid.x into
/// %r60, then runs `body` and returns.
std::string kernel_of(const std::string& body, const std::string& declarations = "",
                      const std::string& target = "sm_90a");

}  // namespace jit::emulator::testing
