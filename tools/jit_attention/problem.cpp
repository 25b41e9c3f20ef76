#include "problem.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <jit/tuning.h>
#include <CLI/CLI.hpp>

#include "command.h"
#include "device_choice.h"
#include "functor_file.h"
#include "generator/problem/functor_node.h"
#include "npy.h"

namespace jit::tool {
namespace {

// Eight documents of equal length.
Array equal_documents(int seqlen) {
  constexpr std::int64_t documents = 8;
  Array ids = zeros(DType::int32, {1, seqlen});
  for (std::int64_t i = 0; i < seqlen; ++i) {
    ids.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * documents / seqlen);
  }
  return ids;
}

// A typical tensor for a built-in functor. Throws BadInput for one of the user's own.
Array typical_tensor(const FunctorTensorSpec& wanted, const ProblemOptions& sizes) {
  if (wanted.name == document_ids_q_tensor) return equal_documents(sizes.seqlen_q);
  if (wanted.name == document_ids_kv_tensor) return equal_documents(sizes.seqlen_kv);
  if (wanted.name == bias_tensor) return zeros(wanted.dtype, {1, 1, sizes.seqlen_q, sizes.seqlen_kv});
  if (wanted.name == prefix_lengths_tensor) {
    Array lengths = zeros(DType::int32, {sizes.batch});
    std::fill_n(lengths.as<std::int32_t>(), sizes.batch, sizes.seqlen_kv / 2);
    return lengths;
  }
  if (wanted.name == alibi_slopes_tensor) {
    Array slopes = zeros(DType::fp32, {sizes.heads});
    for (int h = 0; h < sizes.heads; ++h) {
      slopes.as<float>()[h] = std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(sizes.heads));
    }
    return slopes;
  }
  throw BadInput(
      fmt::format("the functors read a tensor '{0}'; give it with --tensor {0}=FILE.npy", wanted.name));
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
    if (array.shape.empty() || array.shape.size() > max_rank) {
      throw BadInput(fmt::format("{} must have one to {} dimensions", path, max_rank));
    }
    if (!arrays.emplace(name, std::move(array)).second) {
      throw BadInput(fmt::format("--tensor {} is given twice", name));
    }
  }
  return arrays;
}

void add_problem_options(CLI::App& app, ProblemOptions& options) {
  add_spec_options(app, options.spec);
  // Within these bounds no size or stride overflows 64 bits; what a GPU can take is less.
  const CLI::Range batches(1, 1 << 12), heads(1, 1 << 10), lengths(1, 1 << 24);
  app.add_option("--batch", options.batch, "Batch entries")->check(batches)->capture_default_str();
  app.add_option("--heads", options.heads, "Query heads")->check(heads)->capture_default_str();
  app.add_option("--seqlen-q", options.seqlen_q, "Queries per batch entry")
      ->check(lengths)
      ->capture_default_str();
  app.add_option("--seqlen-kv", options.seqlen_kv, "Keys per batch entry")
      ->check(lengths)
      ->capture_default_str();
  app.add_flag("--bake", options.bake, "Bake both lengths into the kernel");
  app.add_option(
         "--tensor", options.tensors,
         "name=file.npy: a tensor that mask or score reads; typical ones are made up for the built-in "
         "functors")
      ->allow_extra_args(false);
  add_device_option(app, options.device);
}

Problem build_problem(const ProblemOptions& options) {
  Problem problem{.spec = build_spec(options.spec),
                  .tensors = {},
                  .batch = options.batch,
                  .heads = options.heads,
                  .seqlen_q = options.seqlen_q,
                  .seqlen_kv = options.seqlen_kv};
  if (problem.heads % problem.spec.gqa_ratio != 0) {
    throw BadInput(
        fmt::format("--heads {} is no multiple of --gqa-ratio {}", problem.heads, problem.spec.gqa_ratio));
  }
  if (options.bake) {
    problem.spec.seqlen_q = options.seqlen_q;
    problem.spec.seqlen_kv = options.seqlen_kv;
  }
  problem.tensors = read_tensors(options.tensors, problem.spec);
  const std::vector<FunctorTensorSpec> wanted = functor_tensors(problem.spec);
  for (const FunctorTensorSpec& tensor : wanted) {
    if (!problem.tensors.contains(tensor.name)) {
      problem.tensors.emplace(tensor.name, typical_tensor(tensor, options));
    }
  }
  std::map<std::string, void*> on_host;
  for (auto& [name, array] : problem.tensors) on_host[name] = array.bytes.data();
  check_arguments(problem.spec, placeholder_arguments(problem, on_host));
  return problem;
}

AttentionArguments placeholder_arguments(const Problem& problem,
                                         const std::map<std::string, void*>& addresses) {
  NamedTensors tensors;
  for (const auto& [name, array] : problem.tensors) tensors.add({name, view(array, addresses.at(name))});
  return sized_arguments(problem.spec,
                         {.batch = problem.batch,
                          .heads_q = problem.heads,
                          .seqlen_q = problem.seqlen_q,
                          .seqlen_kv = problem.seqlen_kv},
                         tensors);
}

DeviceTensors::DeviceTensors(int device, const NamedArrays& arrays) {
  for (const auto& [name, array] : arrays) {
    buffers_.emplace_back(device, std::max<std::size_t>(1, array.bytes.size()));
    buffers_.back().upload(array.bytes.data(), array.bytes.size());
    addresses_[name] = buffers_.back().data();
  }
}

}  // namespace jit::tool
