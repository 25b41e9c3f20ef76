#include "generator/plan/documents_plan.h"

#include <algorithm>
#include <future>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/spec_table.h>

#include "generator/build/kernel_store.h"
#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/text_meaning.h"
#include "generator/kernels/families.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/problem/kernel_spec.h"
#include "runtime/launch.h"
#include "templates/find_documents/params.cuh"

namespace jit {
namespace {

constexpr std::size_t alignment = 256;

// Whether documents of the spec are its sequences: nothing in it depends on the place of a query or key but the mask.
bool has_sequences(const AttentionSpec& spec) {
  const ScoreNode& score = node_of(spec.score);
  const bool is_softcap = score.row != nullptr && score.row->functor.name == "softcap";
  return is_plain(spec) && is_within_documents(spec.mask) && (spec.score == score::none() || is_softcap) &&
         spec.output.is_none() && !spec.dropout && spec.split_keys == 0 && !has_positions(spec) &&
         !has_lists(spec) && !spec.key_arrivals && !spec.checked && !has_fp8_queries(spec) &&
         !spec.max_logit && !spec.row_max && !spec.mean_score && !spec.running_lse &&
         output_dtype(spec) == spec.dtype;
}

// Whether a fifth of the time, at 450 TFLOP/s with a tenth of the scores, is more than that of three further launches
// (docs/records/notebook.md). Emulated devices, whose time nobody measures, always take this way.
bool is_worth_it(const ProblemShape& shape, const AttentionSpec& spec, const DeviceInfo& device) {
  if (shape.seqlen_q != shape.seqlen_kv || shape.batch * shape.seqlen_q > max_seqlen) return false;
  if (device.emulated) return true;
  constexpr std::int64_t shortest = 2 * tokens_of_document;
  constexpr double seen = 0.1, least = 45e9;
  const double scores = static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv) *
                        static_cast<double>(shape.batch * shape.heads_q);
  return shape.seqlen_q >= shortest && seen * scores * 2 * (spec.head_dim + spec.value_head_dim()) >= least;
}

// Documents of a length for which the config is chosen: the host knows no better.
ProblemShape shape_of_documents(ProblemShape shape) {
  constexpr std::int64_t documents = 8;
  shape.batch *= documents;
  shape.seqlen_q = shape.seqlen_kv = (shape.seqlen_q + documents - 1) / documents;
  shape.has_device_lengths = true;
  shape.is_plain = false;
  shape.surplus_q = 0;
  return shape;
}

// Whether documents of a call may be sequences: a plan serves all calls of its size class, whose lengths may differ. Batch
// entries must follow one another like rows, so that all rows are one dimension.
bool may_have_sequences(const AttentionParams& params) {
  const auto follows = [&](const TensorStrides& strides) {
    return params.batch == 1 || strides.batch == static_cast<long long>(params.seqlen_q) * strides.seq;
  };
  return params.seqlen_q == params.seqlen_kv && params.batch <= max_grid_yz &&
         std::int64_t{params.batch} * params.seqlen_q <= max_seqlen && follows(params.q_strides) &&
         follows(params.k_strides) && follows(params.v_strides) && follows(params.o_strides);
}

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// A call's memory beside the workspace: the table, and LSE in the order of varlen rows if there are several entries.
class Kept {
 public:
  explicit Kept(const AttentionParams& params)
      : batch_(params.batch),
        most_(params.batch * documents_of_entry(params.seqlen_q)),
        lse_floats_(params.lse != nullptr && params.batch > 1
                        ? static_cast<std::size_t>(params.batch) * static_cast<std::size_t>(params.seqlen_q) *
                              static_cast<std::size_t>(params.heads_q)
                        : 0) {}

  int most_documents() const { return most_; }
  bool has_lse() const { return lse_floats_ != 0; }
  int* is_dense(void* kept) const { return static_cast<int*>(kept); }
  int* boundaries(void* kept) const { return is_dense(kept) + 1; }
  int* begins(void* kept) const { return boundaries(kept) + most_ + 1; }
  int* counts(void* kept) const { return begins(kept) + most_; }
  float* lse(void* kept) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(kept) + table_bytes());
  }
  std::size_t bytes() const { return table_bytes() + aligned(lse_floats_ * sizeof(float)); }

 private:
  std::size_t table_bytes() const {
    return aligned((2 * static_cast<std::size_t>(most_) + 2 + static_cast<std::size_t>(batch_)) *
                   sizeof(int));
  }

  int batch_;
  int most_;
  std::size_t lse_floats_;
};

// The parameters of the kernel of sequences: as many as the table holds. Without memory, only their sizes.
AttentionParams sequence_params(const AttentionParams& given, void* kept) {
  const Kept own(given);
  AttentionParams params = given;
  const int rows = given.batch * given.seqlen_q;
  params.batch = own.most_documents();
  params.seqlen_q = params.seqlen_kv = params.sequences.total_q = params.sequences.total_k = rows;
  params.sequences.zero_padding = 0;  // no row lies behind a document
  for (TensorStrides AttentionParams::*strides :
       {&AttentionParams::q_strides, &AttentionParams::k_strides, &AttentionParams::v_strides,
        &AttentionParams::o_strides, &AttentionParams::lse_strides})
    (params.*strides).batch = 0;
  std::fill(std::begin(params.tensors), std::end(params.tensors), FunctorTensor{});
  if (kept == nullptr) return params;
  params.sequences.cu_seqlens_q = params.sequences.cu_seqlens_k = own.boundaries(kept);
  if (own.has_lse()) {
    params.lse = own.lse(kept);
    params.lse_strides.head = rows;
    params.lse_strides.seq = 1;
  }
  return params;
}

KernelLaunch launch_of(const KernelLaunch& given, const AttentionSpec& spec, AttentionParams& params) {
  return {given.kernel,    spec,       params,     given.stream, given.memory,
          given.workspace, given.kept, given.turn, given.mailbox};
}

Program side_program(std::string_view name, std::string_view file, std::string_view parameters,
                     std::string_view call) {
  Program program;
  program.threads = find_documents_threads;
  program.name = name;
  program.facts = {{"spec", "documents as sequences"}};
  program.source = fmt::format(
      "// Documents as sequences. Generated.\n#include \"find_documents/{}.cuh\"\n\nusing namespace jit;\n\n"
      "static_assert(sizeof(FindDocuments) == {}, \"host and device disagree on the kernel's "
      "parameters\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__(find_documents_threads)\n{}({}) {{\n  "
      "find_documents::{};\n}}\n",
      file, sizeof(FindDocuments), name, parameters, call);
  return program;
}

void launch_find(const LoadedKernel& kernel, const AttentionSpec& spec, const KernelLaunch& launch) {
  const AttentionParams& params = launch.params;
  const Kept own(params);
  FindDocuments of = {};
  of.batch = params.batch;
  of.seqlen = params.seqlen_q;
  of.may_find = may_have_sequences(params);
  of.boundaries = own.boundaries(launch.kept);
  of.begins = own.begins(launch.kept);
  of.counts = own.counts(launch.kept);
  of.is_dense = own.is_dense(launch.kept);
  of.done = reinterpret_cast<unsigned*>(launch.memory.counter());
  int slot = 0;
  for (const FunctorTensorUse& use : functor_tensor_uses(spec)) {
    const FunctorTensor& tensor = params.tensors[slot++];
    const auto set = [&](std::string_view name, const int*& ids, long long& stride) {
      if (use.tensor.name != name) return;
      ids = static_cast<const int*>(tensor.data);
      stride = tensor.strides[0];
    };
    set("document_ids_q", of.ids_q, of.stride_q);
    set("document_ids_kv", of.ids_kv, of.stride_kv);
  }
  void* arguments[] = {&of};
  jit::launch(kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(params.batch), 1, 1},
               .block = {kernel.threads, 1, 1},
               .dependent = true},
              arguments, launch.stream);
}

void launch_copy(const LoadedKernel& kernel, const KernelLaunch& launch) {
  const AttentionParams& params = launch.params;
  const Kept own(params);
  const float* from = own.lse(launch.kept);
  float* to = params.lse;
  const int* is_dense = own.is_dense(launch.kept);
  long long batch_stride = params.lse_strides.batch, head_stride = params.lse_strides.head,
            row_stride = params.lse_strides.seq;
  int seqlen = params.seqlen_q;
  void* arguments[] = {&from, &to, &is_dense, &batch_stride, &head_stride, &row_stride, &seqlen};
  jit::launch(kernel.kernel.handle(),
              {.grid = {static_cast<unsigned>(params.heads_q), static_cast<unsigned>(params.batch), 1},
               .block = {kernel.threads, 1, 1}},
              arguments, launch.stream);
}

// The last tensor of functors, which calls of these specs do not have: where a dense kernel finds whether it is to compute.
constexpr int dense_slot = max_functor_tensors - 1;

// A dense kernel that ends at once if another one computes the call.
Program unless_found(Program program) {
  const std::size_t kernel = program.source.find(program.name + "("),
                    body = program.source.find(" {\n", kernel);
  program.source.insert(
      body + 3,
      fmt::format(
          "  griddepcontrol_wait();\n"
          "  if (*static_cast<const int*>(params.tensors[{}].data) == 0) return;  // found documents\n",
          dense_slot));
  constexpr std::string_view suffix = "_unless_found";
  program.source.insert(kernel + program.name.size(), suffix);
  program.source.insert(0, "#include \"ptx/griddepcontrol.cuh\"\n");
  program.name += suffix;
  return program;
}

}  // namespace

std::optional<Plan> documents_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                                   const DeviceInfo& device) {
  const DeviceLimits limits = device_limits(device);
  if (to_string(limits.arch) != "sm_90a" || !has_sequences(spec) || shape.has_device_lengths ||
      shape.batch > max_grid_yz || !is_worth_it(shape, spec, device))
    return std::nullopt;
  const Target target = native_target(device);
  AttentionSpec of_sequences = spec;
  of_sequences.sequences_q = of_sequences.sequences_kv = SequenceKind::varlen;
  of_sequences.seqlen_q = of_sequences.seqlen_kv = 0;
  of_sequences.mask = within_a_document(spec.mask);
  try {
    const auto build = [&](const Program& program) { return build_image(store, program, target); };
    std::future<BuiltKernel> other = std::async([&] {
      BuiltKernel kernel = choose_kernel(store, spec, {}, shape, limits, target);
      kernel.image = build(unless_found(kernel.image->program));
      return kernel;
    });
    BuiltKernel kernel = choose_kernel(store, of_sequences, {}, shape_of_documents(shape), limits, target);
    BuiltKernel dense = other.get();
    const LoadedKernel finds =
        load_kernel(store,
                    build(side_program("find_documents", "kernel", "const __grid_constant__ FindDocuments of",
                                       "find_documents(of)")),
                    device.ordinal);
    const LoadedKernel copies = load_kernel(
        store,
        build(side_program("copy_lse_of_documents", "copy_lse",
                           "const float* from, float* to, const int* is_dense, long long batch_stride, "
                           "long long head_stride, long long row_stride, int seqlen",
                           "copy_lse(from, to, is_dense, batch_stride, head_stride, row_stride, seqlen)")),
        device.ordinal);

    Plan plan = make_plan(store, of_sequences, std::move(kernel), device.ordinal,
                          "cost model; documents are sequences where no id comes back");
    Plan whole = make_plan(store, spec, std::move(dense), device.ordinal, "");
    PlanStep& first = plan.steps.front();
    first.workspace_bytes = [bytes = first.workspace_bytes](const AttentionParams& params,
                                                            const GradientParams*) {
      return may_have_sequences(params) ? bytes(sequence_params(params, nullptr), nullptr) : 0;
    };
    first.launch = [run = first.launch, of_sequences, spec, finds, copies](const KernelLaunch& launch) {
      launch_find(finds, spec, launch);
      if (!may_have_sequences(launch.params)) return;
      AttentionParams params = sequence_params(launch.params, launch.kept);
      run(launch_of(launch, of_sequences, params));
      if (Kept(launch.params).has_lse()) launch_copy(copies, launch);
    };
    PlanStep last = std::move(whole.steps.front());
    last.launch = [run = last.launch, spec](const KernelLaunch& launch) {
      AttentionParams params = launch.params;
      params.tensors[dense_slot].data = Kept(params).is_dense(launch.kept);
      run(launch_of(launch, spec, params));
    };
    plan.steps.push_back(std::move(last));
    plan.spec = spec;
    plan.is_checked |= whole.is_checked;
    plan.kept_bytes = [](const AttentionParams& params) { return Kept(params).bytes(); };
    return plan;
  } catch (const Error& error) {
    if (!is_out_of_reach(error) && error.code() != ErrorCode::no_valid_config) throw;
    return std::nullopt;
  }
}

}  // namespace jit
