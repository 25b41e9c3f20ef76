// The kernels whose machine code is kept: those of kernels.txt, and of operations and steps that no command writes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <jit/context.h>

#include "generator/build/image.h"
#include "tests/machine_code/record.h"

namespace jit::machine_code {

/// A kernel after it was compiled, or why it was not.
struct Outcome {
  Record record;
  /// The command that writes it for reading, or the name of the source that has the program.
  std::string origin;
  std::string error = {};
};

struct FrozenKernel {
  std::string name;
  std::function<Outcome(const Context&)> make;  ///< compiles; throws Error
};

/// All, by families. Throws std::runtime_error for a name that is there twice.
std::vector<FrozenKernel> frozen_kernels();

/// The lines of kernels.txt.
struct ListedKernel {
  std::string name;
  std::string options;  ///< of `jit-attention dump`
};
std::vector<ListedKernel> listed_kernels();

/// The line's text of the config; empty: none.
std::string config_text(const ListedKernel& kernel);

/// Programs of operations beside attention, and of the steps of backward beside its main kernels.
std::vector<FrozenKernel> frozen_programs();

/// Compiles these on all cores, or takes them from the cache folder of the build, which is only for this; NVRTC and
/// templates are those that the environment names. In the order of `kernels`.
std::vector<Outcome> make_all(const std::vector<FrozenKernel>& kernels, const Context& context);
Context machine_code_context();

/// The compiler that it uses.
NvrtcLocation compiler_of(const Context& context);

}  // namespace jit::machine_code
