// Inputs and outputs of `run --backward` beyond those of the forward pass.
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
  std::string o, lse;      ///< of what forward made before; both or none
  std::string dq, dk, dv, d_sinks;     ///< of what is written
  std::vector<std::string> d_tensors;  ///< "name=path", of what is written

  bool has_forward() const { return !o.empty(); }
};
/// Requires: `app` has --sinks and --tensor.
void add_gradient_options(CLI::App& app, GradientOptions& options);

/// The paths of all files that are read.
std::vector<std::string> input_files(const GradientOptions& options);

/// In host memory; an array without dimensions is not part of the call.
struct Gradients {
  Array d_o, d_lse;           ///< read
  Array dq, dk, dv, d_sinks;  ///< written
  NamedArrays d_tensors;      ///< the same
};

struct RunArrays;
/// Reads what is read, o and lse of forward too, in the types of the other arrays, which are there; makes room for what
/// is written. Throws BadInput, also for the gradient of a tensor that there is not.
void read_gradients(const GradientOptions& options, const AttentionSpec& spec, RunArrays& arrays);

/// A file that is written, by the option that names it, and what goes there.
struct RunOutput {
  std::string option;
  std::string path;
  Array* array;
};
/// The outputs of gradients that are asked for; the arrays need not have been read. Throws BadInput.
std::vector<RunOutput> outputs_of(const GradientOptions& options, Gradients& gradients);

}  // namespace jit::tool
