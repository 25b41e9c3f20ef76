// The options of the commands that compile without a GPU.
#pragma once

#include <string>

#include <jit/compiled_kernel.h>

#include "spec_options.h"

namespace jit::tool {

struct CompileOptions {
  SpecOptions spec;
  std::string config;
  bool as_json = false;
};
void add_compile_options(CLI::App& app, CompileOptions& options);

/// The target that --arch names; empty: the first GPU's. Throws BadInput without one.
Arch target_arch(const std::string& arch);

CompiledKernel compile_for(const CompileOptions& options, const AttentionSpec& spec, Arch arch,
                           const Context& context);

}  // namespace jit::tool
