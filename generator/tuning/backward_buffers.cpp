#include "generator/tuning/backward_buffers.h"

#include <algorithm>

#include <fmt/format.h>

#include <jit/dtype.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/build/kernel_store.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/problem/kernel_spec.h"
#include "generator/program/emit.h"
#include "generator/tuning/sampled_rows.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"
#include "templates/base/element.cuh"
#include "templates/checks/reference_rows.cuh"

namespace jit {
namespace {

// Bytes of do, of gradients, and of dq sums in fp32, which some kernels need, per batch entry.
std::int64_t gradient_bytes(const AttentionSpec& spec, const AttentionParams& params) {
  const ProblemShape shape = shape_of(params);
  const std::int64_t d = spec.head_dim, dv = spec.value_head_dim(), element = size_of(input_dtype(spec)),
                     wide = size_of(output_dtype(spec)), sum = size_of(DType::fp32);
  return shape.seqlen_q * params.heads_q * (d * wide + dv * element + padded_head_dim(spec.head_dim) * sum) +
         shape.seqlen_kv * params.heads_q / spec.gqa_ratio * (d + dv) * wide;
}

}  // namespace

std::vector<Program> backward_check_programs(const AttentionSpec& spec) {
  std::vector<Program> programs = forward_check_programs(spec);
  programs.push_back(emit_gradient_reference(dense_spec(spec)));
  return programs;
}

BackwardBuffers::BackwardBuffers(KernelStore& store, const AttentionSpec& spec, const DeviceInfo& device,
                                 const AttentionParams& params, CUstream stream)
    : spec_(spec),
      device_(device),
      forward_(store, spec, device, params, stream, gradient_bytes(spec, params)) {
  const AttentionParams& dense = forward_.dense_params();
  const std::int64_t heads_kv = dense.heads_q / spec_.gqa_ratio;
  const auto allocate = [&](std::int64_t heads, std::int64_t length, int head_dim, DType dtype) {
    const std::int64_t elements = dense.batch * heads * length * head_dim;
    return DeviceBuffer(device_.ordinal, static_cast<std::size_t>(elements * size_of(dtype)));
  };
  const DType dtype = input_dtype(spec_), wide = output_dtype(spec_);
  d_o_ = allocate(dense.heads_q, dense.seqlen_q, spec_.value_head_dim(), dtype);
  dq_ = allocate(dense.heads_q, dense.seqlen_q, spec_.head_dim, wide);
  dk_ = allocate(heads_kv, dense.seqlen_kv, spec_.head_dim, wide);
  dv_ = allocate(heads_kv, dense.seqlen_kv, spec_.value_head_dim(), wide);
  const auto gradients_like = [&](const AttentionParams& tensors) {
    GradientParams gradients = {};
    gradients.d_o = d_o_.data();
    gradients.dq = dq_.data();
    gradients.dk = dk_.data();
    gradients.dv = dv_.data();
    gradients.do_strides = tensors.o_strides;
    gradients.dq_strides = tensors.q_strides;
    gradients.dk_strides = tensors.k_strides;
    gradients.dv_strides = tensors.v_strides;
    return gradients;
  };
  gradients_ = gradients_like(forward_.params());
  dense_gradients_ = gradients_like(dense);
  queries_ = sample_of(dense.heads_q, dense.seqlen_q);
  keys_ = sample_of(heads_kv, dense.seqlen_kv);

  fill_randomly(store, device_, d_o_, input_dtype(spec_), 4, stream);
  compute_outputs(store, stream);
  run_reference(store, stream);
}

BackwardBuffers::Sample BackwardBuffers::sample_of(std::int64_t heads, std::int64_t length) const {
  const std::int64_t total = forward_.batch() * heads * length;
  return {.count = std::min(max_sampled_rows, total), .heads = heads, .length = length, .total = total};
}

// Computes o and LSE by the cost model's forward kernel: only backward is measured here.
void BackwardBuffers::compute_outputs(KernelStore& store, CUstream stream) {
  const Target target = native_target(device_);
  const ProblemShape shape = shape_of(forward_.params());
  const AttentionSpec spec = forward_spec(spec_, shape.has_device_lengths);
  BuiltKernel kernel = choose_kernel(store, spec, {}, shape, device_limits(device_), target);
  const Plan plan = make_plan(store, spec, std::move(kernel), device_.ordinal, "cost model");
  if (const std::string trouble = forward_.check(plan, stream); !trouble.empty()) {
    throw Error(ErrorCode::launch_failed, "tune", "o",
                fmt::format("o: what {} computes of it, from which gradients come, is {}",
                            to_string(plan.config), trouble));
  }
}

void BackwardBuffers::run_reference(KernelStore& store, CUstream stream) {
  const auto allocate = [&](const Sample& sample, int head_dim, std::vector<float>& expected) {
    expected.resize(static_cast<std::size_t>(sample.count * head_dim));
    return DeviceBuffer(device_.ordinal, expected.size() * sizeof(float));
  };
  const DeviceBuffer dq = allocate(queries_, spec_.head_dim, reference_dq_);
  const DeviceBuffer dk = allocate(keys_, spec_.head_dim, reference_dk_);
  const DeviceBuffer dv = allocate(keys_, spec_.value_head_dim(), reference_dv_);
  ReferenceGradientRows rows{.queries = queries_.count,
                             .keys = keys_.count,
                             .step = row_step,
                             .dq = static_cast<float*>(dq.data()),
                             .dk = static_cast<float*>(dk.data()),
                             .dv = static_cast<float*>(dv.data())};

  const Program program = emit_gradient_reference(dense_spec(spec_));
  auto image = build_image(store, program, native_target(device_));
  const Kernel kernel = load_module(store, image).kernel(program.name);
  AttentionParams dense = forward_.dense_params();
  void* arguments[] = {&dense, &dense_gradients_, &rows};
  const std::int64_t warps = program.threads / 32, count = rows.queries + rows.keys;
  launch(kernel.handle(),
         {.grid = {static_cast<unsigned>((count + warps - 1) / warps), 1, 1},
          .block = {static_cast<unsigned>(program.threads), 1, 1}},
         arguments, stream);
  jit::check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  dq.download(reference_dq_.data(), dq.size(), 0, stream);
  dk.download(reference_dk_.data(), dk.size(), 0, stream);
  dv.download(reference_dv_.data(), dv.size(), 0, stream);
}

void BackwardBuffers::run(const Plan& plan, CUstream stream) const {
  AttentionParams params = forward_.params();
  GradientParams gradients = gradients_;
  run_plan(plan, params, forward_.memory(), stream, &gradients);
}

std::string BackwardBuffers::check(const Plan& plan, CUstream stream) const {
  for (const DeviceBuffer* gradient : {&dq_, &dk_, &dv_}) gradient->fill(poison, stream);
  run(plan, stream);
  jit::check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  const AttentionParams& dense = forward_.dense_params();
  std::string trouble = compare("dq", dq_, dense.q_strides, queries_, reference_dq_, stream);
  if (trouble.empty()) trouble = compare("dk", dk_, dense.k_strides, keys_, reference_dk_, stream);
  if (trouble.empty()) trouble = compare("dv", dv_, dense.v_strides, keys_, reference_dv_, stream);
  return trouble;
}

std::string BackwardBuffers::compare(const char* name, const DeviceBuffer& tensor,
                                     const TensorStrides& strides, const Sample& sample,
                                     const std::vector<float>& expected, CUstream stream) const {
  RowComparison rows(tensor, output_dtype(spec_),
                     static_cast<int>(expected.size()) / static_cast<int>(sample.count));
  for (std::int64_t r = 0; r < sample.count; ++r) {
    const std::int64_t flat = r * row_step % sample.total, row = flat % sample.length,
                       head = flat / sample.length % sample.heads,
                       batch = flat / sample.length / sample.heads;
    rows.add(place_of(strides, batch, head, row), &expected[static_cast<std::size_t>(r) * rows.elements()],
             stream);
  }
  return rows.is_within(facts(input_dtype(spec_)).tolerance)
             ? ""
             : fmt::format("wrong: relative error {:.3g} of {}", rows.error(), name);
}

}  // namespace jit
