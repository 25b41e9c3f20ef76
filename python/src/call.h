// The arrays of one call: read, checked to be on one device, and copied to an emulated device.
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

/// Arguments of attention besides the spec.
struct CallInputs {
  nb::handle q, k;
  nb::handle v;                    ///< None with values_in_keys
  nb::handle tensors;              ///< None, or a dict
  nb::handle out = nb::none();     ///< None, or an array
  nb::handle stream = nb::none();  ///< None, a number, or an object with __cuda_stream__
  Layout layout = Layout::bshd;
  std::optional<DType> dtype =
      {};  ///< required type of q; meaning of 16-bit integers and of bytes in q, k and v
  std::optional<DType> spec_dtype = {};  ///< the same, from a spec
  std::optional<DType> kv_dtype = {};    ///< required type of k and v; meaning of their bytes
  std::optional<DType> out_dtype = {};   ///< of the result; not given: as the spec has it
  std::optional<int> device = {};  ///< that arrays in CPU memory are computed on; others are where they are
  std::optional<std::int64_t> rows = {};  ///< of varlen q and out: use only the first `rows`
  bool values_in_keys = false;            ///< v may be absent: the spec then gives the columns of k
  nb::handle return_lse = Py_False;       ///< a bool, or an array for the result
  nb::handle return_aux =
      nb::none();  ///< None, names of outputs, or a dict of names with None or arrays to accumulate into
  SequenceInputs sequences = {};
};

/// One call, in this order: construction, `make_outputs`, a launch with `arguments`, `complete`, `result`.
/// All but `complete` needs the interpreter lock.
class Call {
 public:
  /// Reads the inputs. Throws Error invalid_argument, or a Python TypeError, that names the argument.
  explicit Call(const CallInputs& inputs);

  const TensorView& q() const { return arguments_.q; }
  const TensorView& k() const { return arguments_.k; }
  const TensorView& v() const { return arguments_.v; }
  int device() const { return arrays_.device(); }
  Stream stream() const { return arrays_.stream(); }

  /// Whether `tensors` has an entry with this name.
  bool has_tensor(std::string_view name) const { return tensors_.has(name); }

  /// Whether the caller gave the meaning of bytes in k and v.
  bool has_kv_dtype() const { return inputs_.kv_dtype.has_value(); }

  /// The largest of 16, 8, 4 and 2 that aligns all rows of q, k, v and a given output.
  int alignment() const;

  /// Allocates the results and, on an emulated device, copies the inputs there. Throws Error invalid_argument
  /// when q, k and v do not fit `spec` so that it cannot; the launch checks all arguments.
  void make_outputs(const AttentionSpec& spec);
  /// Adds the outputs that `spec` requests, for a call where only sizes matter.
  void add_outputs(const AttentionSpec& spec);
  /// Sets the fields of `spec` that request the outputs of return_aux.
  void ask_for_outputs(AttentionSpec& spec) const;
  /// The arguments of attention; requires `make_outputs`.
  const AttentionArguments& arguments() const { return arguments_; }
  /// After the launch, without the interpreter lock: waits and copies back when results must be complete.
  void complete() const;
  /// o, or a tuple of o, lse and a dict of outputs when more was requested.
  nb::object result() const;

  /// `error` with the caller's argument names: o is `out`.
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
  // An output requested by return_aux.
  struct Aux {
    const OutputField* field = nullptr;
    Output output;
    Staged staged;
  };

  Output out_, lse_, raw_;
  bool wants_raw_ = false;  ///< return_aux requests o before the output functor
  std::vector<Aux> aux_;
  std::vector<Staged> staged_inputs_;
  Staged staged_out_, staged_lse_, staged_raw_;
};

}  // namespace jit::python
