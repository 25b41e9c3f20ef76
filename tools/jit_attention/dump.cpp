// jit-attention dump: writes a kernel's texts to files.
#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "compile_options.h"
#include "output_files.h"
#include "progress.h"

namespace jit::tool {
namespace {

struct DumpOptions {
  CompileOptions compile;
  std::string arch;
  std::string folder;
};

// The template files are known only once the kernel exists, so all that the folder already has may be
// outputs.
std::vector<std::string> possible_outputs(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> outputs;
  for (const char* name : {"kernel.cu", "kernel.ptx", "kernel.cubin", "kernel.sass", "report.json"}) {
    outputs.push_back(folder + "/" + name);
  }
  std::error_code end;
  fs::recursive_directory_iterator templates(folder + "/templates",
                                             fs::directory_options::follow_directory_symlink, end);
  for (; !end && templates != fs::end(templates); templates.increment(end))
    outputs.push_back(templates->path().string());
  return outputs;
}

int run_dump(const DumpOptions& options) {
  const AttentionSpec spec = build_spec(options.compile.spec);
  const Arch arch = target_arch(options.arch);
  refuse_overwriting(possible_outputs(options.folder), input_files(options.compile.spec.functors));

  ProgressLine progress;
  const Context context(settings_from_environment(), progress.observer());
  progress.show("compiling", 0, 0);
  const CompiledKernel kernel = compile_for(options.compile, spec, arch, context);
  const std::vector<std::string> written = kernel.dump(options.folder);
  const bool has_sass = std::any_of(written.begin(), written.end(),
                                    [](const std::string& path) { return path.ends_with("kernel.sass"); });
  const std::string missing = has_sass ? "" : kernel.sass().missing;
  if (options.compile.as_json) {
    print_json({{"written", written}, {"sass_missing", missing}, {"key", kernel.key()}});
    return status_ok;
  }
  for (const std::string& path : written) print("{}\n", path);
  if (!has_sass) print("{}\n", missing);
  return status_ok;
}

}  // namespace

void add_dump(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<DumpOptions>();
  CLI::App* command = app.add_subcommand(
      "dump", "Write a kernel's source, PTX, machine code, SASS and report to a folder; needs no GPU");
  command->add_option("--out", options->folder, "Folder to write to; created when missing")
      ->check(must_not_be_empty)
      ->required();
  command->add_option("--arch", options->arch, "Target such as sm_90a; default: that of the first GPU");
  add_compile_options(*command, options->compile);
  commands.push_back({command, [options] { return run_dump(*options); }});
}

}  // namespace jit::tool
