// Sizes and functor tensors for `tune` and `bench`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <jit/context.h>
#include <jit/device_buffer.h>
#include <jit/tuning.h>

#include "array.h"
#include "block_map.h"
#include "spec_options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

/// Reads --tensor arguments ("name=file.npy"), each converted to the dtype that `spec` wants. Throws
/// BadInput, also for a name that no functor reads.
NamedArrays read_tensors(const std::vector<std::string>& arguments, const AttentionSpec& spec);

struct ProblemOptions {
  SpecOptions spec;
  int batch = 1;
  int heads = 8;
  int seqlen_q = 4096;
  int seqlen_kv = 8192;
  bool bake = false;
  std::vector<std::string> tensors;  ///< "name=path"
  BlockMapOptions block_map;
  std::string device;
};
void add_problem_options(CLI::App& app, ProblemOptions& options);

struct Problem {
  AttentionSpec spec;
  NamedArrays tensors;  ///< given, or generated for built-in functors
  int batch = 1;
  int heads = 1;
  int seqlen_q = 1;
  int seqlen_kv = 1;
  std::optional<BlockMap> block_map = {};  ///< tensor block_mask is then the table known without a device
};

/// Needs no GPU. Throws BadInput and Error, also for tensors of wrong shapes.
Problem build_problem(const ProblemOptions& options);

AttentionShape shape_of(const Problem& problem);

/// Arguments for these sizes, with the tensors where `addresses` says. q, k, v and o are aligned, disjoint
/// addresses without memory: they suffice for checks and for choosing a config, not for a launch.
AttentionArguments placeholder_arguments(const Problem& problem,
                                         const std::map<std::string, void*>& addresses);
/// Placeholder arguments of a backward call.
BackwardArguments placeholder_backward_arguments(const Problem& problem,
                                                 const std::map<std::string, void*>& addresses);

/// Named arrays in GPU memory.
class DeviceTensors {
 public:
  DeviceTensors(int device, const NamedArrays& arrays);
  const std::map<std::string, void*>& addresses() const { return addresses_; }

  /// Computes the table of the problem's block map, if any, and replaces the device-free one. `problem` must
  /// have these arrays; `context` compiles for the current device. Throws Error.
  void make_block_mask(Problem& problem, const Context& context);

 private:
  int device_;
  std::vector<DeviceBuffer> buffers_;
  std::map<std::string, void*> addresses_;
};

}  // namespace jit::tool
