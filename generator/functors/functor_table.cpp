#include "generator/functors/functor_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <jit/error.h>

#include "templates/base/bit_words.cuh"

namespace jit {
namespace {

constexpr FunctorParameter alignment{
    .name = "alignment", .kind = ParameterKind::alignment, .default_value = Alignment::bottom_right};

constexpr FunctorParameter window_side(std::string_view name,
                                       std::optional<FunctorArgument> default_value = {}) {
  return {.name = name,
          .kind = ParameterKind::whole,
          .default_value = default_value,
          .is_legal = [](const FunctorArgument& side) { return std::get<int>(side) >= -1; },
          .rule = "must be at least 0, or -1 for an open side"};
}

constexpr std::array causal_parameters = {alignment};
constexpr std::array window_parameters = {window_side("window_size_left"),
                                          window_side("window_size_right", 0), alignment};
constexpr std::array prefix_parameters = {
    FunctorParameter{.name = "length",
                     .kind = ParameterKind::whole,
                     .is_legal = [](const FunctorArgument& length) { return std::get<int>(length) >= 0; },
                     .rule = "must be at least 0"}};
constexpr std::array softcap_parameters = {
    FunctorParameter{.name = "cap",
                     .kind = ParameterKind::real,
                     .is_legal =
                         [](const FunctorArgument& cap) {
                           return std::get<float>(cap) >= 1e-30f && std::get<float>(cap) <= 1e30f;
                         },
                     .rule = "must be from 1e-30 to 1e30; leave the score out for no cap"}};
constexpr std::array bias_parameters = {FunctorParameter{.name = "dtype",
                                                         .kind = ParameterKind::dtype,
                                                         .default_value = DType::fp32,
                                                         .is_legal =
                                                             [](const FunctorArgument& dtype) {
                                                               return std::get<DType>(dtype) == DType::fp32 ||
                                                                      std::get<DType>(dtype) == DType::bf16 ||
                                                                      std::get<DType>(dtype) == DType::fp16;
                                                             },
                                                         .rule = "must be fp32, bf16 or fp16"}};

// Typically, every request is causal.
constexpr std::array per_request_tensors = {
    FunctorTensorRow{"is_causal", DType::int32, "batch", [](const Extents&, std::int64_t) { return 1.0; }}};

// Typically, a query sees every other token of the draft.
constexpr std::array draft_tree_tensors = {
    FunctorTensorRow{.name = "draft_tree",
                     .dtype = DType::int32,
                     .dims = "[batch?], seqlen_q, words+",
                     .typical = [](const Extents&, std::int64_t) { return double{0x55555555}; },
                     .varlen_dims = Dims("total_q, words+")}};

bool keeps_draft(const HostFunctor& f, const Place& at) {
  const std::int64_t own = at.k - (f.sizes.seqlen_kv - f.sizes.seqlen_q);
  if (own < 0) return true;
  if (words_of(f.sizes.seqlen_q) > f.tensors[0].shape.back()) return own <= at.q;
  const auto word = static_cast<std::int64_t>(f.tensors[0].at({at.b, at.q, own / 32}));
  return (word >> own % 32 & 1) != 0;
}

// Typically, half of the keys.
constexpr std::array prefix_tensors = {FunctorTensorRow{
    "prefix_lengths", DType::int32, "batch",
    [](const Extents& sizes, std::int64_t) { return static_cast<double>(sizes.seqlen_kv / 2); }}};

// Typically, eight documents of equal length.
double equal_document(std::int64_t position, std::int64_t length) {
  return static_cast<double>(position * 8 / length);
}
constexpr std::array document_tensors = {
    FunctorTensorRow{"document_ids_q", DType::int32, "batch?, seqlen_q",
                     [](const Extents& sizes, std::int64_t q) { return equal_document(q, sizes.seqlen_q); }},
    FunctorTensorRow{
        "document_ids_kv", DType::int32, "batch?, seqlen_kv",
        [](const Extents& sizes, std::int64_t k) { return equal_document(k, sizes.seqlen_kv); }}};

// Typically, a prompt of a third of the keys, and eight equally long answers.
double equal_subtree(const Extents& sizes, std::int64_t k) {
  constexpr std::int64_t answers = 8;
  const std::int64_t prompt = sizes.seqlen_kv / 3, rest = sizes.seqlen_kv - prompt;
  if (k < prompt) return static_cast<double>(sizes.seqlen_kv);
  return static_cast<double>(prompt + ((k - prompt) * answers / rest + 1) * rest / answers);
}
constexpr std::array tree_tensors = {FunctorTensorRow{.name = "tree_ends",
                                                      .dtype = DType::int32,
                                                      .dims = "batch?, seqlen_kv",
                                                      .typical = equal_subtree,
                                                      .varlen_dims = Dims("total_k"),
                                                      .has_row_for_each_key = true}};

constexpr FunctorParameter block_side(std::string_view name) {
  return {.name = name,
          .kind = ParameterKind::whole,
          .is_legal =
              [](const FunctorArgument& side) {
                const int size = std::get<int>(side);
                return size >= block_step && size <= most_in_block && size % block_step == 0;
              },
          .rule = "must be a multiple of 16 from 16 to 4096"};
}
constexpr std::array block_parameters = {block_side("block_q"), block_side("block_kv")};

Extents sizes_in_blocks(Extents sizes, const FunctorArguments& arguments) {
  const auto blocks = [&](std::int64_t length, std::size_t i) {
    const std::int64_t side = std::get<int>(arguments[i]);
    return (length + side - 1) / side;
  };
  sizes.block_rows = blocks(sizes.seqlen_q, 0);
  sizes.block_columns = blocks(sizes.seqlen_kv, 1);
  sizes.block_words = 2 * words_of(sizes.block_columns);
  sizes.score_words = score_words(std::get<int>(arguments[0]), std::get<int>(arguments[1]));
  return sizes;
}

// Typically, every other block, none of them full.
constexpr FunctorTensorRow block_table{
    .name = "block_mask",
    .dtype = DType::int32,
    .dims = "batch?, heads_q?, block_rows, block_words^",
    .typical = [](const Extents&, std::int64_t i) { return i % 2 == 0 ? double{0x55555555} : 0.0; },
    .sizes = sizes_in_blocks,
    .varied_dims = Dims("batch?, heads_q?, block_rows+, block_words+")};
constexpr std::array block_tensors = {block_table};

// Typically, all blocks use the first block of scores, of which every other one is kept.
constexpr std::array block_scores_tensors = {
    block_table,
    FunctorTensorRow{.name = "block_places",
                     .dtype = DType::int32,
                     .dims = "batch?, heads_q?, block_rows, block_columns",
                     .typical = [](const Extents&, std::int64_t) { return 0.0; },
                     .sizes = sizes_in_blocks,
                     .varied_dims = Dims("batch?, heads_q?, block_rows+, block_columns+")},
    FunctorTensorRow{.name = "block_scores",
                     .dtype = DType::int32,
                     .dims = "batch?, heads_q?, block_room+, score_words",
                     .typical = [](const Extents&, std::int64_t) { return double{0x55555555}; },
                     .sizes = sizes_in_blocks,
                     .alignment = 16}};

bool keeps_block(const HostFunctor& f, const Place& at) {
  return block_bit(f.tensors[0], {.b = at.b, .h = at.h, .q = at.q / f.whole(0), .k = at.k / f.whole(1)}, 0);
}

// Index of the score bits of a score's block; nothing if it has none.
std::optional<std::int64_t> place_of_block(const HostFunctor& f, const Place& at) {
  const HostTensor& places = f.tensors[1];
  const std::size_t rank = places.shape.size();
  const std::int64_t row = at.q / f.whole(0), column = at.k / f.whole(1);
  if (row >= places.shape[rank - 2] || column >= places.shape[rank - 1]) return {};
  const auto place = static_cast<std::int64_t>(places.at({at.b, at.h, row, column}));
  const bool is_there = place >= 0 && place < f.tensors[2].shape[f.tensors[2].shape.size() - 2];
  return is_there ? std::optional(place) : std::nullopt;
}

bool knows_score(const HostFunctor& f, const Place& at) { return place_of_block(f, at).has_value(); }

bool keeps_mask_bit(const HostFunctor& f, const Place& at) {
  if (!keeps_block(f, at)) return false;
  const std::optional<std::int64_t> block = place_of_block(f, at);
  if (!block) return true;
  const ScoreBitPlace place =
      score_bit_place(static_cast<int>(at.q % f.whole(0)), static_cast<int>(at.k % f.whole(1)), f.whole(0));
  const auto word = static_cast<std::int64_t>(f.tensors[2].at({at.b, at.h, *block, place.word}));
  return (word >> place.bit & 1) != 0;
}

// ALiBi's slopes, as in the paper.
constexpr std::array alibi_tensors = {FunctorTensorRow{
    "alibi_slopes", DType::fp32, "[batch?], heads_q", [](const Extents& sizes, std::int64_t h) {
      return std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(sizes.heads_q));
    }}};

constexpr std::array bias_tensors = {
    FunctorTensorRow{.name = "bias",
                     .dtype = DType::fp32,
                     .dims = "batch?, heads_q?, seqlen_q?, seqlen_kv",
                     .typical = [](const Extents&, std::int64_t) { return 0.0; },
                     .dtype_parameter = 0}};

constexpr std::int64_t first_key = 0;

constexpr std::array masks = {
    MaskRow{.functor = {.name = "none", .device_type = "NoMask", .doc = "every query sees every key"},
            .has_row_range = true,
            .rows_begin_first = true,
            .key_words = 0,
            .keep = [](const HostFunctor&, const Place&) { return true; }},
    MaskRow{.functor = {.name = "causal",
                        .device_type = "CausalMask<alignment>",
                        .doc = "a query sees the keys up to its own position",
                        .parameters = causal_parameters},
            .has_row_range = true,
            .rows_begin_first = true,
            .key_words = 0,
            .keep = [](const HostFunctor& f, const Place& at) { return at.k <= f.position(at.q, 0); },
            .row_keys = [](const HostFunctor& f, std::int64_t q) -> KeyRange {
              return {first_key, f.position(q, 0) + 1};
            }},
    MaskRow{
        .functor = {.name = "causal_per_request",
                    .device_type = "CausalPerRequestMask<is_causal>",
                    .doc = "a query sees the keys up to its own position, in batch entries whose flag is set",
                    .tensors = per_request_tensors},
        .has_row_range = true,
        .rows_begin_first = true,
        .key_words = 0,
        .keep =
            [](const HostFunctor& f, const Place& at) {
              return f.tensors[0].at({at.b}) == 0 || at.k <= at.q + f.sizes.seqlen_kv - f.sizes.seqlen_q;
            }},
    MaskRow{.functor = {.name = "draft_tree",
                        .device_type = "DraftTreeMask<draft_tree>",
                        .doc = "a query of a draft sees all keys before the draft, and those of the draft "
                               "whose bits are set",
                        .tensors = draft_tree_tensors},
            .keep = keeps_draft},
    MaskRow{
        .functor = {.name = "sliding_window",
                    .other_name = "window",
                    .device_type = "SlidingWindowMask<window_size_left, window_size_right, alignment>",
                    .doc = "a query sees at most that many keys before and after its own position; -1: all",
                    .parameters = window_parameters},
        .has_row_range = true,
        .key_words = 0,
        .keep =
            [](const HostFunctor& f, const Place& at) {
              const std::int64_t distance = at.k - f.position(at.q, 2);
              return (f.whole(0) < 0 || -distance <= f.whole(0)) &&
                     (f.whole(1) < 0 || distance <= f.whole(1));
            },
        .row_keys = [](const HostFunctor& f, std::int64_t q) -> KeyRange {
          const std::int64_t own = f.position(q, 2);
          return {f.whole(0) < 0 ? first_key : own - f.whole(0),
                  f.whole(1) < 0 ? f.sizes.seqlen_kv : own + f.whole(1) + 1};
        },
        .is_none =
            [](const FunctorArguments& arguments) {
              return std::get<int>(arguments[0]) < 0 && std::get<int>(arguments[1]) < 0;
            }},
    MaskRow{.functor = {.name = "prefix",
                        .device_type = "PrefixMask<length>",
                        .doc = "every query sees the first keys and no others",
                        .parameters = prefix_parameters},
            .has_row_range = true,
            .rows_begin_first = true,
            .key_words = 0,
            .keep = [](const HostFunctor& f, const Place& at) { return at.k < f.whole(0); },
            .row_keys = [](const HostFunctor& f, std::int64_t) -> KeyRange {
              return {first_key, f.whole(0)};
            }},
    MaskRow{
        .functor = {.name = "prefix_lengths",
                    .device_type = "PrefixLengthsMask<prefix_lengths>",
                    .doc = "every query sees the first keys of its batch entry, whose number a tensor gives",
                    .tensors = prefix_tensors},
        .has_row_range = true,
        .rows_begin_first = true,
        .key_words = 0,
        .keep = [](const HostFunctor& f,
                   const Place& at) { return static_cast<double>(at.k) < f.tensors[0].at({at.b}); }},
    MaskRow{.functor = {.name = "document",
                        .device_type = "DocumentMask<document_ids_q, document_ids_kv>",
                        .doc = "a query sees the keys with its own document id",
                        .tensors = document_tensors},
            .key_words = 1,
            .keep =
                [](const HostFunctor& f, const Place& at) {
                  return f.tensors[0].at({at.b, at.q}) == f.tensors[1].at({at.b, at.k});
                }},
    MaskRow{.functor = {.name = "tree",
                        .device_type = "TreeMask<tree_ends>",
                        .doc = "a query sees the keys up to its own position whose subtrees end behind it",
                        .tensors = tree_tensors},
            .key_words = 1,
            .keep =
                [](const HostFunctor& f, const Place& at) {
                  const std::int64_t own = at.q + f.sizes.seqlen_kv - f.sizes.seqlen_q;
                  return at.k <= own && static_cast<double>(own) < f.tensors[0].at({at.b, at.k});
                },
            .row_keys = [](const HostFunctor& f, std::int64_t q) -> KeyRange {
              return {first_key, q + f.sizes.seqlen_kv - f.sizes.seqlen_q + 1};
            }},
    MaskRow{
        .functor = {.name = "block_mask",
                    .device_type = "BlockMask<within, block_mask, block_q, block_kv>",
                    .device_file = "problem/block_mask.cuh",
                    .has_within = true,
                    .doc = "a query sees the keys of the blocks in a table, where another mask keeps them",
                    .parameters = block_parameters,
                    .tensors = block_tensors},
        .keep = keeps_block},
    MaskRow{.functor = {.name = "block_scores",
                        .device_type = "BlockScores<within, block_mask, block_places, block_scores, block_q, "
                                       "block_kv>",
                        .device_file = "problem/block_scores.cuh",
                        .has_within = true,
                        .doc = "a query sees the keys of the blocks in a table, by a bit for each score of "
                               "partial blocks; another mask decides in partial blocks without bits",
                        .parameters = block_parameters,
                        .tensors = block_scores_tensors},
            .knows_scores = true,
            .keep = keeps_mask_bit,
            .decides = knows_score},
};

constexpr std::array scores = {
    ScoreRow{.functor = {.name = "none", .device_type = "NoScore", .doc = "the score as it is"},
             .is_steady = true,
             .only_adds = true,
             .reads_place = false,
             .apply = [](const HostFunctor&, double score, const Place&) { return score; }},
    ScoreRow{.functor = {.name = "softcap",
                         .device_type = "SoftcapScore<constants>",
                         .doc = "cap * tanh(score / cap)",
                         .parameters = softcap_parameters},
             .is_steady = true,
             .is_bounded = true,
             .reads_place = false,
             .apply = [](const HostFunctor& f, double score,
                         const Place&) { return f.real(0) * std::tanh(score / f.real(0)); }},
    // Scores grow along the keys.
    ScoreRow{.functor = {.name = "alibi",
                         .device_type = "AlibiScore<alibi_slopes>",
                         .doc = "score - slope * |q + seqlen_kv - seqlen_q - k|",
                         .tensors = alibi_tensors},
             .only_adds = true,
             .apply =
                 [](const HostFunctor& f, double score, const Place& at) {
                   const std::int64_t distance = at.q + f.sizes.seqlen_kv - f.sizes.seqlen_q - at.k;
                   return score - f.tensors[0].at({at.b, at.h}) * static_cast<double>(std::abs(distance));
                 }},
    ScoreRow{.functor = {.name = "bias",
                         .device_type = "BiasScore<bias, dtype>",
                         .doc = "score + bias(b, h, q, k)",
                         .parameters = bias_parameters,
                         .tensors = bias_tensors},
             .only_adds = true,
             .reads_elements = true,
             .apply =
                 [](const HostFunctor& f, double score, const Place& at) {
                   return score + f.tensors[0].at({at.b, at.h, at.q, at.k});
                 }},
};

std::string print(const FunctorArgument& argument) {
  if (const int* whole = std::get_if<int>(&argument)) return std::to_string(*whole);
  if (const float* real = std::get_if<float>(&argument)) return fmt::format("{}", *real);
  if (const Alignment* alignment = std::get_if<Alignment>(&argument))
    return std::string(to_string(*alignment));
  return std::string(to_string(std::get<DType>(argument)));
}

template <class Row>
const Row& find(std::span<const Row> table, std::string_view name) {
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const Row& row) { return row.functor.name == name; });
  if (row != table.end()) return *row;
  throw Error(ErrorCode::invalid_argument, "validate", std::string(name),
              fmt::format("no built-in functor is called {}; there are {}", name, usages(table, false)));
}

}  // namespace

bool block_bit(const HostTensor& table, const Place& block, int word) {
  const std::size_t rank = table.shape.size();
  const std::int64_t i = 2 * (block.k / 32) + word;
  if (block.q >= table.shape[rank - 2] || i >= table.shape[rank - 1] / 2 * 2) return false;
  const auto bits = static_cast<std::int64_t>(table.at({block.b, block.h, block.q, i}));
  return (bits >> block.k % 32 & 1) != 0;
}

std::string_view to_string(Alignment alignment) {
  return alignment == Alignment::top_left ? "top_left" : "bottom_right";
}

std::span<const MaskRow> mask_table() { return masks; }
std::span<const ScoreRow> score_table() { return scores; }
const MaskRow& mask_row(std::string_view name) { return find(mask_table(), name); }
const ScoreRow& score_row(std::string_view name) { return find(score_table(), name); }

FunctorArguments complete_arguments(const FunctorRow& row, std::string_view kind,
                                    FunctorArguments arguments) {
  for (std::size_t i = arguments.size(); i < row.parameters.size(); ++i)
    arguments.push_back(row.parameters[i].default_value.value());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const FunctorParameter& parameter = row.parameters[i];
    if (parameter.is_legal == nullptr || parameter.is_legal(arguments[i])) continue;
    throw Error(ErrorCode::invalid_spec, "validate", fmt::format("spec.{}.{}", kind, parameter.name),
                fmt::format("{}: {} = {} {}", row.name, parameter.name, print(arguments[i]), parameter.rule));
  }
  return arguments;
}

std::string print(const FunctorRow& row, const FunctorArguments& arguments) {
  std::size_t count = arguments.size();
  while (count > 0 && row.parameters[count - 1].default_value == arguments[count - 1]) --count;
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + print(arguments[i]);
  return std::string(row.name) + (count == 0 ? "" : "(" + text + ")");
}

std::string usage(const FunctorRow& row, bool optional) {
  std::string text;
  for (const FunctorParameter& parameter : row.parameters) {
    if (parameter.default_value && !optional) continue;
    const std::string item = (text.empty() ? "" : ", ") + std::string(parameter.name);
    text += parameter.default_value ? "[" + item + "]" : item;
  }
  if (row.has_within && optional) text += "[, mask]";
  return std::string(row.name) + (text.empty() ? "" : "(" + text + ")");
}

}  // namespace jit
