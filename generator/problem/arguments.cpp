#include "generator/problem/arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "generator/functors/text_meaning.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/dropout_arguments.h"
#include "generator/problem/tma_operands.h"
#include "generator/tensors/dims.h"
#include "generator/tensors/latent_rows.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr std::int64_t max_count = std::numeric_limits<std::int32_t>::max() - 65535;
constexpr std::int64_t max_heads = std::numeric_limits<std::int32_t>::max();  // blocks of a grid along x

static_assert(NamedTensors::capacity == max_functor_tensors);

// Names every member, so that a new tensor does not compile here until it has a row in the table.
auto members_of(const AttentionArguments& arguments) {
  const auto& [q, k, v, o, lse, tensors, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, cache_leftpad,
               page_table, sinks, q_descale, k_descale, v_descale, k_block_scales, v_block_scales, v_mean,
               lse_shift, max_logit, row_max, o_raw, mean_score, o_descale, running_lse, dropout_p, rng_state,
               num_splits, zero_padding] = arguments;
  return std::tie(q, k, v, o, lse, tensors, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, cache_leftpad,
                  page_table, sinks, q_descale, k_descale, v_descale, k_block_scales, v_block_scales, v_mean,
                  lse_shift, max_logit, row_max, o_raw, mean_score, o_descale, running_lse, dropout_p,
                  rng_state, num_splits, zero_padding);
}
// The other four: functors' tensors, dropout_p, num_splits and zero_padding.
static_assert(argument_table.size() + 4 == std::tuple_size_v<decltype(members_of(AttentionArguments()))>);

// Checks that rows along the last dimension have this alignment in bytes.
void check_row_starts(std::string_view name, const TensorView& tensor, int alignment) {
  bool is_fine = reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<unsigned>(alignment) == 0;
  for (int i = 0; i + 1 < tensor.rank; ++i)
    is_fine &= tensor.shape[i] <= 1 || tensor.strides[i] * size_of(tensor.dtype) % alignment == 0;
  if (!is_fine)
    refuse(name, fmt::format("has rows that do not begin at multiples of {} bytes: it starts at {}, {}",
                             alignment, tensor.data, tensor.to_string()));
}

// Requires: check_rank passes.
void check_argument(const ArgumentRule& rule, const TensorView& tensor, const Extents& sizes) {
  const ArgumentRow& row = *rule.row;
  check_dtype(row.name, tensor, rule.dtype);
  const int missing = rule.dims.count() - tensor.rank;
  for (int i = 0; i < tensor.rank; ++i) {
    const Dim& dim = rule.dims[i + missing];
    if (dim.may_broadcast && tensor.shape[i] == 1) continue;
    check_size(row.name, tensor, i, dim.extent->dimension, sizes.*dim.extent->size);
  }
  check_pointer(row.name, tensor, rule.alignment);
  if (row.has_aligned_rows) check_rows(row.name, tensor, rule.alignment);
  if (row.has_word_rows && tensor.shape[tensor.rank - 1] % 4 == 0) check_row_starts(row.name, tensor, 4);
  const bool has_stride = tensor.rank > 0 && rule.dims[rule.dims.count() - 1].extent->stride != nullptr;
  if (row.has_dense_last || (!row.has_aligned_rows && !has_stride)) check_dense_last(row.name, tensor);
}

// Checks one size of a functor's tensor.
void check_functor_size(std::string_view name, const TensorView& tensor, int at, const Dim& dim,
                        const Extents& sizes) {
  const std::int64_t size = sizes.*dim.extent->size;
  if (dim.may_be_one_more && tensor.shape[at] == size + 1) return;
  const auto check = dim.may_be_more ? check_size_at_least : check_size;
  check(name, tensor, at, dim.extent->name, size);
}

// Whether functors see the lengths of q and k.
bool has_own_lengths(const AttentionSpec& spec) { return is_dense(spec) && !has_positions(spec); }

// Whether the tensor has a row per row of varlen k, which kernels locate by cu_seqlens_k.
bool has_row_for_each_key(const AttentionSpec& spec, const FunctorTensorRow& row) {
  return row.has_row_for_each_key && spec.sequences_kv == SequenceKind::varlen && !has_positions(spec);
}

const Dims& dims_of(const FunctorTensorRow& row, const AttentionSpec& spec) {
  if (row.has_row_for_each_key) return has_row_for_each_key(spec, row) ? *row.varlen_dims : row.dims;
  if (has_varlen_q(spec) && row.varlen_dims) return *row.varlen_dims;
  return !has_own_lengths(spec) && row.varied_dims ? *row.varied_dims : row.dims;
}

// The required sizes of a built-in functor's tensor; lengths are at least one row, if any, when they are on
// the device.
Extents sizes_of(const FunctorTensorUse& use, const AttentionSpec& spec, Extents sizes) {
  if (use.row->sizes == nullptr) return sizes;
  if (!has_own_lengths(spec) && use.row->varied_dims) {
    sizes.seqlen_q = std::min<std::int64_t>(1, sizes.seqlen_q);
    sizes.seqlen_kv = std::min<std::int64_t>(1, sizes.seqlen_kv);
  }
  return use.row->sizes(sizes, use.arguments);
}

// Whether there are any scores for functors.
bool has_scores(const Extents& sizes) {
  return sizes.batch > 0 && sizes.heads_q > 0 && sizes.seqlen_q > 0 && sizes.seqlen_kv > 0;
}

// Checks an output functor's input, and sets its strides of batch entry, row and head.
void place_output_tensor(const AttentionSpec& spec, const FunctorTensorUse& use, const TensorView& tensor,
                         const Extents& sizes, FunctorTensor& result) {
  const std::string& name = use.tensor.name;
  const bool is_element = use.tensor.access == TensorAccess::as_o;
  const Dims dims = dims_of_output_tensor(spec, use.tensor.access);
  check_rank(name, tensor, dims);
  for (int i = 0; i < tensor.rank; ++i) {
    if (dims[i].may_broadcast && tensor.shape[i] == 1) continue;
    check_functor_size(name, tensor, i, dims[i], sizes);
  }
  check_sizes_and_strides(name, tensor);
  if (is_element) {
    check_dense_last(name, tensor);
    check_row_starts(name, tensor, std::max(spec.alignment, size_of(use.tensor.dtype)));
  }
  const TensorStrides strides = strides_of(dims, tensor);
  result.strides[0] = strides.batch;
  result.strides[1] = strides.seq;
  result.strides[2] = strides.head;
}

FunctorTensor check_functor_tensor(const AttentionSpec& spec, const FunctorTensorUse& use,
                                   const TensorView& tensor, const Extents& sizes) {
  const std::string& name = use.tensor.name;
  if (tensor.rank < 1 || tensor.rank > max_rank)
    refuse(name, fmt::format("has {} dimensions; it must have 1 to {}", tensor.rank, max_rank));
  check_dtype(name, tensor, use.tensor.dtype);
  const auto size_of_dimension = [&](int i) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    return i < 0 ? 1 : static_cast<int>(std::clamp<std::int64_t>(tensor.shape[i], 0, most));
  };
  FunctorTensor result{.data = tensor.data,
                       .strides = {0, 0, 0},
                       .last_size = size_of_dimension(tensor.rank - 1),
                       .rows = size_of_dimension(tensor.rank - 2)};
  if (use.tensor.access != TensorAccess::pointer) {
    place_output_tensor(spec, use, tensor, sizes, result);
  } else if (use.row != nullptr) {
    const Dims& dims = dims_of(*use.row, spec);
    const Extents own = sizes_of(use, spec, sizes);
    check_rank(name, tensor, dims);
    const int missing = dims.count() - tensor.rank;
    const int first = use.row->dims.count() - dims.count();
    for (int i = missing; i < dims.count(); ++i) {
      const int at = i - missing;
      if (dims[i].may_broadcast && tensor.shape[at] == 1) continue;
      check_functor_size(name, tensor, at, dims[i], own);
      if (i + 1 < dims.count()) result.strides[first + i] = tensor.strides[at];
    }
    check_dense_last(name, tensor);
    check_row_starts(name, tensor, use.row->alignment);
  } else {
    check_sizes_and_strides(name, tensor);
  }
  if (use.is_dense) check_dense(name, tensor);
  if (use.is_dense && !has_elements(tensor) && has_scores(sizes))
    refuse(name,
           fmt::format("has no element, and a text reads it for each score: {}; give one element or more",
                       tensor.to_string()));
  check_pointer(name, tensor, size_of(use.tensor.dtype));
  return result;
}

// Sets the sizes of stored rows of k and v, and of their block scales.
void set_row_sizes(const AttentionSpec& spec, Extents& sizes) {
  sizes.k_row = stored_columns(spec, spec.head_dim);
  sizes.v_row = stored_columns(spec, spec.value_head_dim());
  if (const int columns = scale_columns(spec); columns != 0) {
    sizes.k_blocks = spec.head_dim / columns;
    sizes.v_blocks = spec.value_head_dim() / columns;
  }
}

// The sizes of a problem, from q, k and the arrays of sequences. Requires: ranks are checked.
Extents sizes_of(const AttentionSpec& spec, const AttentionArguments& arguments) {
  const TensorView &q = arguments.q, &k = arguments.k;
  Extents sizes{.heads_q = q.shape[q.rank - 2],
                .heads_kv = k.shape[k.rank - 2],
                .head_dim = spec.head_dim,
                .head_dim_v = spec.value_head_dim(),
                .page_size = spec.page_size};
  if (has_varlen_q(spec)) {
    sizes.boundaries = arguments.cu_seqlens_q.shape[0];
    if (sizes.boundaries < 1) refuse("cu_seqlens_q", "has no element; it must have batch + 1");
    sizes.batch = sizes.boundaries - 1;
    sizes.total_q = sizes.seqlen_q = q.shape[0];
  } else {
    sizes.batch = q.shape[0];
    sizes.boundaries = sizes.batch + 1;
    sizes.seqlen_q = q.shape[1];
    sizes.words = words_of(sizes.seqlen_q);
  }
  switch (spec.sequences_kv) {
    case SequenceKind::dense:
    case SequenceKind::padded:
      sizes.seqlen_kv = k.shape[1];
      break;
    case SequenceKind::varlen:
      sizes.total_k = sizes.seqlen_kv = k.shape[0];
      break;
    case SequenceKind::paged:
      sizes.pages = k.shape[0];
      sizes.max_pages = arguments.page_table.shape[1];
      if (sizes.max_pages > max_seqlen / spec.page_size) {
        refuse("page_table",
               fmt::format("has room for {} pages of {} rows in a sequence; at most {} rows fit",
                           sizes.max_pages, spec.page_size, max_seqlen));
      }
      sizes.seqlen_kv = sizes.max_pages * spec.page_size;
  }
  set_row_sizes(spec, sizes);
  sizes.blocks_q = scale_blocks_of(sizes.seqlen_q);
  sizes.blocks_kv = scale_blocks_of(has_pages(spec) ? spec.page_size : sizes.seqlen_kv);
  sizes.list_rows = (sizes.total_q + spec.list_queries - 1) / spec.list_queries;
  return sizes;
}

void check_sizes(const AttentionSpec& spec, const AttentionArguments& arguments, const Extents& sizes) {
  if (sizes.heads_q % spec.gqa_ratio != 0 || sizes.heads_q / spec.gqa_ratio != sizes.heads_kv) {
    refuse("k", fmt::format("has {} heads and q has {}; q must have spec.gqa_ratio = {} times as many",
                            sizes.heads_kv, sizes.heads_q, spec.gqa_ratio));
  }
  if (spec.seqlen_q != 0) check_size("q", arguments.q, 1, "seqlen", spec.seqlen_q);
  if (spec.seqlen_kv != 0) check_size("k", arguments.k, 1, "seqlen", spec.seqlen_kv);
  if (sizes.seqlen_q > max_seqlen)
    refuse("q", fmt::format("has seqlen {}; at most {} fit", sizes.seqlen_q, max_seqlen));
  if (sizes.seqlen_kv > max_seqlen)
    refuse("k", fmt::format("has seqlen {}; at most {} fit", sizes.seqlen_kv, max_seqlen));
  if (sizes.batch > max_count)
    refuse("q", fmt::format("has batch {}; at most {} fit", sizes.batch, max_count));
  if (sizes.heads_q > max_heads)
    refuse("q", fmt::format("has {} heads; at most {} fit", sizes.heads_q, max_heads));
  if (sizes.pages > max_count)
    refuse("k", fmt::format("has {} pages; at most {} fit", sizes.pages, max_count));
  if (arguments.num_splits < 0)
    refuse("num_splits", fmt::format("is {}; it must be 0, for any number, or more", arguments.num_splits));
}

// Checks latents, which have one head, and sets their row stride: pages of latent_584 hold scales after all
// rows.
void place_latents(const AttentionSpec& spec, const TensorView& k, TensorStrides& strides) {
  const DType dtype = spec.key_dtype();
  if (const std::int64_t heads = k.shape[k.rank - 2]; heads != 1)
    refuse("k", fmt::format("has {} heads; rows of {} are of one", heads, to_string(dtype)));
  check_latent_rows(dtype, "k", k);
  if (dtype == DType::latent_584) strides.seq = latent_row_in_page;
}

// Checks each tensor, also against the spec and other sizes. Sets pointers and strides.
Extents check_tensors(const AttentionSpec& spec, const ArgumentRules& rules,
                      const AttentionArguments& arguments, bool with_outputs, AttentionParams& params) {
  check_dropout_rate(spec, arguments.dropout_p);  // before errors about tensors that only dropout needs
  for (const ArgumentRule& rule : rules) {
    if (rule.row->is_output && !with_outputs) continue;
    const TensorView& tensor = arguments.*rule.row->view;
    if (tensor.is_present() && rule.presence == Presence::none)
      refuse(rule.row->name, fmt::format("was given, but the spec has no {}", rule.row->needs));
    if (tensor.is_present() || rule.presence == Presence::required)
      check_rank(rule.row->name, tensor, rule.dims);
  }
  const Extents sizes = sizes_of(spec, arguments);
  check_sizes(spec, arguments, sizes);
  for (const ArgumentRule& rule : rules) {
    const TensorView& tensor = arguments.*rule.row->view;
    if (!tensor.is_present() || (rule.row->is_output && !with_outputs)) continue;
    check_argument(rule, tensor, sizes);
    rule.row->set(params, tensor.data, strides_of(rule.dims, tensor));
  }
  if (facts(spec.key_dtype()).row_bytes != 0) place_latents(spec, arguments.k, params.k_strides);
  if (spec.values_in_keys) {
    params.v = params.k;
    params.v_strides = params.k_strides;
  }
  return sizes;
}

// Checks that outputs overlap neither other tensors nor themselves.
void check_outputs(const AttentionSpec& spec, const AttentionArguments& arguments) {
  for (const ArgumentRow& output : argument_table) {
    const TensorView& written = arguments.*output.view;
    if (!output.is_output || output.is_read(spec) || !written.is_present()) continue;
    check_no_self_overlap(output.name, written);
    const ByteRange range = byte_range(written);
    // Only earlier rows: an error names the second one of two outputs.
    for (const ArgumentRow& other : argument_table) {
      if (&other == &output) break;
      const TensorView& tensor = arguments.*other.view;
      if (range.meets(byte_range(tensor))) check_no_overlap(output.name, written, other.name, tensor);
    }
    for (const NamedTensor& tensor : arguments.tensors)
      check_no_overlap(output.name, written, tensor.name, tensor.tensor);
  }
}

const TensorView& given_tensor(const FunctorTensorUse& use, const NamedTensors& tensors) {
  const NamedTensor* given = nullptr;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == use.tensor.name) given = &tensor;
  }
  if (given == nullptr) {
    refuse(use.tensor.name, fmt::format("is read by {} but was not given; add it to `tensors` as {}",
                                        is_of_positions(use.tensor.name) ? "positions"
                                        : is_of_lists(use.tensor.name)   ? "lists of keys"
                                        : use.is_of_output               ? "the output"
                                                                         : "the mask or score",
                                        kind_text(use.tensor)));
  }
  return given->tensor;
}

// The number of queries or keys of whole sequences, by the first tensor with a row or column for each;
// nothing if no tensor has. `own` is the call's number.
std::optional<std::int64_t> whole_length(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& uses,
                                         const NamedTensors& tensors, std::int64_t Extents::*length,
                                         std::int64_t own) {
  for (const FunctorTensorUse& use : uses) {
    if (use.row == nullptr) continue;
    const TensorView& tensor = given_tensor(use, tensors);
    const Dims& dims = dims_of(*use.row, spec);
    for (int i = 0; i < tensor.rank; ++i) {
      const int at = i + dims.count() - tensor.rank;
      if (at < 0 || dims[at].extent->size != length || (dims[at].may_broadcast && tensor.shape[i] == 1))
        continue;
      if (tensor.shape[i] == 0 && own > 0)
        refuse(use.tensor.name,
               fmt::format("has nothing along {}, and the call has {} rows of a whole sequence: {}",
                           dims[at].extent->name, own, tensor.to_string()));
      return tensor.shape[i];
    }
  }
  return {};
}

// Converts rows of q with a list to batch entries, whose keys are the list's. Rows outside of sequences have
// empty lists, so that all rows are written. Returns whether there are rows.
bool set_lists(const AttentionSpec& spec, const Extents& sizes, AttentionParams& params) {
  FunctorTensor& lists = params.tensors[0];
  if (sizes.total_q > max_count)
    refuse("q", fmt::format("has {} rows; at most {} fit with list_block", sizes.total_q, max_count));
  if (lists.last_size > max_seqlen / spec.list_block) {
    refuse("key_lists", fmt::format("has room for {} entries of {} keys; at most {} keys fit",
                                    lists.last_size, spec.list_block, max_seqlen));
  }
  if (sizes.pages * sizes.page_size > std::numeric_limits<std::int32_t>::max()) {
    refuse("k", fmt::format("has {} pages of {} rows; entries of lists are of 32 bits", sizes.pages,
                            sizes.page_size));
  }
  lists.rows = params.batch;
  params.batch = static_cast<int>(sizes.list_rows);
  params.seqlen_q = spec.list_queries;
  params.seqlen_kv = lists.last_size * spec.list_block;
  params.sequences.zero_padding = 0;
  return sizes.total_q > 0 && sizes.heads_q > 0;
}

// Rejects surplus tensors. Requires: all read ones are given.
void check_for_strangers(const std::vector<FunctorTensorUse>& uses, const NamedTensors& tensors) {
  if (uses.size() == static_cast<std::size_t>(tensors.end() - tensors.begin())) return;
  const bool has_output =
      std::any_of(uses.begin(), uses.end(), [](const FunctorTensorUse& use) { return use.is_of_output; });
  for (const NamedTensor& tensor : tensors) {
    const auto is_it = [&](const FunctorTensorUse& use) { return use.tensor.name == tensor.name; };
    if (std::none_of(uses.begin(), uses.end(), is_it))
      refuse(tensor.name,
             is_of_positions(tensor.name) ? "was given, but the spec has neither q_positions nor k_positions"
             : is_of_lists(tensor.name)   ? "was given, but the spec has no list_block"
             : has_output ? "was given, but neither mask nor score nor output reads a tensor of that name"
                          : "was given, but neither mask nor score reads a tensor of that name");
  }
  refuse("tensors", "the same name was given twice");
}

}  // namespace

// Uses stride 0 for dimensions of one element, which may have any stride.
TensorStrides strides_of(const Dims& dims, const TensorView& tensor) {
  TensorStrides strides{};
  const int missing = dims.count() - tensor.rank;
  for (int i = 0; i < tensor.rank; ++i) {
    const auto along = dims[i + missing].extent->stride;
    if (along != nullptr) strides.*along = tensor.shape[i] > 1 ? tensor.strides[i] : 0;
  }
  return strides;
}

void check_inputs(const AttentionSpec& spec, const AttentionArguments& arguments) {
  AttentionParams ignored;
  check_tensors(spec, ArgumentRules(spec), arguments, false, ignored);
}

void fill_functor_tensors(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& uses,
                          const NamedTensors& tensors, const Extents& sizes, const int* cu_seqlens_k,
                          FunctorTensor (&slots)[max_functor_tensors]) {
  Extents whole = sizes;
  if (has_lists(spec)) {  // all have the lists' capacity
    const TensorView& lists = given_tensor(uses.front(), tensors);
    whole.entries = std::max<std::int64_t>(1, lists.rank > 0 ? lists.shape[lists.rank - 1] : 0);
  }
  std::optional<std::int64_t> queries, keys;
  if (has_positions(spec)) {
    queries = whole_length(spec, uses, tensors, &Extents::seqlen_q, sizes.seqlen_q);
    keys = whole_length(spec, uses, tensors, &Extents::seqlen_kv, sizes.seqlen_kv);
    whole.seqlen_q = queries.value_or(sizes.seqlen_q);
    whole.seqlen_kv = keys.value_or(sizes.seqlen_kv);
  }
  for (std::size_t slot = 0; slot < uses.size(); ++slot) {
    slots[slot] = check_functor_tensor(spec, uses[slot], given_tensor(uses[slot], tensors), whole);
    if (uses[slot].row != nullptr && has_row_for_each_key(spec, *uses[slot].row))
      slots[slot].strides[1] = reinterpret_cast<std::intptr_t>(cu_seqlens_k);
    if (!has_positions(spec) || uses[slot].tensor.name != "global_seqlens") continue;
    // Lengths are clamped to the sizes of tensors.
    slots[slot].last_size = static_cast<int>(std::min(queries.value_or(max_seqlen), max_seqlen));
    slots[slot].rows = static_cast<int>(std::min(keys.value_or(max_seqlen), max_seqlen));
  }
  check_for_strangers(uses, tensors);
}

bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                 const AttentionArguments& arguments, AttentionParams& params) {
  return fill_params(spec, ArgumentRules(spec), tensors, arguments, params);
}

bool fill_params(const AttentionSpec& spec, const ArgumentRules& rules,
                 const std::vector<FunctorTensorUse>& tensors, const AttentionArguments& arguments,
                 AttentionParams& params) {
  const bool has_work = fill_params_of_reader(spec, rules, tensors, arguments, params);
  check_outputs(spec, arguments);
  return has_work;
}

bool fill_params_of_reader(const AttentionSpec& spec, const ArgumentRules& rules,
                           const std::vector<FunctorTensorUse>& tensors, const AttentionArguments& arguments,
                           AttentionParams& params) {
  params = {};
  const Extents sizes = check_tensors(spec, rules, arguments, true, params);
  fill_functor_tensors(spec, tensors, arguments.tensors, sizes, params.sequences.cu_seqlens_k,
                       params.tensors);

  params.batch = static_cast<int>(sizes.batch);
  params.heads_q = static_cast<int>(sizes.heads_q);
  params.heads_kv = static_cast<int>(sizes.heads_kv);
  params.seqlen_q = static_cast<int>(sizes.seqlen_q);
  params.seqlen_kv = static_cast<int>(sizes.seqlen_kv);
  params.softmax_scale = spec.scale();
  set_dropout_rate(params.dropout, arguments.dropout_p);
  SequenceParams& sequences = params.sequences;
  sequences.total_q = static_cast<int>(sizes.total_q);
  sequences.total_k = static_cast<int>(sizes.total_k);
  sequences.pages = static_cast<int>(sizes.pages);
  sequences.max_pages = static_cast<int>(sizes.max_pages);
  sequences.num_splits = arguments.num_splits;
  sequences.zero_padding = arguments.zero_padding ? 1 : 0;
  if (has_lists(spec)) return set_lists(spec, sizes, params);
  // Without sequences, all rows of varlen queries are padding.
  const bool has_rows = sizes.batch > 0 || (arguments.zero_padding && has_varlen_q(spec));
  return has_rows && sizes.heads_q > 0 && sizes.seqlen_q > 0;
}

AttentionArguments placeholder_arguments(const AttentionSpec& spec, const Extents& sizes) {
  AttentionArguments arguments;
  std::uintptr_t slot = 0;
  for (const ArgumentRow& row : argument_table) {
    ++slot;
    if (row.presence(spec) != Presence::required) continue;
    const Dims dims = row.dims(spec);
    TensorView view{
        .data = reinterpret_cast<void*>(slot << 56), .dtype = row.dtype(spec), .rank = dims.count()};
    std::int64_t stride = 1;
    for (int i = view.rank - 1; i >= 0; --i) {
      view.shape[i] = sizes.*dims[i].extent->size;
      view.strides[i] = stride;
      stride *= view.shape[i];
    }
    if (view.dtype == DType::latent_584)
      view.strides[0] = (view.strides[0] + latent_row_in_page - 1) / latent_row_in_page * latent_row_in_page;
    arguments.*row.view = view;
  }
  return arguments;
}

Extents extents_of(const AttentionSpec& spec, const ProblemShape& shape) {
  Extents sizes{.batch = shape.batch,
                .seqlen_q = shape.seqlen_q,
                .seqlen_kv = shape.seqlen_kv,
                .heads_q = shape.heads_q,
                .heads_kv = shape.heads_q / spec.gqa_ratio,
                .head_dim = spec.head_dim,
                .head_dim_v = spec.value_head_dim(),
                .boundaries = shape.batch + 1,
                .words = words_of(shape.seqlen_q)};
  if (has_varlen_q(spec)) sizes.total_q = sizes.seqlen_q = shape.batch * shape.seqlen_q;
  if (has_varlen_kv(spec)) sizes.total_k = sizes.seqlen_kv = shape.batch * shape.seqlen_kv;
  if (has_pages(spec)) {
    sizes.page_size = spec.page_size;
    sizes.max_pages = (shape.seqlen_kv + spec.page_size - 1) / spec.page_size;
    sizes.pages = shape.batch * sizes.max_pages;
    sizes.seqlen_kv = sizes.max_pages * spec.page_size;
  }
  set_row_sizes(spec, sizes);
  sizes.blocks_q = scale_blocks_of(sizes.seqlen_q);
  sizes.blocks_kv = scale_blocks_of(has_pages(spec) ? spec.page_size : sizes.seqlen_kv);
  return sizes;
}

std::string_view device_length_argument(const AttentionParams& params) {
  const SequenceParams& sequences = params.sequences;
  for (const auto& [name, array] :
       {std::pair<std::string_view, const int*>{"cu_seqlens_q", sequences.cu_seqlens_q},
        {"cu_seqlens_k", sequences.cu_seqlens_k},
        {"page_table", sequences.page_table},
        {"seqused_q", sequences.seqused_q},
        {"seqused_k", sequences.seqused_k},
        {"cache_leftpad", sequences.cache_leftpad}}) {
    if (array != nullptr) return name;
  }
  return {};
}

ProblemShape shape_of(const AttentionParams& params) {
  const SequenceParams& sequences = params.sequences;
  const auto average = [&](int total) {
    return (std::int64_t{total} + params.batch - 1) / std::max(1, params.batch);
  };
  return {
      .batch = params.batch,
      .heads_q = params.heads_q,
      .seqlen_q = sequences.cu_seqlens_q != nullptr ? average(sequences.total_q) : params.seqlen_q,
      .seqlen_kv = sequences.cu_seqlens_k != nullptr ? average(sequences.total_k) : params.seqlen_kv,
      .tma = can_map(params),
      .has_device_lengths = !device_length_argument(params).empty(),
      .has_many_heads = params.heads_kv > max_grid_yz,
      .surplus_q = sequences.cu_seqlens_q != nullptr ? surplus_queries(params.batch, sequences.total_q) : 0};
}

}  // namespace jit
