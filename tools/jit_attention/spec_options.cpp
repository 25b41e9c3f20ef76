#include "spec_options.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <jit/compiled_kernel.h>
#include <jit/error.h>
#include <jit/spec_table.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "functor_file.h"
#include "number_options.h"

namespace jit::tool {
namespace {

std::vector<FunctorText> read_functors(const char* option, const std::vector<std::string>& arguments) {
  std::vector<FunctorText> functors;
  for (const std::string& argument : arguments) {
    FunctorText functor = read_functor(argument);
    const auto has_its_name = [&](const FunctorText& other) { return other.name == functor.name; };
    if (std::any_of(functors.begin(), functors.end(), has_its_name)) {
      throw BadInput(
          fmt::format("{} {} is given twice; give each file a name of its own", option, functor.name));
    }
    functors.push_back(std::move(functor));
  }
  return functors;
}

// Joins all texts, for options that only accept files.
std::string join_texts(const std::vector<FunctorText>& texts, const char* separator) {
  std::string joined;
  for (const FunctorText& text : texts) {
    joined += fmt::format("{}text({})", joined.empty() ? "" : separator, text.name);
  }
  return joined.empty() ? "none" : joined;
}

std::string option_name(const SpecField& field) {
  std::string name = "--" + std::string(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// An option that `parse` converts to a member.
template <class Value, class Parse>
void add_parsed_option(CLI::App& app, const std::string& name, Value& value, const Parse& parse,
                       const std::string& doc) {
  app.add_option_function<std::string>(
      name,
      [&value, name, parse](const std::string& text) {
        try {
          value = parse(text);
        } catch (const Error& error) {
          throw CLI::ValidationError(name, error.message());
        }
      },
      doc);
}

std::string sentence(std::string_view phrase) {
  std::string text(phrase);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

void add_functor_options(CLI::App& app, FunctorOptions& options) {
  app.add_option("--mask", options.mask,
                 fmt::format("Keys that a query sees: {}, text(name), combined with && || ! and "
                             "parentheses; default: all of --mask-file, else none",
                             mask_usages()));
  app.add_option("--score", options.score,
                 fmt::format("Functions applied to scores, in order, separated by commas: {}, text(name); "
                             "default: all of --score-file, else none",
                             score_usages()));
  app.add_option(
      "--output", options.output,
      fmt::format(
          "Functions applied to o before it is written, in order, separated by commas: {}, text(name); "
          "default: all of --output-file, else none",
          output_usages()));
  app.add_option("--output-file", options.output_files,
                 "name=path: an output of your own, text(name) in --output")
      ->allow_extra_args(false);
  app.add_option("--mask-file", options.mask_files, "name=path: a mask of your own, text(name) in --mask")
      ->allow_extra_args(false);
  app.add_option("--score-file", options.score_files, "name=path: a score of your own, text(name) in --score")
      ->allow_extra_args(false);
  app.footer(functor_file_help);
  for (const SpecField& field : spec_fields()) {
    if (std::holds_alternative<std::optional<float> AttentionSpec::*>(field.member))
      add_real_option(app, option_name(field), options.softmax_scale, sentence(field.doc));
  }
}

void apply(const FunctorOptions& options, AttentionSpec& spec) {
  const std::vector<FunctorText> masks = read_functors("--mask-file", options.mask_files);
  const std::vector<FunctorText> scores = read_functors("--score-file", options.score_files);
  spec.mask = parse_mask(options.mask.empty() ? join_texts(masks, " && ") : options.mask, masks);
  spec.score = parse_score(options.score.empty() ? join_texts(scores, ", ") : options.score, scores);
  const std::vector<FunctorText> outputs = read_functors("--output-file", options.output_files);
  spec.output = parse_output(options.output.empty() ? join_texts(outputs, ", ") : options.output, outputs);
  spec.softmax_scale = options.softmax_scale;
}

std::vector<std::string> input_files(const FunctorOptions& options) {
  std::vector<std::string> paths;
  for (const auto* arguments : {&options.mask_files, &options.score_files, &options.output_files}) {
    for (const std::string& argument : *arguments) {
      paths.push_back(split_assignment("--mask-file or --score-file", argument).second);
    }
  }
  return paths;
}

void add_kv_options(CLI::App& app, AttentionSpec& spec) {
  for (const SpecField& field : spec_fields()) {
    if (const auto* dtype = std::get_if<std::optional<DType> AttentionSpec::*>(&field.member)) {
      add_parsed_option(app, option_name(field), spec.**dtype, parse_dtype, sentence(field.doc));
    } else if (const auto* scales = std::get_if<ScaleKind AttentionSpec::*>(&field.member)) {
      add_parsed_option(app, option_name(field), spec.**scales, parse_scale_kind, sentence(field.doc));
    }
  }
}

void add_spec_options(CLI::App& app, SpecOptions& options) {
  for (const SpecField& field : spec_fields()) {
    if (field.is_size) continue;  // options of their own, where there are sizes
    if (std::holds_alternative<DType AttentionSpec::*>(field.member)) {
      app.add_option(option_name(field), options.dtype, sentence(field.doc))->capture_default_str();
    } else if (const auto* kind = std::get_if<SequenceKind AttentionSpec::*>(&field.member)) {
      add_parsed_option(app, option_name(field), options.spec.**kind, parse_sequence_kind,
                        sentence(field.doc));
    } else if (const auto* truth = std::get_if<bool AttentionSpec::*>(&field.member)) {
      app.add_flag(option_name(field), options.spec.**truth, sentence(field.doc));
    } else if (const auto* member = std::get_if<int AttentionSpec::*>(&field.member)) {
      CLI::Option* option =
          add_whole_option(app, option_name(field), options.spec.**member, sentence(field.doc));
      if (options.spec.**member != 0) option->capture_default_str();
    }
  }
  add_kv_options(app, options.spec);
  add_functor_options(app, options.functors);
}

AttentionSpec build_spec(const SpecOptions& options) {
  AttentionSpec spec = options.spec;
  spec.dtype = parse_dtype(options.dtype);
  apply(options.functors, spec);
  validate(spec);
  return spec;
}

void add_config_option(CLI::App& app, std::string& config) {
  app.add_option(
      "--config", config,
      "Fields of the kernel's config, such as \"tile_q=128 stages_k=2\"; the cost model chooses the "
      "others");
}

std::optional<KernelConfig> build_config(const std::string& config, const AttentionSpec& spec, Arch arch) {
  if (config.empty()) return std::nullopt;
  const std::vector<KernelConfig> candidates = candidate_configs(spec, arch);
  const std::size_t family = parse_config(config, candidates.front()).index();
  const auto first = [&](const auto& suits) {
    return std::find_if(candidates.begin(), candidates.end(), [&](const KernelConfig& candidate) {
      return candidate.index() == family && suits(candidate);
    });
  };
  // Base config: the best one with these fields, else the best one with these fields replaced.
  auto base =
      first([&](const KernelConfig& candidate) { return parse_config(config, candidate) == candidate; });
  if (base == candidates.end()) base = first([](const KernelConfig&) { return true; });
  return parse_config(config, base == candidates.end() ? candidates.front() : *base);
}

}  // namespace jit::tool
