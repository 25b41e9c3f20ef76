#include "run_arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "functor_file.h"
#include "number_options.h"
#include "operand_files.h"

namespace jit::tool {
namespace {

constexpr std::int64_t largest_size = std::numeric_limits<std::int32_t>::max();

// Clamps sizes to a value that validate() refuses.
int small(std::int64_t size) { return static_cast<int>(std::min<std::int64_t>(size, 1 << 20)); }

Array int32_array(const std::vector<std::int32_t>& values) {
  Array array = zeros(DType::int32, {static_cast<std::int64_t>(values.size())});
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

// 0, then the end of each sequence.
Array boundaries(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> ends(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), ends.begin() + 1);
  return int32_array(ends);
}

void check_lengths(const char* option, const std::vector<std::int32_t>& lengths, std::int64_t room,
                   const std::string& rows) {
  for (const std::int32_t length : lengths) {
    if (length > room)
      throw BadInput(fmt::format("{}: a sequence of {} is longer than {}, {}", option, length, rows, room));
  }
}

void check_sum(const char* option, const std::vector<std::int32_t>& lengths, const Array& array,
               const std::string& path) {
  const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const std::int64_t most = std::min(array.shape[0], largest_size);
  if (lengths.empty() || sum > most) {
    throw BadInput(fmt::format(
        "{} is {}, rows of sequences one behind another: {} must say how many each has, "
        "{} at most together{}",
        path, describe(array), option, most, lengths.empty() ? "" : fmt::format("; these are {}", sum)));
  }
}

void fill_queries(const RunOptions& options, RunProblem& problem) {
  const Array& q = problem.arrays.q;
  if (is_varlen(q)) {
    check_sum("--seqlens-q", options.seqlens_q, q, options.q);
    problem.spec.sequences_q = SequenceKind::varlen;
    problem.arrays.cu_seqlens_q = boundaries(options.seqlens_q);
  } else if (!options.seqlens_q.empty()) {
    check_lengths("--seqlens-q", options.seqlens_q, q.shape[1], options.q + " has room for");
    problem.arrays.seqused_q = int32_array(options.seqlens_q);
  }
}

void fill_keys(const RunOptions& options, RunProblem& problem) {
  const Array& k = problem.arrays.k;
  if (!options.page_table.empty()) {
    if (is_varlen(k)) {
      throw BadInput(
          fmt::format("{} is {}; with --page-table its shape must be (pages, page_size, heads, head_dim)",
                      options.k, describe(k)));
    }
    if (options.seqlens_kv.empty())
      throw BadInput("--page-table needs --seqlens-kv, the keys of each sequence");
    problem.spec.sequences_kv = SequenceKind::paged;
    problem.spec.page_size = small(k.shape[1]);
    Array& table = problem.arrays.page_table =
        read_as(options.page_table, DType::int32, 2, "(batch, max_pages)");
    check_lengths("--seqlens-kv", options.seqlens_kv,
                  std::min(table.shape[1], largest_size) * problem.spec.page_size,
                  options.page_table + " has pages for");
    problem.arrays.seqused_k = int32_array(options.seqlens_kv);
  } else if (is_varlen(k)) {
    check_sum("--seqlens-kv", options.seqlens_kv, k, options.k);
    problem.spec.sequences_kv = SequenceKind::varlen;
    problem.arrays.cu_seqlens_k = boundaries(options.seqlens_kv);
  } else if (!options.seqlens_kv.empty()) {
    check_lengths("--seqlens-kv", options.seqlens_kv, k.shape[1], options.k + " has room for");
    problem.arrays.seqused_k = int32_array(options.seqlens_kv);
  }
  if (options.leftpad.empty()) return;
  for (std::size_t i = 0; i < options.leftpad.size(); ++i) {
    const std::int64_t keys = i < options.seqlens_kv.size() ? options.seqlens_kv[i] : k.shape[1];
    const bool has_length = i < options.seqlens_kv.size() || options.seqlens_kv.empty();
    if (has_length && options.leftpad[i] > keys)
      throw BadInput(
          fmt::format("--cache-leftpad: {} rows before the first key of sequence {}, which has {} "
                      "rows in all; give at most so many",
                      options.leftpad[i], i, keys));
  }
  if (options.gradients.backward)
    throw BadInput("--backward has no gradients of keys behind --cache-leftpad; leave it out");
  problem.arrays.cache_leftpad = int32_array(options.leftpad);
}

BlockMapSizes block_map_sizes(const RunOptions& options, const RunProblem& problem) {
  const auto most = [](const std::vector<std::int32_t>& lengths) {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  };
  const Array &q = problem.arrays.q, &k = problem.arrays.k, &pages = problem.arrays.page_table;
  const bool is_paged = !pages.shape.empty();
  return {
      .batch = is_varlen(q) ? static_cast<std::int64_t>(options.seqlens_q.size()) : q.shape[0],
      .heads_q = q.shape.end()[-2],
      .seqlen_q = is_varlen(q) ? most(options.seqlens_q) : q.shape[1],
      .seqlen_kv = is_varlen(k) ? most(options.seqlens_kv) : k.shape[1] * (is_paged ? pages.shape[1] : 1)};
}

void fill_outputs(RunProblem& problem) {
  RunArrays& arrays = problem.arrays;
  std::vector<std::int64_t> shape = arrays.q.shape;
  shape.back() = problem.spec.value_head_dim();
  arrays.o = zeros(output_dtype(problem.spec), shape);
  arrays.lse =
      zeros(DType::fp32, is_varlen(arrays.q) ? std::vector<std::int64_t>{shape[1], shape[0]}
                                             : std::vector<std::int64_t>{shape[0], shape[2], shape[1]});
}

}  // namespace

void add_run_input_options(CLI::App& app, RunOptions& options) {
  app.add_option("--q", options.q, "Queries")->required();
  app.add_option("--k", options.k, "Keys; their number of heads divides that of queries")->required();
  CLI::Option* values = app.add_option("--v", options.v, "Values");
  add_whole_option(
      app, "--head-dim-v", options.head_dim_v,
      "In place of --v: values are the first columns of --k, this many, as in the latent cache of MLA",
      {1, 1 << 20})
      ->excludes(values);
  app.add_option("--dtype", options.dtype,
                 "Type of the computation: fp16 (default for a --q of float16), bf16 (default for float32), "
                 "or, for bytes and with --quantize, fp8_e4m3 (default) or fp8_e5m2");
  app.add_option("--tensor", options.tensors, "name=file.npy: a tensor that mask or score reads")
      ->allow_extra_args(false);
  add_kv_options(app, options.fp8);
  app.add_flag("--interpolated-exponentials", options.fp8.interpolated_exponentials,
               "With FP8: interpolate half of the probabilities, which is faster and less exact");
  add_fp8_options(app, options.scales);
  constexpr WholeRange lengths{0, largest_size};
  const auto add_lengths = [&](const char* name, std::vector<std::int32_t>& values, const char* text) {
    add_whole_option(app, name, values, text, lengths)->delimiter(',')->allow_extra_args(false);
  };
  add_lengths("--seqlens-q", options.seqlens_q,
              "Queries of each sequence, such as 5,1,900; required where --q is (rows of all sequences, "
              "heads, head_dim)");
  add_lengths("--seqlens-kv", options.seqlens_kv,
              "Keys of each sequence, left padding included; required where --k is (rows of all sequences, "
              "heads, head_dim) or pages");
  add_lengths("--cache-leftpad", options.leftpad, "Rows before the first key of each sequence");
  app.add_option("--page-table", options.page_table,
                 "File of integers (batch, max_pages): the pages of each sequence; --k and --v are then "
                 "(pages, page_size, heads, head_dim)")
      ->check(must_not_be_empty);
  app.add_option("--sinks", options.sinks,
                 "File of sinks (heads): for each query head a score without a value")
      ->check(must_not_be_empty);
  add_whole_option(
      app, "--num-splits", options.num_splits,
      "Largest number of blocks that share the keys of a tile of queries; 0: chosen by the library", lengths)
      ->capture_default_str();
  add_whole_option(
      app, "--split-keys", options.split_keys,
      "Keys in a span: the bits of a sequence's result then do not depend on the batch; 0: they may", lengths)
      ->capture_default_str();
  app.add_flag("--checked", options.checked,
               "Report pages, lengths and boundaries that are out of range; otherwise they are ignored");
  CLI::Option* rate = add_real_option(app, "--dropout-p", options.dropout_p,
                                      "Rate at which probabilities are dropped, at least 0 and below 1");
  CLI::Option* state = add_whole_option(app, "--rng-state", options.rng_state,
                                        "Seed and offset of the random numbers of dropout, such as 42,0")
                           ->delimiter(',')
                           ->allow_extra_args(false)
                           ->expected(2);
  rate->needs(state);
  state->needs(rate);
  add_gradient_options(app, options.gradients);
  add_block_map_options(app, options.block_map);
  add_functor_options(app, options.functors);
}

std::vector<std::string> input_files(const RunOptions& options) {
  std::vector<std::string> inputs = input_files(options.functors);
  inputs.insert(inputs.end(), {options.q, options.k});
  for (const std::string* path : {&options.v, &options.page_table, &options.sinks})
    if (!path->empty()) inputs.push_back(*path);
  inputs.insert(inputs.end(), options.block_map.paths.begin(), options.block_map.paths.end());
  for (std::string& path : input_files(options.scales)) inputs.push_back(std::move(path));
  for (std::string& path : input_files(options.gradients)) inputs.push_back(std::move(path));
  for (const std::string& tensor : options.tensors)
    inputs.push_back(split_assignment("--tensor", tensor).second);
  return inputs;
}

namespace {

// Checks that no given option excludes --quantize.
void check_quantize(const RunOptions& options) {
  if (!options.page_table.empty())
    throw BadInput(
        "--quantize makes fp8 of rows as they lie, and those of --page-table are of a cache: it is "
        "filled with fp8 before; leave one of the two out");
  if (!options.leftpad.empty())
    throw BadInput("--quantize would count rows in front of a sequence; leave --cache-leftpad out");
  if (options.head_dim_v != 0)
    throw BadInput("--quantize wants values of their own: give --v in place of --head-dim-v");
  if (options.fp8.descale_per != ScaleKind::head || options.fp8.v_descale_per != ScaleKind::head)
    throw BadInput("--quantize says what there are scales for; leave --descale-per and --v-descale-per out");
  if (options.fp8.kv_dtype) throw BadInput("--quantize makes k and v of --dtype, too; leave --kv-dtype out");
}

// The alignment of rows of q, k and v with 8-bit elements.
int alignment_of(const AttentionSpec& spec) {
  return std::min(16, 1 << std::countr_zero(static_cast<unsigned>(spec.head_dim | spec.value_head_dim())));
}

// Reads files with elements of `spec.dtype`; `option` explains why they are bytes.
void read_operands(const RunOptions& options, const AttentionSpec& spec, RunArrays& arrays) {
  const bool are_made = options.scales.quantize.scales.has_value(),
             has_bytes = has_narrow_keys(spec) && !are_made;
  if (facts(spec.key_dtype()).kind == NumberKind::packed) {
    throw BadInput(
        fmt::format("--kv-dtype is {}, whose scales have no option here: give fp8_e4m3, fp8_e5m2 or int8",
                    to_string(spec.key_dtype())));
  }
  const std::optional<DType> bytes = has_bytes ? std::optional(spec.key_dtype()) : std::nullopt;
  const char* const option = has_fp8_queries(spec) ? "--dtype of fp8 and without --quantize" : "--kv-dtype";
  arrays.q = read_operand(options.q, has_fp8_queries(spec) ? bytes : std::nullopt, option);
  arrays.k = read_operand(options.k, bytes, option);
  if (spec.values_in_keys) return;
  if (options.v.empty())
    throw BadInput("--v is required, or --head-dim-v: how many leading columns of --k are the values");
  arrays.v = read_operand(options.v, bytes, option);
}

// Takes the dtype from a file of a type that attention computes in.
void choose_dtype(const RunOptions& options, const Array& q, AttentionSpec& spec) {
  if (q.dtype != DType::fp16) return;
  if (!options.dtype.empty() && spec.dtype != DType::fp16)
    throw BadInput(fmt::format("--dtype is {}, and {} is {}: leave --dtype out, or give float32",
                               options.dtype, options.q, describe(q)));
  spec.dtype = DType::fp16;
}

// The sequence kind for a quantizer: which rows belong together.
SequenceKind quantized_sequences(const RunArrays& arrays) {
  if (is_varlen(arrays.q)) return SequenceKind::varlen;
  const bool has_lengths = !arrays.seqused_q.shape.empty() || !arrays.seqused_k.shape.empty();
  return has_lengths ? SequenceKind::padded : SequenceKind::dense;
}

}  // namespace

RunProblem read_problem(const RunOptions& options) {
  RunProblem problem;
  problem.num_splits = options.num_splits;
  problem.dropout_p = options.dropout_p;
  problem.backward = options.gradients.backward;
  problem.deterministic = options.gradients.deterministic;
  problem.has_forward = options.gradients.has_forward();
  RunArrays& arrays = problem.arrays;
  AttentionSpec& spec = problem.spec;
  const bool quantizes = options.scales.quantize.scales.has_value();
  if (quantizes) check_quantize(options);
  spec = options.fp8;
  spec.dtype = !options.dtype.empty() ? parse_dtype(options.dtype)
               : quantizes            ? DType::fp8_e4m3
                                      : DType::bf16;
  validate(spec);  // what the files are to hold
  if (quantizes && !has_fp8_queries(spec))
    throw BadInput(
        fmt::format("--quantize makes fp8; --dtype is {}, and must be fp8_e4m3 or fp8_e5m2", options.dtype));
  if (problem.backward && has_narrow_keys(spec))
    throw BadInput("--backward has no gradients of fp8; leave it out");
  spec.values_in_keys = options.head_dim_v != 0;
  read_operands(options, spec, arrays);
  if (!quantizes) choose_dtype(options, arrays.q, spec);
  arrays.scales = read_scales(options.scales, spec);
  if (!options.sinks.empty()) arrays.sinks = read_as(options.sinks, DType::fp32, 1, "(heads)");
  if (!options.rng_state.empty()) {
    arrays.rng_state = zeros(DType::int64, {2});
    std::memcpy(arrays.rng_state.bytes.data(), options.rng_state.data(), arrays.rng_state.bytes.size());
  }
  const bool has_bytes = has_fp8_queries(spec) && !quantizes;
  problem.result_dtype = has_bytes ? DType::fp32 : arrays.q.dtype;
  if (has_fp8_queries(spec) && !spec.out_dtype) spec.out_dtype = problem.result_dtype;

  spec.head_dim = small(arrays.q.shape.back());
  spec.head_dim_v = spec.values_in_keys ? options.head_dim_v : small(arrays.v.shape.back());
  spec.sinks = !options.sinks.empty();
  spec.split_keys = options.split_keys;
  spec.checked = options.checked;
  spec.dropout = !options.rng_state.empty();
  fill_queries(options, problem);
  fill_keys(options, problem);
  const std::int64_t heads_q = arrays.q.shape.end()[-2], heads_kv = arrays.k.shape.end()[-2];
  if (heads_q == 0 || heads_kv == 0 || heads_q % heads_kv != 0 || heads_q / heads_kv > 1 << 20) {
    throw BadInput(fmt::format("{} has {} heads and {} has {}; the first must be a multiple of the second",
                               options.q, heads_q, options.k, heads_kv));
  }
  spec.gqa_ratio = static_cast<int>(heads_q / heads_kv);
  apply(options.functors, spec);
  if (has_narrow_keys(spec)) spec.alignment = alignment_of(spec);
  if (quantizes) {
    problem.quantizer = make_quantizer(options.scales, arrays.q, arrays.k, arrays.v, arrays.scales, spec);
    problem.quantizer->spec.sequences = quantized_sequences(arrays);
  }
  problem.block_map = read_block_map(options.block_map, block_map_sizes(options, problem), spec);
  validate(spec);

  for (const auto& [array, path] :
       {std::pair{&arrays.q, &options.q}, {&arrays.k, &options.k}, {&arrays.v, &options.v}}) {
    const bool is_stored = has_narrow_keys(spec) && array->dtype == spec.key_dtype();
    if (!array->shape.empty() && !is_stored) *array = convert(std::move(*array), spec.dtype, *path);
  }
  arrays.tensors = read_tensors(options.tensors, spec);
  if (problem.block_map) add_known_table(*problem.block_map, arrays.tensors);
  fill_outputs(problem);
  if (problem.backward) read_gradients(options.gradients, spec, arrays);
  return problem;
}

}  // namespace jit::tool
