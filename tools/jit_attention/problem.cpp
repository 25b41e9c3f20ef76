#include "problem.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/spec_table.h>
#include <jit/tuning.h>
#include <jit/workload.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "device_choice.h"
#include "functor_file.h"
#include "npy.h"
#include "number_options.h"

namespace jit::tool {
namespace {

// A typical tensor for a built-in functor. Throws BadInput for a user's functor.
Array typical_array(const FunctorTensorSpec& wanted, const Problem& problem) {
  const std::optional<TypicalTensor> typical = typical_tensor(problem.spec, shape_of(problem), wanted.name);
  if (!typical) {
    throw BadInput(
        fmt::format("the functors read a tensor '{0}'; give it with --tensor {0}=FILE.npy", wanted.name));
  }
  Array array = zeros(wanted.dtype, typical->shape);
  for (std::size_t i = 0; i < typical->elements.size(); ++i) store(array, i, typical->elements[i]);
  return array;
}

NamedTensors tensors_at(const Problem& problem, const std::map<std::string, void*>& addresses) {
  NamedTensors tensors;
  for (const auto& [name, array] : problem.tensors) tensors.add({name, view(array, addresses.at(name))});
  return tensors;
}

}  // namespace

NamedArrays read_tensors(const std::vector<std::string>& arguments, const AttentionSpec& spec) {
  NamedArrays arrays;
  const std::vector<FunctorTensorSpec> known = functor_tensors(spec);
  for (const std::string& argument : arguments) {
    const auto [name, path] = split_assignment("--tensor", argument);
    const auto wanted =
        std::find_if(known.begin(), known.end(),
                     [&name = name](const FunctorTensorSpec& tensor) { return tensor.name == name; });
    if (wanted == known.end()) {
      throw BadInput(fmt::format("neither mask nor score reads a tensor '{}'", name));
    }
    Array array = convert(read_npy(path), wanted->dtype, path);
    if (array.shape.empty()) array.shape = {1};  // a scalar is an array of one element
    if (array.shape.size() > max_rank)
      throw BadInput(
          fmt::format("{} is {}; at most {} dimensions are possible", path, describe(array), max_rank));
    if (!arrays.emplace(name, std::move(array)).second) {
      throw BadInput(fmt::format("--tensor {} is given twice", name));
    }
  }
  return arrays;
}

void add_problem_options(CLI::App& app, ProblemOptions& options) {
  add_spec_options(app, options.spec);
  // Within these bounds no size or stride overflows 64 bits; GPUs accept less.
  constexpr WholeRange batches{1, 1 << 12}, heads{1, 1 << 10}, lengths{1, 1 << 24};
  add_whole_option(app, "--batch", options.batch, "Batch entries", batches)->capture_default_str();
  add_whole_option(app, "--heads", options.heads, "Query heads", heads)->capture_default_str();
  add_whole_option(app, "--seqlen-q", options.seqlen_q, "Queries per batch entry", lengths)
      ->capture_default_str();
  add_whole_option(app, "--seqlen-kv", options.seqlen_kv, "Keys per batch entry", lengths)
      ->capture_default_str();
  app.add_flag("--bake", options.bake, "Bake both lengths into the kernel");
  app.add_option(
         "--tensor", options.tensors,
         "name=file.npy: a tensor that mask or score reads; typical ones are made up for the built-in "
         "functors")
      ->allow_extra_args(false);
  add_block_map_options(app, options.block_map);
  add_device_option(app, options.device);
}

Problem build_problem(const ProblemOptions& options) {
  Problem problem{.spec = build_spec(options.spec),
                  .tensors = {},
                  .batch = options.batch,
                  .heads = options.heads,
                  .seqlen_q = options.seqlen_q,
                  .seqlen_kv = options.seqlen_kv};
  if (!is_dense(problem.spec) && !options.block_map.paths.empty()) {
    throw BadInput(
        "--block-map is of dense sequences here, and --sequences-q or --sequences-kv is not dense; leave one "
        "of them out");
  }
  if (problem.heads % problem.spec.gqa_ratio != 0) {
    throw BadInput(
        fmt::format("--heads {} is no multiple of --gqa-ratio {}", problem.heads, problem.spec.gqa_ratio));
  }
  if (options.bake) {
    problem.spec.seqlen_q = options.seqlen_q;
    problem.spec.seqlen_kv = options.seqlen_kv;
  }
  const BlockMapSizes sizes{problem.batch, problem.heads, problem.seqlen_q, problem.seqlen_kv};
  problem.block_map = read_block_map(options.block_map, sizes, problem.spec);
  problem.tensors = read_tensors(options.tensors, problem.spec);
  if (problem.block_map) add_known_table(*problem.block_map, problem.tensors);
  for (const FunctorTensorSpec& wanted : functor_tensors(problem.spec)) {
    if (!problem.tensors.contains(wanted.name))
      problem.tensors.emplace(wanted.name, typical_array(wanted, problem));
  }
  std::map<std::string, void*> on_host;
  for (auto& [name, array] : problem.tensors) on_host[name] = array.bytes.data();
  check_arguments(problem.spec, placeholder_arguments(problem, on_host));
  return problem;
}

AttentionShape shape_of(const Problem& problem) {
  return {.batch = problem.batch,
          .heads_q = problem.heads,
          .seqlen_q = problem.seqlen_q,
          .seqlen_kv = problem.seqlen_kv};
}

AttentionArguments placeholder_arguments(const Problem& problem,
                                         const std::map<std::string, void*>& addresses) {
  return sized_arguments(problem.spec, shape_of(problem), tensors_at(problem, addresses));
}

BackwardArguments placeholder_backward_arguments(const Problem& problem,
                                                 const std::map<std::string, void*>& addresses) {
  return sized_backward_arguments(problem.spec, shape_of(problem), tensors_at(problem, addresses));
}

DeviceTensors::DeviceTensors(int device, const NamedArrays& arrays) : device_(device) {
  for (const auto& [name, array] : arrays) {
    buffers_.emplace_back(device, std::max<std::size_t>(1, array.bytes.size()));
    buffers_.back().upload(array.bytes.data(), array.bytes.size());
    addresses_[name] = buffers_.back().data();
  }
}

void DeviceTensors::make_block_mask(Problem& problem, const Context& context) {
  if (!problem.block_map) return;
  BlockMap& map = *problem.block_map;
  const DeviceBuffer blocks(device_, std::max<std::size_t>(1, map.blocks.bytes.size()));
  blocks.upload(map.blocks.bytes.data(), map.blocks.bytes.size());
  const Place place = [&](Array& array) -> void* {
    if (&array == &map.blocks) return blocks.data();
    for (const auto& [name, given] : problem.tensors)
      if (&given == &array) return addresses_.at(name);
    return nullptr;
  };
  block_mask(map.spec, context)(block_mask_arguments(map, problem.tensors, place));
  for (const std::string& name : written_tensors(map)) {
    Array& array = problem.tensors.at(name);
    const auto buffer = std::ranges::find(buffers_, addresses_.at(name), &DeviceBuffer::data);
    buffer->download(array.bytes.data(), array.bytes.size());
  }
}

}  // namespace jit::tool
