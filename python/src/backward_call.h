// A call for gradients: its arrays, the problem, and its results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <jit/attention.h>
#include <jit/spec.h>
#include <nanobind/nanobind.h>

#include "block_mask_binding.h"
#include "named_arrays.h"
#include "operation_call.h"

namespace jit::python {

/// Arguments of attention_backward by their names there. `d_o` is `do`, `d_lse` is `dlse`.
struct BackwardInputs {
  nb::handle d_o, q, k, v, o, lse;
  nb::handle mask, score, output = nb::none(), softmax_scale;
  nb::handle dq, dk, dv;
  nb::handle dtype, layout, tensors, stream;
  bool deterministic = false;
  double dropout_p = 0;
  nb::handle rng_state;
  nb::handle cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_leftpad;
  nb::handle d_lse, mean_score, d_mean_score, sinks, d_sinks, d_tensors, block_mask;
};

/// Members refer to each other, so the object cannot move. All but `complete` needs the interpreter lock.
class BackwardCall {
 public:
  /// Reads all arrays and, on an emulated device, copies them there. Throws Error invalid_argument or
  /// invalid_spec, or a Python TypeError, that names the argument.
  explicit BackwardCall(const BackwardInputs& inputs);
  BackwardCall(const BackwardCall&) = delete;
  BackwardCall& operator=(const BackwardCall&) = delete;

  const AttentionSpec& spec() const { return spec_; }
  const BackwardArguments& arguments() const { return arguments_; }
  int device() const { return call_.device(); }
  Stream stream() const { return call_.stream(); }
  /// After the launch, without the interpreter lock.
  void complete() const { call_.complete(); }
  /// dq, dk, dv and other requested gradients, as attention_backward returns them.
  nb::tuple results() const;
  /// `error` with shapes in the call's layout.
  Error renamed(const Error& error) const;

 private:
  /// A gradient output: the caller's array, or a new one with the shape and type of the array `of`.
  struct Result {
    nb::handle given;
    std::string name;
    const TensorView* of;
    std::optional<dlpack::DataType> type;  ///< the framework's type of `of`
    TensorView* view;
    std::optional<std::size_t> made = {};
    bool is_number = false;  ///< `of` is an array without a dimension

    void bind(OperationCall& call);
    nb::object returned(const OperationCall& call) const;
  };

  void read_operands();
  void read_sequences();
  void check_block_mask() const;
  void bind_gradients();
  void read_tensors();
  void bind_gradients_of_tensors();
  void bind_gradient_of_sinks();
  void name_tensors();
  void place_output_tensors(Layout layout);
  AttentionSpec spec_of_arrays() const;

  const BackwardInputs inputs_;
  const GivenBlockMask over_;
  const std::optional<DType> sixteen_bits_;  ///< meaning of 16-bit integers
  OperationCall call_;
  BackwardArguments arguments_;
  AttentionSpec spec_;
  std::optional<dlpack::DataType> q_type_;  ///< the type in q's framework
  const NamedArrays named_;                 ///< arrays that mask and score read
  std::vector<TensorView> named_views_;
  std::vector<std::optional<dlpack::DataType>> named_types_;
  const NamedArrays wanted_;  ///< arrays with requested gradients
  std::vector<TensorView> wanted_views_;
  std::vector<Result> results_;  ///< dq, dk, dv, gradients of `wanted_`, then of sinks
};

}  // namespace jit::python
