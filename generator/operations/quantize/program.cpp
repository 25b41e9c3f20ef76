#include "generator/operations/quantize/program.h"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jit/spec_table.h>

#include "generator/operations/spec_rules.h"

namespace jit {
namespace {

constexpr std::array<std::string_view, 5> scale_names = {"given", "head", "token", "channel", "block"};

void check_scales(std::string_view field, QuantizedScales scales,
                  std::initializer_list<QuantizedScales> others) {
  std::string names = "given, head";
  if (scales == QuantizedScales::given || scales == QuantizedScales::head) return;
  for (const QuantizedScales other : others) {
    if (scales == other) return;
    names += fmt::format(", {}", to_string(other));
  }
  refuse_spec(field, std::string(to_string(scales)), fmt::format("must be one of {}", names), "head");
}

void check_head_dim(const char* field, int value) {
  constexpr int step = 8, most = max_fp8_head_dim;
  if (value >= step && value <= most && value % step == 0) return;
  const int nearest = std::clamp((value + step - 1) / step * step, step, most);
  refuse_spec(field, std::to_string(value),
              fmt::format("must be a multiple of {} from {} to {}", step, step, most),
              std::to_string(nearest));
}

std::string summary_of(const QuantizeSpec& spec) {
  std::string words =
      fmt::format("{} to {} d{}", to_string(spec.dtype), to_string(spec.out_dtype), spec.head_dim);
  if (spec.value_head_dim() != spec.head_dim) words += fmt::format("/{}", spec.value_head_dim());
  if (spec.alignment != 16) words += fmt::format(" align{}", spec.alignment);
  words += fmt::format(" scales {}/{}", to_string(spec.scales), to_string(spec.value_scales));
  if (spec.norm)
    words += fmt::format(" norm {}{}", to_string(spec.norm_dtype), spec.norm_adds_one ? " + 1" : "");
  if (spec.rotary_dim != 0) {
    words += fmt::format(" rotary{}{} {}", spec.rotary_dim, spec.rotary_interleaved ? " interleaved" : "",
                         to_string(spec.cos_sin_dtype));
  }
  if (spec.rotate) words += " rotated";
  if (spec.center_keys) words += " k-mean";
  if (spec.center_values) words += " v-mean";
  if (spec.sequences != SequenceKind::dense) words += fmt::format(" {}", to_string(spec.sequences));
  return words;
}

std::string config_lines(const QuantizeSpec& spec, bool keeps_rows) {
  const auto number = [](std::string_view name, int value, std::string_view doc) {
    return constant_line("int", name, std::to_string(value), doc);
  };
  const auto truth = [](std::string_view name, bool value, std::string_view doc) {
    return constant_line("bool", name, value ? "true" : "false", doc);
  };
  const auto scales = [](std::string_view name, QuantizedScales value, std::string_view doc) {
    return constant_line("QuantizedScales", name, fmt::format("QuantizedScales::{}", to_string(value)), doc);
  };
  return type_line("Element", spec.dtype, "of q, k and v") +
         type_line("StoredElement", spec.out_dtype, "of the quantized elements") +
         number("head_dim", spec.head_dim, "columns of q and k") +
         number("head_dim_v", spec.value_head_dim(), "columns of v") +
         number("alignment", spec.alignment, "bytes, of every row that is read") +
         scales("scales", spec.scales, "of q and k") + scales("value_scales", spec.value_scales, "of v") +
         type_line("TableElement", spec.cos_sin_dtype, "of cosines and sines") +
         type_line("WeightElement", spec.norm_dtype, "of the norms' weights") +
         number("rotary_dim", spec.rotary_dim, "leading elements that are rotated by positions") +
         truth("rotary_interleaved", spec.rotary_interleaved,
               "neighbors are a pair, else the halves' elements") +
         truth("has_sections", false, "positions have one axis") +
         truth("norm", spec.norm, "RMS norm of q and k") +
         truth("norm_adds_one", spec.norm_adds_one, "to the weights") +
         truth("rotate", spec.rotate, "q and k by one orthogonal matrix") +
         truth("center_keys", spec.center_keys, "k without its mean") +
         truth("center_values", spec.center_values, "v without its mean") +
         constant_line("SequenceKind", "sequences",
                       fmt::format("SequenceKind::{}", to_string(spec.sequences)),
                       "which rows are a sequence's") +
         truth("keeps_rows", keeps_rows, "rows stay in shared memory until all is known of their sequence");
}

int quantizer_threads(const QuantizeSpec& spec) {
  return quantize_threads(
      spec.center_keys || spec.center_values || spec.value_scales == QuantizedScales::channel,
      spec.scales == QuantizedScales::block);
}

}  // namespace

std::string_view to_string(QuantizedScales scales) {
  return scale_names.at(static_cast<std::size_t>(scales));
}

QuantizedScales parse_quantized_scales(std::string_view text) {
  const auto found = std::find(scale_names.begin(), scale_names.end(), text);
  if (found != scale_names.end()) return static_cast<QuantizedScales>(found - scale_names.begin());
  throw Error(ErrorCode::invalid_argument, "parse", "scales",
              fmt::format("\"{}\" is none of {}", text, fmt::join(scale_names, ", ")));
}

void validate(const QuantizeSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::bf16, DType::fp16, DType::fp32});
  check_choice("out_dtype", spec.out_dtype, {DType::fp8_e4m3, DType::fp8_e5m2});
  check_head_dim("head_dim", spec.head_dim);
  if (spec.head_dim_v != 0) check_head_dim("head_dim_v", spec.head_dim_v);
  check_alignment(spec.alignment);
  check_scales("scales", spec.scales, {QuantizedScales::token, QuantizedScales::block});
  check_scales("value_scales", spec.value_scales, {QuantizedScales::channel});
  check_rotary(spec.rotary_dim, spec.head_dim, spec.cos_sin_dtype);
  check_norm(spec.norm_dtype, spec.norm_eps);
  if (spec.keep_rows == KeepRows::always) {
    if (const std::string why = cannot_keep_rows(spec); !why.empty())
      refuse_spec("keep_rows", "always", why, "automatic");
  }
  if (spec.rotate && !std::has_single_bit(static_cast<unsigned>(spec.head_dim)))
    refuse_spec("rotate", "true",
                fmt::format("needs a head_dim that is a power of two, and it is {}", spec.head_dim), "false");
  if (spec.sequences == SequenceKind::paged)
    refuse_spec("sequences", "paged", "must be one of dense, varlen, padded", "dense");
}

SequenceKind sequences_of(const QuantizeArguments& arguments) {
  if (arguments.cu_seqlens_q.is_present() || arguments.cu_seqlens_k.is_present()) return SequenceKind::varlen;
  if (arguments.seqused_q.is_present() || arguments.seqused_k.is_present()) return SequenceKind::padded;
  return SequenceKind::dense;
}

std::string_view to_string(KeepRows keep_rows) {
  constexpr std::array<std::string_view, 3> names = {"automatic", "never", "always"};
  return names.at(static_cast<std::size_t>(keep_rows));
}

QuantizedTensorFacts quantized_tensor_facts(const QuantizeSpec& spec, QkvTensor tensor, bool keeps_rows) {
  const bool is_value = tensor == QkvTensor::v;
  const int columns = is_value ? spec.value_head_dim() : spec.head_dim;
  const QuantizedScales scales = is_value ? spec.value_scales : spec.scales;
  const bool is_centered = is_value ? spec.center_values : tensor == QkvTensor::k && spec.center_keys;
  const bool has_pairs = !is_value && spec.rotary_dim != 0;
  const int grain = has_pairs ? spec.rotary_dim / (spec.rotary_interleaved ? 1 : 2) : columns;
  const RowLanes share = row_lanes(columns, grain, size_of(spec.dtype));
  const int threads = keeps_rows ? resident_threads : quantizer_threads(spec);
  return {.columns = columns,
          .chunk = quantize_chunk(share, threads),
          .row_bytes = quantize_row_bytes(share, size_of(spec.dtype), threads),
          .statistics = statistic_numbers(columns, is_centered, scales)};
}

namespace {

constexpr std::array all_tensors = {QkvTensor::q, QkvTensor::k, QkvTensor::v};

std::string tensor_assertions(const QuantizeSpec& spec, bool keeps_rows) {
  constexpr std::array names = {"q", "k", "v"};
  std::string assertions;
  for (const QkvTensor tensor : all_tensors) {
    const QuantizedTensorFacts facts = quantized_tensor_facts(spec, tensor, keeps_rows);
    assertions += fmt::format(
        "static_assert(QuantizePlan<Config, QkvTensor::{0}>::statistics == {1} && "
        "QuantizePlan<Config, QkvTensor::{0}>::chunk == {2},\n"
        "              \"host and device disagree on {0}\");\n",
        names.at(static_cast<std::size_t>(tensor)), facts.statistics, facts.chunk);
  }
  return assertions;
}

std::string source_of(const QuantizeSpec& spec, std::string_view header, std::string_view kernel,
                      bool keeps_rows) {
  return fmt::format("// Quantizer of q, k and v: {}. Generated: change the spec, not this file.\n",
                     summary_of(spec)) +
         fmt::format("#include \"{}\"\n\nusing namespace jit;\n\nstruct Config {{\n", header) +
         config_lines(spec, keeps_rows) + "};\n" + std::string(kernel);
}

}  // namespace

Program quantize_program(const QuantizeSpec& spec) {
  Program program;
  program.threads = quantizer_threads(spec);
  program.blocks_per_sm = quantize_blocks_per_sm(program.threads);
  program.name = fmt::format("quantize_qkv_{}_{}_d{}{}", to_string(spec.dtype), to_string(spec.out_dtype),
                             spec.head_dim, spec.rotate ? "_rotated" : "");
  program.facts = {{"spec", "quantize_qkv " + summary_of(spec)}};
  std::string assertions = tensor_assertions(spec, false);
  int row_bytes = 0;
  for (const QkvTensor tensor : all_tensors)
    row_bytes = std::max(row_bytes, quantized_tensor_facts(spec, tensor).row_bytes);
  program.smem_bytes =
      quantize_buffers(row_bytes) *
      quantize_buffer_bytes(row_bytes, spec.sequences != SequenceKind::dense, program.threads);
  assertions += fmt::format(
      "static_assert(buffers<Config> * buffer_bytes<Config> == {}, \"host and device disagree on shared "
      "memory\");\n",
      program.smem_bytes);
  program.source = source_of(
      spec, "quantize/kernel.cuh",
      kernel_text(program, "QuantizeParams", sizeof(QuantizeParams), "quantize_qkv", assertions), false);
  return program;
}

bool can_keep_rows(Arch arch) { return arch.major == 9; }

std::string cannot_keep_rows(const QuantizeSpec& spec) {
  constexpr int most_row_bytes = 512, most_box_rows = 256, fewest_resident = 3;
  if (spec.sequences != SequenceKind::dense) return "needs dense sequences";
  if (spec.alignment != 16) return "needs rows that are aligned to 16 bytes";
  bool has_statistics = false;
  for (const QkvTensor tensor : all_tensors) {
    const QuantizedTensorFacts facts = quantized_tensor_facts(spec, tensor, true);
    has_statistics |= facts.statistics > 0;
    if (facts.columns * size_of(spec.dtype) > most_row_bytes)
      return fmt::format("needs rows of at most {} bytes", most_row_bytes);
    if (facts.chunk > most_box_rows) return "needs rows of 40 elements or more";
  }
  if (!has_statistics) return "needs scales of heads or channels, or a mean";
  if (resident_layout_of(spec).depth < fewest_resident) return "needs shorter rows";
  return "";
}

ResidentLayout resident_layout_of(const QuantizeSpec& spec) {
  int slot_bytes = 0, statistics = 0, results = 0, blocks = 0;
  for (const QkvTensor tensor : all_tensors) {
    const QuantizedTensorFacts facts = quantized_tensor_facts(spec, tensor, true);
    const bool is_value = tensor == QkvTensor::v;
    const bool has_means = is_value ? spec.center_values : spec.center_keys;
    const QuantizedScales scales = is_value ? spec.value_scales : spec.scales;
    slot_bytes = std::max(slot_bytes, facts.chunk * facts.columns * size_of(spec.dtype));
    statistics = std::max(statistics, facts.statistics);
    results = std::max(results,
                       facts.columns * ((has_means ? 1 : 0) + (scales == QuantizedScales::channel ? 1 : 0)));
    if (scales == QuantizedScales::block)
      blocks = std::max(blocks, facts.chunk * (scale_block_rows + 1) / scale_block_rows);
  }
  return resident_layout(slot_bytes, statistics, results, blocks);
}

Program resident_quantize_program(const QuantizeSpec& spec) {
  const ResidentLayout layout = resident_layout_of(spec);
  Program program;
  program.threads = resident_block_threads;
  program.blocks_per_sm = 1;
  program.name = fmt::format("quantize_qkv_resident_{}_{}_d{}{}", to_string(spec.dtype),
                             to_string(spec.out_dtype), spec.head_dim, spec.rotate ? "_rotated" : "");
  program.facts = {{"spec", "quantize_qkv " + summary_of(spec) + ", rows are resident"}};
  program.smem_bytes = layout.bytes;
  const std::string assertions =
      tensor_assertions(spec, true) + fmt::format(
                                          "static_assert(ResidentPlan<Config>::layout.depth == {} && "
                                          "ResidentPlan<Config>::layout.bytes == {},\n"
                                          "              \"host and device disagree on shared memory\");\n",
                                          layout.depth, layout.bytes);
  program.source = source_of(
      spec, "quantize_resident/kernel.cuh",
      kernel_text(program, "ResidentParams", sizeof(ResidentParams), "quantize_resident", assertions), true);
  return program;
}

}  // namespace jit
