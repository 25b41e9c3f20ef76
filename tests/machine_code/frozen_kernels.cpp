#include "tests/machine_code/frozen_kernels.h"

#include <exception>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <jit/compiled_kernel.h>
#include <jit/error.h>
#include <CLI/CLI.hpp>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "runtime/parallel.h"
#include "tools/jit_attention/compile_options.h"

namespace jit::machine_code {
namespace {

const std::string folder = JIT_ATTENTION_SOURCE_DIR "/tests/machine_code/";

struct Options {
  tool::CompileOptions compile;
  std::string arch;
};

// Files that options name lie beside the list.
void find_files(std::vector<std::string>& files) {
  for (std::string& file : files) file.insert(file.find('=') + 1, folder);
}

Options read_options(const ListedKernel& kernel) {
  Options options;
  CLI::App app;
  app.add_option("--arch", options.arch)->required();
  tool::add_compile_options(app, options.compile);
  try {
    app.parse(kernel.options);
  } catch (const CLI::Error& error) {
    throw std::runtime_error(fmt::format("kernels.txt, {}: {}", kernel.name, error.what()));
  }
  find_files(options.compile.spec.functors.mask_files);
  find_files(options.compile.spec.functors.score_files);
  return options;
}

// The config of a line: the first one in untuned order that has the fields that the text names; where none is
// searched, the family's first config with these fields.
std::optional<KernelConfig> config_of(const std::string& text, const AttentionSpec& spec, Arch arch) {
  if (text.empty()) return {};
  const KernelConfig named = parse_config(text);
  const DeviceLimits limits = device_limits(arch);
  ProblemShape shape = typical_shape(limits, spec);
  shape.pass = pass_of(named);
  shape.any_size = false;
  std::optional<KernelConfig> first_of_family;
  for (const KernelConfig& candidate : untuned_order(spec, shape, limits)) {
    if (candidate.index() != named.index()) continue;
    if (parse_config(text, candidate) == candidate) return candidate;
    if (!first_of_family) first_of_family = candidate;
  }
  return first_of_family ? parse_config(text, *first_of_family) : named;
}

// The command that dumps the kernel with this very config.
std::string dump_command(const ListedKernel& kernel, const KernelConfig& config) {
  const std::string spec = kernel.options.substr(0, kernel.options.find(" --config"));
  return fmt::format("jit-attention dump --out FOLDER {} --config \"{}\"", spec, to_string(config));
}

Outcome make_listed(const ListedKernel& kernel, const Context& context) {
  const Options options = read_options(kernel);
  const AttentionSpec spec = tool::build_spec(options.compile.spec);
  const Arch arch = parse_arch(options.arch);
  const CompiledKernel compiled = compile(spec, arch, config_of(options.compile.config, spec, arch), context);
  return {.record = record_of(*Access::image(compiled), short_text(compiled.config())),
          .origin = dump_command(kernel, compiled.config())};
}

}  // namespace

std::vector<ListedKernel> listed_kernels() {
  std::vector<ListedKernel> kernels;
  std::ifstream file(folder + "kernels.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with("#")) continue;
    const std::size_t end = line.find(' ');
    if (end == std::string::npos)
      throw std::runtime_error(fmt::format("kernels.txt: '{}' has a name and no options", line));
    kernels.push_back({line.substr(0, end), line.substr(line.find_first_not_of(' ', end))});
  }
  return kernels;
}

std::string config_text(const ListedKernel& kernel) { return read_options(kernel).compile.config; }

std::vector<FrozenKernel> frozen_kernels() {
  std::vector<FrozenKernel> kernels;
  for (const ListedKernel& listed : listed_kernels()) {
    kernels.push_back(
        {listed.name, [listed](const Context& context) { return make_listed(listed, context); }});
  }
  for (FrozenKernel& program : frozen_programs()) kernels.push_back(std::move(program));
  std::set<std::string> names;
  for (const FrozenKernel& kernel : kernels) {
    if (!names.insert(kernel.name).second)
      throw std::runtime_error(fmt::format("two kernels have the name {}", kernel.name));
  }
  return kernels;
}

std::vector<Outcome> make_all(const std::vector<FrozenKernel>& kernels, const Context& context) {
  std::vector<Outcome> outcomes(kernels.size());
  in_parallel(kernels.size(), [&](std::size_t i) {
    try {
      outcomes[i] = kernels[i].make(context);
    } catch (const Error& error) {
      outcomes[i].error = fmt::format("{}\n{}", error.what(), error.log());
    } catch (const std::exception& error) {
      outcomes[i].error = error.what();
    }
  });
  return outcomes;
}

Context machine_code_context() {
  const Settings environment = settings_from_environment();
  Settings settings;
  settings.cache_dir = JIT_ATTENTION_MACHINE_CODE_CACHE;
  settings.tuning = TuningMode::off;
  settings.templates = environment.templates;
  settings.nvrtc = environment.nvrtc;
  return Context(settings);
}

NvrtcLocation compiler_of(const Context& context) { return Access::state(context)->nvrtc_location(); }

}  // namespace jit::machine_code
