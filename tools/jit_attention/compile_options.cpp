#include "compile_options.h"

#include <fmt/format.h>
#include <jit/error.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "device_choice.h"
#include "number_options.h"

namespace jit::tool {

void add_compile_options(CLI::App& app, CompileOptions& options) {
  add_spec_options(app, options.spec);
  add_whole_option(app, "--seqlen-q", options.spec.spec.seqlen_q,
                   "Number of queries to bake into the kernel; default: given at run time");
  add_whole_option(app, "--seqlen-kv", options.spec.spec.seqlen_kv,
                   "Number of keys to bake into the kernel; default: given at run time");
  add_config_option(app, options.config);
  app.add_flag("--json", options.as_json, "Print JSON");
}

Arch target_arch(const std::string& arch) {
  if (!arch.empty()) return parse_arch(arch);
  try {
    return native_arch(choose_device(""));
  } catch (const Error& error) {
    throw BadInput(fmt::format("--arch is needed, because {}", error.message()));
  }
}

CompiledKernel compile_for(const CompileOptions& options, const AttentionSpec& spec, Arch arch,
                           const Context& context) {
  return compile(spec, arch, build_config(options.config, spec, arch), context);
}

}  // namespace jit::tool
