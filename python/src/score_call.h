// Common arguments of operations on scores: queries and keys, sequences, a mask, a score and their tensors.
#pragma once

#include <array>
#include <cstddef>

#include <jit/attention.h>
#include <jit/spec.h>
#include <jit/tensor.h>
#include <nanobind/nanobind.h>

#include "named_arrays.h"
#include "operation_call.h"

namespace jit::python {

/// A Python caller's arguments; all but q and k may be None.
struct ScoreInputs {
  nb::handle q, k, mask, score, softmax_scale, tensors, cu_seqlens_q, cu_seqlens_k;
  nb::handle page_table = nb::none(), seqused_k = nb::none();  // of operations that read pages
};

/// The arguments as views, whose addresses must stay valid until the launch.
class ScoreCall {
 public:
  /// Reads them for `call`, of an operation such as "key masses". Throws Error invalid_argument or a Python TypeError.
  ScoreCall(OperationCall& call, const ScoreInputs& inputs, const char* operation);
  ScoreCall(const ScoreCall&) = delete;
  ScoreCall& operator=(const ScoreCall&) = delete;

  const AttentionSpec& attention() const { return attention_; }
  const TensorView& q() const { return q_; }
  const TensorView& k() const { return k_; }
  const TensorView& page_table() const { return page_table_; }
  /// Sets an operation's arguments to the current views.
  template <class Arguments>
  void fill(Arguments& arguments) const {
    arguments.q = q_;
    arguments.k = k_;
    arguments.cu_seqlens_q = cu_seqlens_q_;
    arguments.cu_seqlens_k = cu_seqlens_k_;
    if constexpr (requires { arguments.page_table; }) {
      arguments.page_table = page_table_;
      arguments.seqused_k = seqused_k_;
    }
    for (std::size_t i = 0; i < named_.size(); ++i) arguments.tensors.add(tensors_[i]);
  }
  /// The library's error with Python's argument names; `result` replaces the library's "out".
  static Error renamed(const Error& error, const char* result);

 private:
  TensorView q_, k_, cu_seqlens_q_, cu_seqlens_k_, page_table_, seqused_k_;
  const NamedArrays named_;
  std::array<NamedTensor, NamedTensors::capacity> tensors_;
  AttentionSpec attention_;
};

}  // namespace jit::python
