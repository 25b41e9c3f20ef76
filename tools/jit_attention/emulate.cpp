// jit-attention emulate: runs a kernel of any PTX on the CPU, with checks.
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <emulator/launch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/arch.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "input_file.h"
#include "kernel_arguments.h"
#include "number_options.h"
#include "output_files.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct EmulateOptions {
  std::string ptx, entry, arch, level = "strict";
  std::vector<unsigned> grid = {1}, block, cluster = {1};
  std::size_t dynamic_shared = 0;
  std::uint64_t seed = 0, step_limit = std::uint64_t{1} << 30;
  std::vector<std::string> arguments, allow;
  std::string counts, listing;
  bool as_json = false;
};

emulator::Module load(const EmulateOptions& options) {
  constexpr std::size_t longest_text = std::size_t{1} << 30;
  std::string text = read_input(options.ptx, longest_text);
  try {
    if (options.arch.empty()) return emulator::Module(std::move(text));
    const Arch arch = parse_arch(options.arch);
    return emulator::Module(std::move(text), {arch.major, arch.minor, arch.suffix});
  } catch (const emulator::PtxError& error) {
    throw BadInput(fmt::format("{}: {}", options.ptx, error.what()));
  }
}

emulator::Function choose(const emulator::Module& module, const EmulateOptions& options) {
  const std::vector<emulator::Function> kernels = module.functions();
  if (options.entry.empty() && kernels.size() == 1) return kernels.front();
  if (options.entry.empty() && !kernels.empty()) {
    std::vector<std::string> names;
    for (const emulator::Function& kernel : kernels) names.push_back(kernel.name());
    throw BadInput(fmt::format("--entry is needed, because {} has {} kernels: {}", options.ptx,
                               kernels.size(), fmt::join(names, ", ")));
  }
  return module.function(options.entry);
}

std::array<unsigned, 3> three(const std::vector<unsigned>& sizes) {
  std::array<unsigned, 3> all = {1, 1, 1};
  std::copy(sizes.begin(), sizes.end(), all.begin());
  return all;
}

emulator::LaunchOptions launch_options(const EmulateOptions& options, const emulator::Module& module) {
  emulator::LaunchOptions launch{.seed = options.seed, .step_limit = options.step_limit};
  const emulator::TargetArch target = module.target();
  const Arch arch = options.arch.empty() ? Arch{target.major, target.minor} : parse_arch(options.arch);
  launch.level = options.level == "silicon" ? emulator::Level::silicon : emulator::Level::strict;
  launch.smem_limit = static_cast<std::size_t>(smem_per_block_optin(arch));
  for (const std::string& word : options.allow) launch.allowed.push_back(emulator::parse_finding_kind(word));
  return launch;
}

Json as_json(const emulator::Finding& finding) {
  return {{"kind", emulator::to_string(finding.kind)},
          {"message", finding.message},
          {"block", finding.block},
          {"warp", finding.warp},
          {"lane", finding.lane},
          {"ptx_line", finding.ptx_line},
          {"file", finding.file},
          {"line", finding.line}};
}

void print_result(const emulator::Function& kernel, const emulator::LaunchResult& result,
                  const OutputFiles& outputs, bool wants_json) {
  if (wants_json) {
    Json findings = Json::array();
    for (const emulator::Finding& finding : result.findings) findings.push_back(as_json(finding));
    print_json({{"kernel", kernel.name()},
                {"findings", findings},
                {"warp_instructions", result.warp_instructions},
                {"seconds", result.seconds},
                {"written", outputs.paths()}});
    return;
  }
  for (const emulator::Finding& finding : result.findings) print("{}\n", emulator::to_string(finding));
  print("{}: {} finding{} in {} warp instructions, {:.2f} s\n", kernel.name(),
        result.findings.empty() ? "no" : fmt::format("{}", result.findings.size()),
        result.findings.size() == 1 ? "" : "s", result.warp_instructions, result.seconds);
}

int run_emulate(const EmulateOptions& options) {
  try {
    const emulator::Module module = load(options);
    const emulator::Function kernel = choose(module, options);
    KernelArguments arguments(options.arguments);
    OutputFiles outputs;
    for (const ArrayFile& file : arguments.files())
      if (file.is_written) outputs.add("--arg", file.path);
    outputs.add("--counts", options.counts);
    outputs.add("--listing", options.listing);

    emulator::Memory memory(arguments.capacity());
    const std::vector<std::byte> parameters = arguments.place(kernel, memory);
    const emulator::LaunchShape shape{.grid = three(options.grid),
                                      .block = three(options.block),
                                      .cluster = three(options.cluster),
                                      .dynamic_smem_bytes = options.dynamic_shared};
    const emulator::LaunchResult result =
        emulator::launch(kernel, shape, parameters, memory, launch_options(options, module));

    arguments.fetch(memory);
    for (const ArrayFile& file : arguments.files())
      if (file.is_written) write_npy(OutputFile(file.path), file.array);
    const auto write_text = [&](const char* option, const auto& text_of) {
      const OutputFile* const file = outputs.find(option);
      if (!file) return;
      const std::string text = text_of(kernel, result.counts);
      file->write({std::as_bytes(std::span(text))});
    };
    write_text("--counts", emulator::counts_json);
    write_text("--listing", emulator::annotated_listing);
    print_result(kernel, result, outputs, options.as_json);
    return result.findings.empty() ? status_ok : status_failure;
  } catch (const std::invalid_argument& error) {
    throw BadInput(error.what());
  }
}

}  // namespace

void add_emulate(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<EmulateOptions>();
  CLI::App* command = app.add_subcommand("emulate",
                                         "Run a kernel of any PTX on the CPU, and print its races, missing "
                                         "fences, wrong accesses and deadlocks; "
                                         "exit status 1 where there are any");
  const auto add_sizes = [&](const char* name, std::vector<unsigned>& sizes, const char* doc) {
    return add_whole_option(*command, name, sizes, doc)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->expected(1, 3);
  };
  command
      ->add_option("ptx", options->ptx,
                   "File of PTX: from nvcc -ptx -lineinfo, NVRTC, Triton, CUTLASS DSL, …")
      ->required();
  command->add_option("--entry", options->entry, "The kernel, where the file has several");
  add_sizes("--grid", options->grid, "Blocks: X, X,Y or X,Y,Z");
  add_sizes("--block", options->block, "Threads of a block: X, X,Y or X,Y,Z")->required();
  add_sizes("--cluster", options->cluster, "Blocks of a cluster; default: as the kernel says");
  add_whole_option(*command, "--dynamic-shared", options->dynamic_shared, "Bytes of dynamic shared memory");
  command
      ->add_option(
          "--arg", options->arguments,
          "The kernel's parameters, in order: i32:5 (or i8 to u64, bf16, f16, f32, f64), null, "
          "in:a.npy, inout:b.npy, out:c.npy:f32:128,64, bytes:HEX, bytes:@FILE; ':box=64,64:swizzle=128' "
          "behind an array makes a tensor map of it, in the order of the array's axes; members of a struct "
          "have ';' between them")
      ->allow_extra_args(false);
  command->add_option("--allow", options->allow, "A kind of finding to leave out, as printed")
      ->allow_extra_args(false);
  command
      ->add_option("--level", options->level,
                   "Rules of the checks: all that PTX requires (strict), or only those whose violation "
                   "hardware shows (silicon)")
      ->check(CLI::IsMember({"strict", "silicon"}))
      ->capture_default_str();
  command->add_option("--arch", options->arch, "Architecture to run on; default: the PTX's .target");
  add_whole_option(*command, "--seed", options->seed,
                   "Seed of the order of warps and of the completion of copies");
  add_whole_option(*command, "--step-limit", options->step_limit,
                   "Warp instructions after which a cluster is aborted")
      ->capture_default_str();
  command
      ->add_option("--counts", options->counts,
                   "File for counts of instructions, bytes and bank conflicts: JSON")
      ->check(must_not_be_empty);
  command->add_option("--listing", options->listing, "File for the PTX with the counts of each line")
      ->check(must_not_be_empty);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_emulate(*options); }});
}

}  // namespace jit::tool
