// Options that describe an attention problem, shared by subcommands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <jit/device.h>
#include <jit/kernel_config.h>
#include <jit/spec.h>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

/// Mask, score, output and scale.
struct FunctorOptions {
  std::string mask;
  std::string score;
  std::string output;
  std::vector<std::string> mask_files;   ///< "name=path"
  std::vector<std::string> score_files;  ///< "name=path"
  std::vector<std::string> output_files;
  std::optional<float> softmax_scale;
};
void add_functor_options(CLI::App& app, FunctorOptions& options);

/// Sets mask, score, output and softmax_scale of `spec`. Throws BadInput and Error.
void apply(const FunctorOptions& options, AttentionSpec& spec);

/// Adds options for the element types of keys and values.
void add_kv_options(CLI::App& app, AttentionSpec& spec);

/// The paths of the functors' files.
std::vector<std::string> input_files(const FunctorOptions& options);

/// A spec without lengths.
struct SpecOptions {
  FunctorOptions functors;
  std::string dtype = "bf16";
  AttentionSpec spec;
};
void add_spec_options(CLI::App& app, SpecOptions& options);

/// Throws BadInput, and Error for specs that the library refuses.
AttentionSpec build_spec(const SpecOptions& options);

void add_config_option(CLI::App& app, std::string& config);

/// --config merged into the cost model's choice for `arch`; nothing when it is empty.
std::optional<KernelConfig> build_config(const std::string& config, const AttentionSpec& spec, Arch arch);

}  // namespace jit::tool
