// The built-in masks and scores: a row is all that the host knows of one. Its parameters, its tensors, its
// device struct, what it means and what kernels may expect of it: parser, printer, program, argument checks,
// cost models and host references read it. Rows need not stand in these tables: nodes point to theirs.
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

/// Sides of blocks are multiples of the one, and at most the other.
inline constexpr int block_step = 16, most_in_block = 4096;

/// The value of a parameter. A parameter's kind is the index of its type.
using FunctorArgument = std::variant<int, float, Alignment, DType>;
using FunctorArguments = std::vector<FunctorArgument>;
enum class ParameterKind { whole, real, alignment, dtype };

struct FunctorParameter {
  std::string_view name;
  ParameterKind kind;
  /// With one it may be left out, with all behind it.
  std::optional<FunctorArgument> default_value = {};
  bool (*is_legal)(const FunctorArgument&) = nullptr;  ///< null: every value is
  std::string_view rule = {};                          ///< "must be at least 0"
};

/// A tensor that is given to each call.
struct FunctorTensorRow {
  std::string_view name;
  DType dtype;
  Dims dims;  ///< the last one is dense
  /// A typical value: the element with this index along the last dimension.
  double (*typical)(const Extents&, std::int64_t index);
  int dtype_parameter = -1;  ///< the parameter that gives the dtype instead
  /// Where q is varlen, if they are others: they stand for as many of the last of `dims`.
  std::optional<Dims> varlen_dims = {};
  bool has_row_for_each_key = false;  ///< whether that is where k is varlen
  /// The sizes that follow from the row's arguments.
  Extents (*sizes)(Extents, const FunctorArguments&) = nullptr;
  /// Where sequences may differ in length, if they are others: of a problem of one query and key.
  std::optional<Dims> varied_dims = {};
  int alignment = 1;  ///< of where rows along the last dimension begin, in bytes; 1: that of an element
};

/// The common part of rows of masks and scores.
struct FunctorRow {
  std::string_view name;             ///< in texts: "sliding_window"
  std::string_view other_name = {};  ///< that is read as well
  /// The device struct. Its template arguments are names of parameters, of tensors (the tensor's slot),
  /// "constants" (a struct with the real parameters, of which C++ takes none), and "within".
  std::string_view device_type = {};
  std::string_view device_file = {};  ///< where that is, unless all programs include it
  bool has_within = false;            ///< whether another mask may follow the parameters; only masks
  std::string_view doc = {};          ///< one phrase
  std::span<const FunctorParameter> parameters = {};
  std::span<const FunctorTensorRow> tensors = {};
};

/// One functor of a problem, as its meaning on the host is asked for.
struct HostFunctor {
  Extents sizes;
  FunctorArguments arguments;
  std::vector<HostTensor> tensors;  ///< the row's, in its order

  int whole(std::size_t i) const { return std::get<int>(arguments[i]); }
  double real(std::size_t i) const { return double{std::get<float>(arguments[i])}; }
  /// Where query q stands among the keys, by the alignment that argument i is.
  std::int64_t position(std::int64_t q, std::size_t i) const {
    return std::get<Alignment>(arguments[i]) == Alignment::top_left ? q
                                                                    : q + sizes.seqlen_kv - sizes.seqlen_q;
  }
};

/// A query and a key.
struct Place {
  std::int64_t b, h, q, k;
};

/// Keys from `begin` up to before `end`, which may lie outside of the sequence.
struct KeyRange {
  std::int64_t begin, end;
};

struct MaskRow {
  FunctorRow functor;
  bool has_row_range = false;     ///< whether the device struct has one
  bool rows_begin_first = false;  ///< as templates/problem/masks.cuh has it
  int key_words = 2;              ///< the same; 0 with a row_range
  bool knows_scores = false;      ///< whether it has a bit for each score of partial tiles
  bool (*keep)(const HostFunctor&, const Place&);
  /// For a row with a mask within: whether what `keep` says is all, so that the other one is not asked; null:
  /// never.
  bool (*decides)(const HostFunctor&, const Place&) = nullptr;
  /// A range that holds all keys that query q sees; both ends are linear in q. Null: tensors tell.
  KeyRange (*row_keys)(const HostFunctor&, std::int64_t q) = nullptr;
  /// Whether with these arguments every query sees every key, which makes it no mask; null: never.
  bool (*is_none)(const FunctorArguments&) = nullptr;
};

struct ScoreRow {
  FunctorRow functor;
  /// Whether scores stay bounded, or as large in one tile of keys as in the next.
  bool is_steady = false;
  /// Whether it makes a finite number of every number, infinite ones too.
  bool is_bounded = false;
  /// Whether it adds what does not depend on the score: what all scores of a row have in common stays so.
  bool only_adds = false;
  /// Whether each score reads an element of its own: kernels load those of a tile ahead, into registers.
  bool reads_elements = false;
  /// Whether it depends on the query or the key.
  bool reads_place = true;
  double (*apply)(const HostFunctor&, double score, const Place&);
};

/// Whether a block mask says of a block, whose row and column are the place's q and k, that something of it is kept
/// (word 0), or all (1). Of one beyond the table nothing is.
bool block_bit(const HostTensor& table, const Place& block, int word);

/// All of them; "none" is the first.
std::span<const MaskRow> mask_table();
std::span<const ScoreRow> score_table();
const MaskRow& mask_row(std::string_view name);
const ScoreRow& score_row(std::string_view name);

/// `arguments` with the defaults of those that were left out. Throws Error invalid_spec for what is illegal;
/// `kind` is "mask" or "score". Requires: kinds are those of the row's parameters.
FunctorArguments complete_arguments(const FunctorRow& row, std::string_view kind, FunctorArguments arguments);

/// "sliding_window(8)", what the parser reads; defaults at the end are left out.
std::string print(const FunctorRow& row, const FunctorArguments& arguments);

/// "sliding_window(window_size_left)"; with `optional` also "[, window_size_right][, alignment]".
std::string usage(const FunctorRow& row, bool optional);

/// The usages of all rows of a table, with commas between.
template <class Row>
std::string usages(std::span<const Row> table, bool optional) {
  std::string text;
  for (const Row& row : table) text += (text.empty() ? "" : ", ") + usage(row.functor, optional);
  return text;
}

std::string_view to_string(Alignment alignment);

}  // namespace jit
