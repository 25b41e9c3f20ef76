// Modules: PTX loaded for a device, and its kernels.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <emulator/ptx_error.h>

namespace jit::emulator {

struct Kernel;   // decoded code; its type is not public
struct Program;  // the same of a module

/// An architecture, such as {9, 0, 'a'} for sm_90a.
struct TargetArch {
  int major = 0;
  int minor = 0;
  char suffix = 0;
};

/// A parameter of a kernel.
struct Parameter {
  std::string name;
  std::size_t offset = 0;  ///< in the parameter block
  std::size_t bytes = 0;
};

/// A kernel of a module, with its launch requirements. A handle, cheap to copy, which keeps its module
/// loaded.
class Function {
 public:
  const std::string& name() const;
  const std::vector<Parameter>& parameters() const;
  std::size_t parameter_bytes() const;    ///< of the parameter block
  std::size_t static_smem_bytes() const;  ///< shared memory that it declares
  std::size_t local_bytes() const;        ///< per thread
  int max_threads() const;                ///< per block: .maxntid, .reqntid
  /// .reqnctapercluster; (1, 1, 1) when the launch decides.
  std::array<unsigned, 3> cluster() const;
  /// Estimated registers per thread: the most 32-bit registers that are live at once.
  int register_estimate() const;

  /// The parameter block of a launch: the bytes of one value for each parameter, in order. Throws
  /// std::invalid_argument when the number of values or the size of one differs from the kernel's.
  std::vector<std::byte> pack(std::span<const std::span<const std::byte>> values) const;
  /// The parameter block from values: `function.arguments(in, out, 32)`.
  template <class... T>
  std::vector<std::byte> arguments(const T&... values) const {
    static_assert((std::is_trivially_copyable_v<T> && ...), "parameters are copied byte by byte");
    const std::array<std::span<const std::byte>, sizeof...(T)> bytes = {
        std::as_bytes(std::span<const T, 1>(&values, 1))...};
    return pack(bytes);
  }

  // For the emulator itself.
  Function(std::shared_ptr<const Program> program, const Kernel& kernel);
  const std::shared_ptr<const Program>& program() const { return program_; }
  const Kernel& kernel() const { return *kernel_; }

 private:
  std::shared_ptr<const Program> program_;
  const Kernel* kernel_;
};

/// Parsed and decoded PTX. Immutable, thread safe, and cheap to copy.
class Module {
 public:
  /// Loads PTX for a device of the given architecture. Throws PtxError: for malformed text, for an
  /// instruction that the emulator does not know (named with its line), and for PTX whose version or
  /// architecture the device does not run.
  Module(std::string ptx, TargetArch device);
  /// Loads PTX for the architecture of its .target.
  explicit Module(std::string ptx);

  TargetArch target() const;  ///< .target

  std::vector<Function> functions() const;  ///< in the order of the text
  std::optional<Function> find(std::string_view name) const;
  /// Throws std::invalid_argument, listing the kernels' names, when none has this name.
  Function function(std::string_view name) const;
  const std::string& ptx() const;  ///< the text that was loaded
  bool has_variables() const;      ///< .global or .const ones, which Memory::load allocates

  /// For the emulator itself.
  const std::shared_ptr<const Program>& program() const { return program_; }

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace jit::emulator
