#include "quantize_options.h"

#include <functional>
#include <string>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/quantize.h>
#include <CLI/CLI.hpp>

#include "command.h"

namespace jit::tool {
namespace {

CLI::Option* add_scales_option(CLI::App& app, const char* name, const std::string& text,
                               const std::function<void(QuantizedScales)>& set) {
  return app.add_option_function<std::string>(
      name,
      [name, set](const std::string& scales) {
        try {
          set(parse_quantized_scales(scales));
        } catch (const Error& error) {
          throw CLI::ValidationError(name, error.message());
        }
      },
      text);
}

ScaleKind kind_of(const char* option, QuantizedScales scales) {
  switch (scales) {
    case QuantizedScales::head:
      return ScaleKind::head;
    case QuantizedScales::token:
      return ScaleKind::token;
    case QuantizedScales::channel:
      return ScaleKind::channel;
    case QuantizedScales::block:
      return ScaleKind::block;
    case QuantizedScales::given:
      break;
  }
  throw BadInput(
      fmt::format("{} is {}, and scales are found here; it must be another kind", option, to_string(scales)));
}

}  // namespace

void add_quantize_options(CLI::App& app, QuantizeOptions& options, const char* doc) {
  CLI::Option* quantize =
      add_scales_option(app, "--quantize", doc, [&](QuantizedScales scales) { options.scales = scales; });
  add_scales_option(app, "--value-scales",
                    "With --quantize: a scale of v for each head or channel; default: head",
                    [&](QuantizedScales scales) { options.value_scales = scales; })
      ->needs(quantize);
  app.add_flag("--center-keys", options.center_keys, "With --quantize: subtract the mean of k")
      ->needs(quantize);
  app.add_flag("--center-values", options.center_values,
               "With --quantize: subtract the mean of v, which is added to the output")
      ->needs(quantize);
}

void apply(const QuantizeOptions& options, AttentionSpec& spec) {
  spec.descale_per = kind_of("--quantize", *options.scales);
  spec.v_descale_per = kind_of("--value-scales", options.value_scales);
  spec.v_mean = options.center_values;
}

}  // namespace jit::tool
