// jit-attention warm: packs all kernels that a model needs into a file for images.
#include <filesystem>
#include <memory>
#include <span>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/pack.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "model_config.h"
#include "number_options.h"
#include "output_files.h"
#include "progress.h"
#include "quantize_options.h"
#include "serving_options.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

struct WarmOptions {
  std::string model;
  std::vector<std::string> targets;
  std::string out;
  std::string dtype;
  std::vector<std::string> masks;
  std::vector<int> multiprocessors;
  int max_batch = PackSizes{}.max_batch;
  std::int64_t max_seqlen = 0;
  bool training = false;
  ServingOptions serving;
  QuantizeOptions quantize;
  bool interpolated_exponentials = false;
  int jobs = 0;
  bool quiet = false;
  bool as_json = false;
};

std::vector<PackTarget> targets_of(const WarmOptions& options) {
  std::vector<PackTarget> targets;
  for (const std::string& text : options.targets) {
    PackTarget& target = targets.emplace_back(parse_pack_target(text));
    if (!options.multiprocessors.empty()) target.multiprocessors = options.multiprocessors;
  }
  return targets;
}

// Applies the options to the model's specs.
void apply_options(const WarmOptions& options, ModelAttention& model) {
  for (std::vector<AttentionSpec>* specs : {&model.specs, &model.latent_specs, &model.specs_by_request}) {
    if (!options.dtype.empty()) {
      for (AttentionSpec& spec : *specs) spec.dtype = parse_dtype(options.dtype);
    }
    if (options.masks.empty() || specs->empty()) continue;
    const std::vector<AttentionSpec> like(options.masks.size(), specs->front());
    *specs = like;
    for (std::size_t i = 0; i < like.size(); ++i) (*specs)[i].mask = parse_mask(options.masks[i]);
  }
}

// Removes latent attention that no target supports; one message reports it, and what only some targets lack.
void leave_out_latents(const WarmOptions& options, std::span<const PackTarget> targets,
                       ModelAttention& model) {
  if (model.latent_specs.empty()) return;
  if (!options.serving.serving) {
    model.remarks.push_back("kernels over the cache of latents are left out: --serving has them");
    return;
  }
  std::string others;
  bool is_served = false;
  for (const PackTarget& target : targets) {
    const bool runs = refusals_of(model.latent_specs.front(), target.arch).empty();
    is_served |= runs;
    if (!runs) others += (others.empty() ? "" : ", ") + to_string(target.arch);
  }
  if (!others.empty()) {
    model.remarks.push_back(
        fmt::format("there are no kernels over the cache of latents for {}: sm_90a alone has them, and "
                    "elsewhere the pack has what prompts are read by",
                    others));
  }
  if (!is_served) std::erase_if(model.specs, [](const AttentionSpec& spec) { return spec.values_in_keys; });
}

bool is_legal(const AttentionSpec& spec) {
  try {
    validate(spec);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Adds the fp8 variants of these specs, for tensors of their type that are quantized first. Only LSE and
// sinks depend on k's mean: calls with either pass lse_shift.
std::vector<AttentionSpec> beside_fp8(std::vector<AttentionSpec> specs, const WarmOptions& options) {
  for (const AttentionSpec& spec : std::vector(specs)) {
    AttentionSpec& quantized = specs.emplace_back(spec);
    quantized.dtype = DType::fp8_e4m3;
    quantized.out_dtype = spec.dtype;
    apply(options.quantize, quantized);
    quantized.lse_shift = options.quantize.center_keys && spec.sinks;
    quantized.interpolated_exponentials = options.interpolated_exponentials;
    if (!options.quantize.center_keys || spec.sinks) continue;
    AttentionSpec of_lse = quantized;
    of_lse.lse_shift = true;
    if (is_legal(of_lse)) specs.push_back(std::move(of_lse));
  }
  return specs;
}

std::string span(std::int64_t least, std::int64_t most) {
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

std::string served(const PackedKernel& kernel) {
  if (kernel.sizes == 0 && kernel.all_sizes) return "beside other kernels, for all sizes";
  if (kernel.sizes == 0) return "looked at and passed over, because it spills or waits";
  return fmt::format("{} queries, {} keys, {} of batch x heads ({} sizes)",
                     span(kernel.least_seqlen_q, kernel.most_seqlen_q),
                     span(kernel.least_seqlen_kv, kernel.most_seqlen_kv),
                     span(kernel.least_rows, kernel.most_rows), kernel.sizes);
}

Json describe(const PackedKernel& kernel) {
  return {{"spec", kernel.spec},
          {"target", kernel.target},
          {"config", kernel.config},
          {"name", kernel.name},
          {"key", kernel.key},
          {"bytes", kernel.bytes},
          {"compile_ms", kernel.compile_ms},
          {"cached", kernel.cached},
          {"sizes", kernel.sizes},
          {"all_sizes", kernel.all_sizes},
          {"rows", {kernel.least_rows, kernel.most_rows}},
          {"seqlen_q", {kernel.least_seqlen_q, kernel.most_seqlen_q}},
          {"seqlen_kv", {kernel.least_seqlen_kv, kernel.most_seqlen_kv}}};
}

int run_warm(const WarmOptions& options) {
  const std::string config = model_file(options.model);
  refuse_overwriting({options.out}, {config});
  ModelAttention model = read_model(config);
  apply_options(options, model);
  const std::vector<PackTarget> targets = targets_of(options);
  if (options.serving.serving) model.specs = served_specs(model, options.serving);
  leave_out_latents(options, targets, model);
  if (options.quantize.scales) model.specs = beside_fp8(std::move(model.specs), options);
  PackSizes sizes{.heads_q = model.heads_q,
                  .max_batch = options.max_batch,
                  .training = options.training,
                  .serving = options.serving.serving,
                  .append = served_append(model, options.serving)};
  if (model.max_seqlen > 0) sizes.max_seqlen = model.max_seqlen;
  if (options.max_seqlen > 0) sizes.max_seqlen = options.max_seqlen;
  const std::string out = std::filesystem::absolute(options.out).lexically_normal().string();

  PackContents contents;
  {
    ProgressLine progress(options.quiet ? ProgressReaders::none : ProgressReaders::all);
    contents = write_pack(out, model.specs, targets, sizes,
                          Context(settings_from_environment(), progress.observer()), options.jobs);
  }
  if (options.as_json) {
    Json kernels = Json::array();
    for (const PackedKernel& kernel : contents.kernels) kernels.push_back(describe(kernel));
    print_json({{"pack", out},
                {"bytes", contents.bytes},
                {"model_type", model.type},
                {"max_batch", sizes.max_batch},
                {"max_seqlen", sizes.max_seqlen},
                {"remarks", model.remarks},
                {"kernels", kernels}});
    return status_ok;
  }
  double compile_ms = 0;
  for (const PackedKernel& kernel : contents.kernels) {
    if (!options.quiet) {
      print("{}  {}  {}\n  {}, {}, {} bytes\n", kernel.target, kernel.spec, kernel.config, served(kernel),
            kernel.cached ? "from the cache" : fmt::format("{:.0f} ms", kernel.compile_ms), kernel.bytes);
    }
    if (!kernel.cached) compile_ms += kernel.compile_ms;
  }
  for (const std::string& remark : model.remarks) print("note: {}\n", remark);
  print("{} kernels, {} bytes, {:.1f} s of compiling, for up to {} tokens in batches of up to {}\n",
        contents.kernels.size(), contents.bytes, compile_ms / 1000, sizes.max_seqlen, sizes.max_batch);
  print("JIT_ATTENTION_PACK={} JIT_ATTENTION_OFFLINE=1 runs {} without compiling\n", out,
        model.remarks.empty() ? "the model" : "all of the model but what the notes leave out");
  return status_ok;
}

}  // namespace

void add_warm(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<WarmOptions>();
  CLI::App* command = app.add_subcommand(
      "warm", "Compile all kernels of a model into a pack for container images; needs no GPU");
  command
      ->add_option("--model", options->model,
                   "config.json of a Hugging Face model, or the folder that holds it")
      ->required();
  command
      ->add_option("--arch", options->targets,
                   "Targets such as sm_90a,sm_80, or emulated:sm_90a for an emulated device")
      ->delimiter(',')
      ->required();
  command->add_option("--out", options->out, "File to write")->check(must_not_be_empty)->required();
  command->add_option("--dtype", options->dtype, "bf16 or fp16; default: the model's");
  command
      ->add_option("--mask", options->masks,
                   "A mask of the layers, may be repeated; default: those in config.json")
      ->allow_extra_args(false);
  add_whole_option(*command, "--multiprocessors", options->multiprocessors,
                   "Multiprocessors of the GPUs, such as 132,114; default: those of known GPUs", {1, 1024})
      ->delimiter(',');
  add_whole_option(*command, "--max-batch", options->max_batch, "Largest batch", {1, 1 << 12})
      ->capture_default_str();
  add_whole_option(*command, "--max-seqlen", options->max_seqlen,
                   "Largest sequence length; default: the model's", {1, 1 << 24});
  CLI::Option* training =
      command->add_flag("--training", options->training, "Include kernels of the backward pass");
  add_serving_options(*command, options->serving);
  CLI::Option* serving = command->get_option("--serving");
  serving->excludes(training);
  command->get_option("--causal-per-request")->excludes(command->get_option("--mask"));
  add_quantize_options(
      *command, options->quantize,
      "Include FP8 (e4m3) attention and the quantizer of its inputs, with scales of q and k for each "
      "head, token or block");
  CLI::Option* quantize = command->get_option("--quantize")->excludes(serving)->excludes(training);
  command
      ->add_flag("--interpolated-exponentials", options->interpolated_exponentials,
                 "With --quantize: kernels with interpolated probabilities")
      ->needs(quantize);
  add_whole_option(*command, "--jobs", options->jobs,
                   "Kernels to compile in parallel; default: the number of cores", {1, 1024});
  command->add_flag("-q,--quiet", options->quiet, "Print neither progress nor a line for each kernel");
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_warm(*options); }});
}

}  // namespace jit::tool
