#include "serving_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/spec_table.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "number_options.h"

namespace jit::tool {
namespace {

constexpr int inline_alignment = 4;  // of rows whose scale, an fp32, lies behind them

void add_over_pages(std::vector<AttentionSpec>& served, AttentionSpec spec, const ServingOptions& options) {
  spec.sequences_kv = SequenceKind::paged;
  spec.page_size = options.page_size;
  spec.split_keys = options.split_keys;
  if (!options.kv_dtype.empty()) spec.kv_dtype = parse_dtype(options.kv_dtype);
  if (options.descale_per) spec.descale_per = *options.descale_per;
  if (spec.descale_per == ScaleKind::token) spec.alignment = inline_alignment;
  for (const SequenceKind queries : {SequenceKind::varlen, SequenceKind::dense}) {
    spec.sequences_q = queries;
    served.push_back(spec);
  }
}

void add_over_prompts(std::vector<AttentionSpec>& served, AttentionSpec spec, const ServingOptions& options) {
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  spec.split_keys = options.split_keys;
  served.push_back(spec);
}

}  // namespace

void add_serving_options(CLI::App& app, ServingOptions& options) {
  CLI::Option* serving = app.add_flag(
      "--serving", options.serving,
      "Kernels for a server: attention over pages (prefill, decoding, mixed batches), append and merge");
  add_whole_option(app, "--page-size", options.page_size, "With --serving: rows of a page",
                   {1, max_page_size})
      ->needs(serving)
      ->capture_default_str();
  CLI::Option* kv_dtype =
      app.add_option(
             "--kv-dtype", options.kv_dtype,
             "With --serving: element type of the cache: fp8_e4m3, fp8_e5m2, int8, int4, nvfp4 or mxfp4")
          ->needs(serving);
  app.add_option_function<std::string>(
         "--descale-per",
         [&options](const std::string& text) {
           if (text != "head" && text != "token")
             throw CLI::ValidationError("--descale-per", text + " is neither head nor token");
           options.descale_per = parse_scale_kind(text);
         },
         "With --kv-dtype: granularity of the cache's scales, head (default) or token; scales of tokens "
         "stand behind the elements of their row, as in vLLM's fp8_per_token_head")
      ->needs(kv_dtype);
  add_whole_option(app, "--split-keys", options.split_keys,
                   "With --serving: keys in a span, for results whose bits do not depend on the batch")
      ->needs(serving);
  app.add_flag("--causal-per-request", options.causal_per_request,
               "With --serving: kernels also for batches with a causal flag for each request")
      ->needs(serving);
  add_whole_option(app, "--rotary-dim", options.rotary_dim,
                   "With --serving: leading elements of a head that append rotates; default: the model's",
                   {2, 1024})
      ->needs(serving);
  app.add_flag("--rotary-interleaved", options.rotary_interleaved,
               "With --serving: append rotates pairs (2j, 2j + 1), whatever config.json says")
      ->needs(serving);
  CLI::Option* sections =
      add_whole_option(app, "--mrope-sections", options.mrope_sections,
                       "With --serving: pairs of each axis of M-RoPE, such as 16,24,24; default: the model's")
          ->delimiter(',')
          ->expected(3)
          ->needs(serving);
  app.add_flag("--mrope-interleaved", options.mrope_interleaved,
               "With --mrope-sections: the axes of pairs alternate")
      ->needs(sections);
  CLI::Option* norm =
      app.add_flag("--norm", options.norm,
                   "With --serving: append normalizes heads of q and k, whatever config.json says");
  norm->needs(serving);
  app.add_flag("--norm-adds-one", options.norm_adds_one, "With --norm: multiply by 1 + weight")->needs(norm);
}

std::vector<AttentionSpec> served_specs(const ModelAttention& model, const ServingOptions& options) {
  std::vector<AttentionSpec> served;
  const bool is_latent = !model.latent_specs.empty();
  if (is_latent && !options.kv_dtype.empty()) {
    throw BadInput(fmt::format("--kv-dtype is {}, and a cache of latents must be of 16 bits; leave it out",
                               options.kv_dtype));
  }
  for (const AttentionSpec& spec : model.specs) {
    // Encoder layers and those that attend to encoder keys are alike; causal ones only read a cache.
    const bool is_of_encoder = model.kind == ModelKind::encoder ||
                               (model.kind == ModelKind::encoder_decoder && spec.mask == mask::none());
    if (is_of_encoder || is_latent) add_over_prompts(served, spec, options);
    if (model.kind != ModelKind::encoder && !is_latent) add_over_pages(served, spec, options);
  }
  for (const AttentionSpec& spec : model.latent_specs) add_over_pages(served, spec, options);
  if (!options.causal_per_request) return served;
  if (model.specs_by_request.empty())
    throw BadInput("--causal-per-request is given, and the model has no causal layers; leave it out");
  for (const AttentionSpec& spec : model.specs_by_request) add_over_pages(served, spec, options);
  return served;
}

AppendSpec served_append(const ModelAttention& model, const ServingOptions& options) {
  AppendSpec append = model.append;
  if (options.rotary_dim > 0) append.rotary_dim = options.rotary_dim;
  append.rotary_interleaved |= options.rotary_interleaved;
  if (!options.mrope_sections.empty()) {
    std::copy_n(options.mrope_sections.begin(), 3, append.mrope_sections.begin());
    append.mrope_interleaved = options.mrope_interleaved;
  }
  append.norm |= options.norm;
  append.norm_adds_one |= options.norm_adds_one;
  return append;
}

}  // namespace jit::tool
