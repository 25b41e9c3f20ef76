#include "generator/functors/functor_tensors.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/score_mask.h"

namespace jit {
namespace {

// Typically, positions equal row indices.
constexpr FunctorTensorRow positions_row(std::string_view name) {
  return {.name = name,
          .dtype = DType::int32,
          .dims = "batch?, pieces+, 4",
          .typical = [](const Extents&, std::int64_t i) { return i < 2 ? 0.0 : 1.0; },
          .alignment = 16};
}
constexpr FunctorTensorRow q_positions_row = positions_row("q_positions");
constexpr FunctorTensorRow k_positions_row = positions_row("k_positions");
constexpr FunctorTensorRow global_seqlens_row{
    .name = "global_seqlens",
    .dtype = DType::int32,
    .dims = "batch?, 2",
    .typical = [](const Extents& sizes, std::int64_t i) {
      return static_cast<double>(i == 0 ? sizes.seqlen_q : sizes.seqlen_kv);
    }};

// Typically zeros: no pieces, all keys have arrived.
constexpr FunctorTensorRow key_arrivals_row{.name = "key_arrivals",
                                            .dtype = DType::int32,
                                            .dims = "pieces+, 4",
                                            .typical = [](const Extents&, std::int64_t) { return 0.0; },
                                            .alignment = 16};
// Entries of a list, and the number that is used.
constexpr FunctorTensorRow key_lists_row{
    .name = "key_lists",
    .dtype = DType::int32,
    .dims = "list_rows, heads_kv?, entries+",
    .typical = [](const Extents&, std::int64_t i) { return static_cast<double>(i); }};
constexpr FunctorTensorRow key_counts_row{
    .name = "key_counts",
    .dtype = DType::int32,
    .dims = "list_rows?, heads_kv?",
    .typical = [](const Extents& sizes, std::int64_t) { return static_cast<double>(sizes.entries); }};
// A bit per query that shares a list.
constexpr FunctorTensorRow key_members_row{.name = "key_members",
                                           .dtype = DType::int32,
                                           .dims = "list_rows, heads_kv?, entries",
                                           .typical = [](const Extents&, std::int64_t) { return -1.0; }};

void add(std::vector<FunctorTensorUse>& uses, const FunctorTensorUse& use) {
  const auto known = std::find_if(uses.begin(), uses.end(), [&](const FunctorTensorUse& other) {
    return other.tensor.name == use.tensor.name;
  });
  if (known == uses.end()) {
    uses.push_back(use);
    return;
  }
  if (use.is_of_output) {
    throw Error(
        ErrorCode::invalid_spec, "validate", "spec." + use.tensor.name,
        fmt::format("tensor '{}' is read by the output and by the mask or score; give the two different "
                    "names",
                    use.tensor.name));
  }
  if (known->tensor.dtype != use.tensor.dtype) {
    throw Error(ErrorCode::invalid_spec, "validate", "spec." + use.tensor.name,
                fmt::format("tensor '{}' is wanted as {} and as {}; give the two functors different names",
                            use.tensor.name, to_string(known->tensor.dtype), to_string(use.tensor.dtype)));
  }
  if (known->row != nullptr && known->row == use.row && use.row->sizes != nullptr &&
      known->arguments != use.arguments) {
    throw Error(
        ErrorCode::invalid_spec, "validate", "spec." + use.tensor.name,
        fmt::format("tensor '{}' is wanted of two sizes, by functors with other parameters; one call has one "
                    "of them",
                    use.tensor.name));
  }
  if (known->row == nullptr) known->row = use.row, known->arguments = use.arguments;
  known->is_dense |= use.is_dense;
  known->has_gradient |= use.has_gradient;
  if (known->left_out_by.empty()) known->left_out_by = use.left_out_by;
}

template <class Node>
void collect(std::vector<FunctorTensorUse>& uses, const Node& node) {
  constexpr bool is_score = std::is_same_v<Node, ScoreNode>;
  if (node.row != nullptr) {
    for (const FunctorTensorRow& row : node.row->functor.tensors) {
      const DType dtype =
          row.dtype_parameter < 0
              ? row.dtype
              : std::get<DType>(node.arguments[static_cast<std::size_t>(row.dtype_parameter)]);
      add(uses, {.tensor = {std::string(row.name), dtype},
                 .row = &row,
                 .arguments = node.arguments,
                 .has_gradient = is_score});
    }
  }
  if (node.text) {
    for (const FunctorTensorSpec& tensor : node.text->tensors) {
      add(uses, {.tensor = tensor,
                 .is_dense = true,
                 .has_gradient = is_score,
                 .left_out_by = leaves_out(*node.text, tensor) ? node.text->name : std::string()});
    }
  }
  for (const auto& child : {node.a, node.b}) {
    if (child) collect(uses, *child);
  }
}

// A built-in tensor, which is dense.
FunctorTensorUse table_use(const FunctorTensorRow& row) {
  return {.tensor = {std::string(row.name), row.dtype}, .row = &row, .is_dense = true};
}

std::vector<FunctorTensorSpec> tensors_of(const std::vector<FunctorTensorUse>& uses) {
  std::vector<FunctorTensorSpec> tensors;
  for (const FunctorTensorUse& use : uses) tensors.push_back(use.tensor);
  return tensors;
}

}  // namespace

bool is_of_positions(std::string_view name) {
  return name == q_positions_row.name || name == k_positions_row.name || name == global_seqlens_row.name;
}

bool is_of_lists(std::string_view name) {
  return name == key_lists_row.name || name == key_counts_row.name || name == key_members_row.name;
}

bool asks_by_positions(const AttentionSpec& spec) { return has_positions(spec) && drops_keys(spec); }

std::vector<FunctorTensorUse> functor_tensor_uses(const AttentionSpec& spec) {
  std::vector<FunctorTensorUse> uses;
  if (spec.q_positions) add(uses, table_use(q_positions_row));
  if (spec.k_positions) add(uses, table_use(k_positions_row));
  if (has_positions(spec)) add(uses, table_use(global_seqlens_row));
  if (has_lists(spec)) {
    add(uses, {.tensor = {std::string(key_lists_row.name), DType::int32}, .row = &key_lists_row});
    add(uses, {.tensor = {std::string(key_counts_row.name), DType::int32}, .row = &key_counts_row});
    if (spec.list_queries > 1)
      add(uses, {.tensor = {std::string(key_members_row.name), DType::int32}, .row = &key_members_row});
  }
  collect(uses, node_of(spec.mask));
  collect(uses, node_of(spec.score));
  for (const FunctorTensorSpec& tensor : spec.output.tensors())
    add(uses, {.tensor = tensor,
               .is_dense = tensor.access == TensorAccess::pointer,
               .has_gradient = tensor.access != TensorAccess::pointer,
               .is_of_output = true});
  // Last, so that other tensors have the slots of programs without it.
  if (spec.key_arrivals) add(uses, table_use(key_arrivals_row));
  return uses;
}

std::vector<FunctorTensorUse> functor_tensor_uses(const Mask& mask) {
  return functor_tensor_uses(AttentionSpec{.mask = mask});
}

std::vector<FunctorTensorUse> functor_tensor_uses(const Score& score) {
  return functor_tensor_uses(AttentionSpec{.score = score});
}

std::vector<FunctorTensorSpec> functor_tensors(const AttentionSpec& spec) {
  return tensors_of(functor_tensor_uses(spec));
}

std::vector<FunctorTensorSpec> Mask::tensors() const { return tensors_of(functor_tensor_uses(*this)); }

std::vector<FunctorTensorSpec> Score::tensors() const { return tensors_of(functor_tensor_uses(*this)); }

}  // namespace jit
