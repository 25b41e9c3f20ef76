#include "generator/operations/append/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/operations/spec_rules.h"
#include "templates/append/params.cuh"
#include "templates/base/row_lanes.cuh"

namespace jit {
namespace {

void check_head_dim(const char* field, int value) {
  constexpr int step = 8, most = 1024;
  if (value >= step && value <= most && value % step == 0) return;
  const int nearest = std::clamp((value + step - 1) / step * step, step, most);
  refuse_spec(field, std::to_string(value),
              fmt::format("must be a multiple of {} from {} to {}", step, step, most),
              std::to_string(nearest));
}

void check_sections(const AppendSpec& spec) {
  if (!spec.has_sections()) return;
  const auto [first, second, third] = spec.mrope_sections;
  const bool fits = first >= 0 && second >= 0 && third >= 0 &&
                    std::max({first, second, third}) <= spec.rotary_dim &&
                    first + second + third == spec.rotary_dim / 2;
  if (fits) return;
  refuse_spec("mrope_sections", fmt::format("({}, {}, {})", first, second, third),
              fmt::format("must be numbers from 0 on, together {}, half of rotary_dim", spec.rotary_dim / 2),
              fmt::format("({}, 0, 0)", spec.rotary_dim / 2));
}

// Rejects packed and latent caches with unsupported scales, head dims or rotary_dim: a lane has whole words
// of a row.
void check_packing(const AppendSpec& spec) {
  const DTypeFacts& stored = facts(spec.stored_dtype());
  if (stored.row_bytes != 0) {
    const int values = stored.dtype == DType::latent_656 ? 512 : 448;
    if (spec.head_dim != 64)
      refuse_spec("head_dim", std::to_string(spec.head_dim),
                  fmt::format("must be 64 with cache_dtype {}", stored.name), "64");
    if (spec.value_head_dim() != values)
      refuse_spec("head_dim_v", std::to_string(spec.value_head_dim()),
                  fmt::format("must be {} with cache_dtype {}", values, stored.name), std::to_string(values));
    if (spec.scale_per != ScaleKind::head)
      refuse_spec("scale_per", std::string(to_string(spec.scale_per)), "must be head with latents", "head");
  }
  if (stored.numbers == 1 && stored.row_bytes == 0) return;
  if (stored.numbers > 1) {
    const ScaleKind kind = stored.scale_columns == 0 ? ScaleKind::token : ScaleKind::head;
    if (spec.scale_per != kind)
      refuse_spec("scale_per", std::string(to_string(spec.scale_per)),
                  fmt::format("must be {} with cache_dtype {}", to_string(kind), stored.name),
                  std::string(to_string(kind)));
    const int columns = std::max(8, stored.scale_columns);
    for (const auto& [name, value] :
         {std::pair{"head_dim", spec.head_dim}, {"head_dim_v", spec.value_head_dim()}}) {
      if (value % columns != 0 || value > max_packed_head_dim)
        refuse_spec(name, std::to_string(value),
                    fmt::format("must be a multiple of {} up to {} with cache_dtype {}", columns,
                                max_packed_head_dim, stored.name),
                    std::to_string(std::clamp(value / columns * columns, columns, max_packed_head_dim)));
    }
  }
  if (const int step = spec.rotary_interleaved ? 8 : 16; spec.rotary_dim % step != 0)
    refuse_spec("rotary_dim", std::to_string(spec.rotary_dim),
                fmt::format("must be a multiple of {} with cache_dtype {}", step, stored.name),
                std::to_string(std::max(step, spec.rotary_dim / step * step)));
}

std::string summary_of(const AppendSpec& spec) {
  std::string words = fmt::format("{} d{}", to_string(spec.dtype), spec.head_dim);
  if (spec.value_head_dim() != spec.head_dim) words += fmt::format("/{}", spec.value_head_dim());
  if (spec.stored_dtype() != spec.dtype) words += fmt::format(" to {}", to_string(spec.stored_dtype()));
  if (spec.scale_per == ScaleKind::token) words += " with scales";
  if (spec.alignment != 16) words += fmt::format(" align{}", spec.alignment);
  if (spec.rotary_dim != 0) {
    words += fmt::format(" rotary{}{} {}", spec.rotary_dim, spec.rotary_interleaved ? " interleaved" : "",
                         to_string(spec.cos_sin_dtype));
  }
  if (spec.has_sections()) {
    words += fmt::format(" sections({}){}", fmt::join(spec.mrope_sections, ", "),
                         spec.mrope_interleaved ? " in turns" : "");
  }
  if (spec.norm)
    words += fmt::format(" norm {}{}", to_string(spec.norm_dtype), spec.norm_adds_one ? " + 1" : "");
  return words;
}

std::string config_lines(const AppendSpec& spec) {
  const auto number = [](std::string_view name, int value, std::string_view doc) {
    return constant_line("int", name, std::to_string(value), doc);
  };
  const auto truth = [](std::string_view name, bool value, std::string_view doc) {
    return constant_line("bool", name, value ? "true" : "false", doc);
  };
  return type_line("Element", spec.dtype, "of q, k and v") +
         type_line("CacheElement", spec.stored_dtype(), "of the caches") +
         constant_line("ScaleKind", "scale_per",
                       spec.scale_per == ScaleKind::token ? "ScaleKind::token" : "ScaleKind::head",
                       "what rows of 8 bits have a scale for") +
         type_line("TableElement", spec.cos_sin_dtype, "of cosines and sines") +
         type_line("WeightElement", spec.norm_dtype, "of the norms' weights") +
         number("head_dim", spec.head_dim, "columns of q and k") +
         number("head_dim_v", spec.value_head_dim(), "columns of v") +
         number("alignment", spec.alignment, "bytes, of every row in global memory") +
         number("rotary_dim", spec.rotary_dim, "leading elements that are rotated") +
         truth("rotary_interleaved", spec.rotary_interleaved,
               "neighbors are a pair, else the halves' elements") +
         truth("has_sections", spec.has_sections(), "pairs have the positions of three axes") +
         truth("sections_interleaved", spec.mrope_interleaved, "axes in turns, else one after another") +
         number("section_0", spec.mrope_sections[0], "pairs of axis 0") +
         number("section_1", spec.mrope_sections[1], "pairs of axis 1") +
         number("section_2", spec.mrope_sections[2], "pairs of axis 2") +
         truth("norm", spec.norm, "RMS norm of each head of q and k") +
         truth("norm_adds_one", spec.norm_adds_one, "to the weights");
}

}  // namespace

void validate(const AppendSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::bf16, DType::fp16});
  check_choice("cache_dtype", spec.stored_dtype(),
               {DType::bf16, DType::fp16, DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4,
                DType::nvfp4, DType::mxfp4, DType::latent_656, DType::latent_584, DType::latent_528});
  if (spec.scale_per == ScaleKind::token && !facts(spec.stored_dtype()).is_stored())
    refuse_spec("scale_per", "token", "wants a cache_dtype of 8 or 4 bits", "head");
  check_head_dim("head_dim", spec.head_dim);
  if (spec.head_dim_v != 0) check_head_dim("head_dim_v", spec.head_dim_v);
  check_alignment(spec.alignment);
  check_rotary(spec.rotary_dim, spec.head_dim, spec.cos_sin_dtype);
  check_sections(spec);
  check_packing(spec);
  check_norm(spec.norm_dtype, spec.norm_eps);
}

int append_lanes(const AppendSpec& spec) {
  const int grain =
      spec.rotary_dim == 0 ? spec.head_dim : spec.rotary_dim / (spec.rotary_interleaved ? 1 : 2);
  const int bytes = size_of(spec.dtype);
  return std::max(row_lanes(spec.head_dim, grain, bytes).lanes,
                  row_lanes(spec.value_head_dim(), spec.value_head_dim(), bytes).lanes);
}

Program append_program(const AppendSpec& spec) {
  const bool has_blocks = facts(spec.stored_dtype()).scale_columns != 0;
  Program program;
  program.threads = 128;
  program.name = fmt::format("append_{}_d{}{}{}", to_string(spec.dtype), spec.head_dim,
                             spec.rotary_dim != 0 ? fmt::format("_rotary{}", spec.rotary_dim) : "",
                             spec.norm ? "_norm" : "");
  program.facts = {{"spec", "append " + summary_of(spec)}};
  std::string& source = program.source;
  source =
      fmt::format("// Append to a cache: {}. Generated: change the spec, not this file.\n", summary_of(spec));
  source += "#include \"append/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n" +
            config_lines(spec) + "};\n";
  source += kernel_text(program, has_blocks ? "BlockAppendParams" : "AppendParams",
                        has_blocks ? sizeof(BlockAppendParams) : sizeof(AppendParams), "append_rows",
                        fmt::format("static_assert(TokenRows<Config>::lanes == {}, "
                                    "\"host and device disagree on the lanes of a row\");\n",
                                    append_lanes(spec)));
  return program;
}

}  // namespace jit
