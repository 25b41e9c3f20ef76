// jit-attention compile: compiles a description to machine code, without a GPU.
#include <atomic>
#include <exception>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <jit/error.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "all_cores.h"
#include "command.h"
#include "compile_options.h"
#include "progress.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct CompileCommandOptions {
  CompileOptions compile;
  std::vector<std::string> archs;
};

std::vector<Arch> target_archs(const std::vector<std::string>& names) {
  if (names.empty()) return {target_arch("")};
  bool all = false;
  std::vector<Arch> archs;
  for (const std::string& name : names) {
    if (name == "all") {
      all = true;
    } else {
      archs.push_back(target_arch(name));
    }
  }
  return all ? known_archs() : archs;
}

struct Outcome {
  std::optional<CompiledKernel> kernel;
  std::exception_ptr error;
};

// Compiles on all cores; results are in the order of `archs`.
std::vector<Outcome> compile_all(const CompileOptions& options, const AttentionSpec& spec,
                                 const std::vector<Arch>& archs, const Context& context,
                                 ProgressLine& progress) {
  std::vector<Outcome> outcomes(archs.size());
  std::atomic<int> done = 0;
  const int total = static_cast<int>(archs.size());
  progress.show("compiling", 0, total);
  on_all_cores(archs.size(), [&](std::size_t i) {
    try {
      outcomes[i].kernel = compile_for(options, spec, archs[i], context);
    } catch (...) {
      outcomes[i].error = std::current_exception();
    }
    progress.show("compiling", ++done, total);
  });
  return outcomes;
}

void print_text(const CompiledKernel& kernel) {
  print("{}  {}\n", to_string(kernel.arch()), to_string(kernel.spec()));
  print("  kernel     {}\n", kernel.name());
  print("  config     {}\n", to_string(kernel.config()));
  print("  why        {}\n", kernel.why());
  print("  resources  {} registers, {} bytes spilled, {} bytes of shared memory, {} threads\n",
        kernel.resources().registers, kernel.resources().spill_bytes(), kernel.smem_bytes(),
        kernel.threads());
  print("  cubin      {} bytes, compiled in {:.0f} ms{}\n", kernel.cubin().size(), kernel.compile_ms(),
        kernel.cached() ? ", from the cache" : "");
  print("  key        {}\n", kernel.key());
}

int run_compile(const CompileCommandOptions& options) {
  const AttentionSpec spec = build_spec(options.compile.spec);
  const std::vector<Arch> archs = target_archs(options.archs);
  ProgressLine progress;
  const Context context(settings_from_environment(), progress.observer());
  const std::vector<Outcome> outcomes = compile_all(options.compile, spec, archs, context, progress);
  if (outcomes.size() == 1 && outcomes[0].error) std::rethrow_exception(outcomes[0].error);

  int status = status_ok;
  Json kernels = Json::array();
  for (std::size_t i = 0; i < archs.size(); ++i) {
    if (outcomes[i].kernel) {
      kernels.push_back(Json::parse(outcomes[i].kernel->report()));
      if (!options.compile.as_json) print_text(*outcomes[i].kernel);
      continue;
    }
    status = status_failure;
    try {
      std::rethrow_exception(outcomes[i].error);
    } catch (const std::exception& error) {
      kernels.push_back({{"arch", to_string(archs[i])}, {"error", error.what()}});
      print_to_stderr(fmt::format("jit-attention: {}: {}\n", to_string(archs[i]), one_line(error.what())));
    }
  }
  if (options.compile.as_json) print_json(kernels.size() == 1 ? kernels[0] : kernels);
  return status;
}

}  // namespace

void add_compile(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<CompileCommandOptions>();
  CLI::App* command = app.add_subcommand("compile", "Write and compile a kernel; needs no GPU");
  command
      ->add_option("--arch", options->archs,
                   "Target such as sm_90a, may be repeated (then JSON is a list); all: every known one; "
                   "default: that of the first GPU")
      ->allow_extra_args(false);
  add_compile_options(*command, options->compile);
  commands.push_back({command, [options] { return run_compile(*options); }});
}

}  // namespace jit::tool
