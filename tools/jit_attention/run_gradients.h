// Inputs and outputs of `run --backward` in addition to the forward pass.
#pragma once

#include <string>
#include <vector>

#include <jit/spec.h>

#include "array.h"
#include "block_map.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct GradientOptions {
  bool backward = false;
  bool deterministic = false;
  std::string d_o, d_lse;  ///< paths of what is read; d_o is given with `backward`, as are dq, dk and dv
  std::string o, lse;      ///< from an earlier forward pass; both or none
  std::string dq, dk, dv, d_sinks;     ///< output paths
  std::vector<std::string> d_tensors;  ///< "name=path" of outputs

  bool has_forward() const { return !o.empty(); }
};
/// Requires: `app` has --sinks and --tensor.
void add_gradient_options(CLI::App& app, GradientOptions& options);

/// The paths of all files that are read.
std::vector<std::string> input_files(const GradientOptions& options);

/// Arrays in host memory; one without dimensions is not part of the call.
struct Gradients {
  Array d_o, d_lse;           ///< inputs
  Array dq, dk, dv, d_sinks;  ///< outputs
  NamedArrays d_tensors;      ///< outputs
};

struct RunArrays;
/// Reads the inputs, including the forward pass's o and lse, in the types of the other arrays, which must be
/// set; allocates the outputs. Throws BadInput, also for the gradient of a tensor that the call does not
/// have.
void read_gradients(const GradientOptions& options, const AttentionSpec& spec, RunArrays& arrays);

/// An output file, with its option and its array.
struct RunOutput {
  std::string option;
  std::string path;
  Array* array;
};
/// The requested gradients; the arrays may still be unread. Throws BadInput.
std::vector<RunOutput> outputs_of(const GradientOptions& options, Gradients& gradients);

}  // namespace jit::tool
