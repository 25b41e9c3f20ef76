// The arrays of one call: read, checked to be in one place, and, on an emulated device, copied into its
// memory.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <jit/attention.h>
#include <jit/outputs.h>
#include <nanobind/nanobind.h>

#include "call_arrays.h"
#include "named_arrays.h"
#include "sequence_arrays.h"
#include "staging.h"

namespace jit::python {

enum class Layout { bshd, bhsd };
Layout parse_layout(nb::handle layout);

/// Arguments of attention beside the spec.
struct CallInputs {
  nb::handle q, k;
  nb::handle v;                    ///< None with values_in_keys
  nb::handle tensors;              ///< None, or a dict
  nb::handle out = nb::none();     ///< None, or an array
  nb::handle stream = nb::none();  ///< None, a number, or an object with __cuda_stream__
  Layout layout = Layout::bshd;
  std::optional<DType> dtype =
      {};  ///< that q must hold; what 16-bit integers, and bytes of q, k and v, stand for
  std::optional<DType> spec_dtype = {};  ///< the same, when a spec says it
  std::optional<DType> kv_dtype = {};    ///< that k and v must hold; what their bytes stand for
  std::optional<DType> out_dtype = {};   ///< of the result; not given: as the spec has it
  std::optional<int> device = {};  ///< that arrays in CPU memory are computed on; others are where they are
  std::optional<std::int64_t> rows = {};  ///< of varlen q and out, the first so many, where they have more
  bool values_in_keys = false;            ///< a call may have no v: the spec says which columns of k they are
  nb::handle return_lse = Py_False;       ///< a bool, or an array to write it to
  nb::handle return_aux =
      nb::none();  ///< None, names of outputs, or a dict of names and None or arrays to raise
  SequenceInputs sequences = {};
};

/// One call: read, then `make_outputs`, then `arguments` are launched, `complete`, `result`. All but
/// `complete` needs the interpreter lock.
class Call {
 public:
  /// Reads the inputs. Throws Error invalid_argument, or a Python TypeError, that names the argument.
  explicit Call(const CallInputs& inputs);

  const TensorView& q() const { return arguments_.q; }
  const TensorView& k() const { return arguments_.k; }
  const TensorView& v() const { return arguments_.v; }
  int device() const { return arrays_.device(); }
  Stream stream() const { return arrays_.stream(); }

  /// Whether `tensors` has one of this name.
  bool has_tensor(std::string_view name) const { return tensors_.has(name); }

  /// Whether the caller says what bytes of k and v stand for.
  bool has_kv_dtype() const { return inputs_.kv_dtype.has_value(); }

  /// The largest of 16, 8, 4 and 2 that all rows of q, k, v and a given output are aligned to.
  int alignment() const;

  /// Makes room for the results and, on an emulated device, copies the inputs there. Throws Error invalid_argument when
  /// there is no room because q, k and v are not what `spec` wants; the launch checks all arguments.
  void make_outputs(const AttentionSpec& spec);
  /// Adds the outputs that `spec` asks for, of a call of which only sizes matter.
  void add_outputs(const AttentionSpec& spec);
  /// Sets the fields of `spec` that ask for the outputs of return_aux.
  void ask_for_outputs(AttentionSpec& spec) const;
  /// With `make_outputs` done: what attention takes.
  const AttentionArguments& arguments() const { return arguments_; }
  /// After the launch, without the interpreter lock: waits and copies back where the results must be
  /// complete.
  void complete() const;
  /// o, lse and a dict of outputs, in a tuple if there is more than o.
  nb::object result() const;

  /// `error` as the caller knows the arguments: o is `out`.
  Error renamed(const Error& error) const;

 private:
  std::optional<DType> dtype_of_inputs() const;
  TensorView read_operand(nb::handle array, const char* name, bool is_varlen);
  TensorView read_queries(nb::handle array, bool is_varlen);
  TensorView read_keys(nb::handle array, const char* name, bool is_varlen);
  void read_sequences();
  bool has_value_rows() const;
  void place_output_scales();
  void read_aux();
  bool wants_lse() const { return inputs_.return_lse.ptr() != Py_False; }
  void make_missing_outputs(const AttentionSpec& spec);
  void place_output_tensors(const AttentionSpec& spec);
  void stage(const AttentionSpec& spec);

  CallInputs inputs_;
  CallArrays arrays_;
  dlpack::DataType q_type_ = {};
  AttentionArguments arguments_;
  NamedArrays tensors_;
  // An output of return_aux.
  struct Aux {
    const OutputField* field = nullptr;
    Output output;
    Staged staged;
  };

  Output out_, lse_, raw_;
  bool wants_raw_ = false;  ///< o before the output functor, by return_aux
  std::vector<Aux> aux_;
  std::vector<Staged> staged_inputs_;
  Staged staged_out_, staged_lse_, staged_raw_;
};

}  // namespace jit::python
