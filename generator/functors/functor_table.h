// The built-in masks and scores: a row has all that the host knows of one: parameters, tensors, device
// struct, host reference and properties for kernels. Parser, printer, programs, argument checks and cost
// models read it. Nodes point to rows, which need not be in these tables.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jit/host_tensor.h>
#include <jit/options.h>
#include <jit/tensor.h>

#include "generator/tensors/dims.h"

namespace jit {

/// Block sizes are multiples of block_step, at most most_in_block.
inline constexpr int block_step = 16, most_in_block = 4096;

/// The value of a parameter, whose kind is the index of its type.
using FunctorArgument = std::variant<int, float, Alignment, DType>;
using FunctorArguments = std::vector<FunctorArgument>;
enum class ParameterKind { whole, real, alignment, dtype };

struct FunctorParameter {
  std::string_view name;
  ParameterKind kind;
  /// A parameter with a default may be omitted, with all after it.
  std::optional<FunctorArgument> default_value = {};
  bool (*is_legal)(const FunctorArgument&) = nullptr;  ///< null: all values are legal
  std::string_view rule = {};                          ///< "must be at least 0"
};

/// A tensor argument of each call.
struct FunctorTensorRow {
  std::string_view name;
  DType dtype;
  Dims dims;  ///< the last one is dense
  /// A typical value: the element with this index along the last dimension.
  double (*typical)(const Extents&, std::int64_t index);
  int dtype_parameter = -1;  ///< parameter that selects the dtype instead
  /// Dimensions for varlen q, if different: they replace as many of the last ones of `dims`.
  std::optional<Dims> varlen_dims = {};
  bool has_row_for_each_key = false;  ///< whether varlen_dims apply to varlen k instead
  /// Sizes that depend on the row's arguments.
  Extents (*sizes)(Extents, const FunctorArguments&) = nullptr;
  /// Dimensions if lengths may differ, if different: those of a problem with one query and key.
  std::optional<Dims> varied_dims = {};
  int alignment = 1;  ///< of rows along the last dimension, in bytes; 1: an element's
};

/// The common part of masks' and scores' rows.
struct FunctorRow {
  std::string_view name;             ///< in texts: "sliding_window"
  std::string_view other_name = {};  ///< alternative name for the parser
  /// The device struct. Its template arguments are names of parameters, of tensors (their slots), "constants"
  /// (a struct with real parameters, which templates cannot take), and "within".
  std::string_view device_type = {};
  std::string_view device_file = {};  ///< its header, unless all programs include it
  bool has_within = false;            ///< whether an inner mask may follow the parameters; only masks
  std::string_view doc = {};          ///< one phrase
  std::span<const FunctorParameter> parameters = {};
  std::span<const FunctorTensorRow> tensors = {};
};

/// A functor of a problem, for its reference on the host.
struct HostFunctor {
  Extents sizes;
  FunctorArguments arguments;
  std::vector<HostTensor> tensors;  ///< the row's, in its order

  int whole(std::size_t i) const { return std::get<int>(arguments[i]); }
  double real(std::size_t i) const { return double{std::get<float>(arguments[i])}; }
  /// Position of query q among the keys, by the alignment in argument i.
  std::int64_t position(std::int64_t q, std::size_t i) const {
    return std::get<Alignment>(arguments[i]) == Alignment::top_left ? q
                                                                    : q + sizes.seqlen_kv - sizes.seqlen_q;
  }
};

/// A query and a key.
struct Place {
  std::int64_t b, h, q, k;
};

/// Keys from `begin` to before `end`, which may exceed the sequence.
struct KeyRange {
  std::int64_t begin, end;
};

struct MaskRow {
  FunctorRow functor;
  bool has_row_range = false;     ///< whether the device struct has one
  bool rows_begin_first = false;  ///< as in templates/problem/masks.cuh
  int key_words = 2;              ///< likewise; 0 with a row_range
  bool knows_scores = false;      ///< whether it has a bit per score of partial tiles
  bool (*keep)(const HostFunctor&, const Place&);
  /// For a row with an inner mask: whether `keep` decides alone, without the inner mask; null: never.
  bool (*decides)(const HostFunctor&, const Place&) = nullptr;
  /// A range that contains all visible keys of query q, with ends linear in q. Null: it depends on tensors.
  KeyRange (*row_keys)(const HostFunctor&, std::int64_t q) = nullptr;
  /// Whether these arguments keep all keys, so that it is no mask; null: never.
  bool (*is_none)(const FunctorArguments&) = nullptr;
};

struct ScoreRow {
  FunctorRow functor;
  /// Whether scores are bounded, or equally large in consecutive tiles of keys.
  bool is_steady = false;
  /// Whether results are finite even for infinite scores.
  bool is_bounded = false;
  /// Whether it only adds terms that are independent of the score, so that constants per row remain so.
  bool only_adds = false;
  /// Whether each score reads its own element: kernels prefetch those of a tile into registers.
  bool reads_elements = false;
  /// Whether it depends on query or key.
  bool reads_place = true;
  double (*apply)(const HostFunctor&, double score, const Place&);
};

/// Whether a block mask keeps scores of a block, given by its row q and column k: some (word 0), or all (1).
/// False outside of the table.
bool block_bit(const HostTensor& table, const Place& block, int word);

/// All rows of a table; the first is "none".
std::span<const MaskRow> mask_table();
std::span<const ScoreRow> score_table();
const MaskRow& mask_row(std::string_view name);
const ScoreRow& score_row(std::string_view name);

/// `arguments` completed by defaults. Throws Error invalid_spec for illegal ones; `kind` is "mask" or
/// "score". Requires: their kinds match the row's parameters.
FunctorArguments complete_arguments(const FunctorRow& row, std::string_view kind, FunctorArguments arguments);

/// Parseable text such as "sliding_window(8)", without trailing defaults.
std::string print(const FunctorRow& row, const FunctorArguments& arguments);

/// "sliding_window(window_size_left)"; with `optional` also "[, window_size_right][, alignment]".
std::string usage(const FunctorRow& row, bool optional);

/// Usages of all rows of a table, comma-separated.
template <class Row>
std::string usages(std::span<const Row> table, bool optional) {
  std::string text;
  for (const Row& row : table) text += (text.empty() ? "" : ", ") + usage(row.functor, optional);
  return text;
}

std::string_view to_string(Alignment alignment);

}  // namespace jit
