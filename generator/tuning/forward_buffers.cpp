#include "generator/tuning/forward_buffers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/outputs.h>
#include <jit/spec_table.h>

#include "generator/build/kernel_store.h"
#include "generator/functors/functor_tensors.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/arguments.h"
#include "generator/problem/dropout_arguments.h"
#include "generator/program/emit.h"
#include "generator/tuning/sampled_rows.h"
#include "generator/tuning/tuning_problem.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"
#include "templates/checks/reference_rows.cuh"
#include "templates/mainloop/arrival_table.cuh"

namespace jit {
namespace {

constexpr double lse_tolerance = 0.01;
constexpr float typical_dropout = 0.1f;  // its value does not affect speed

}  // namespace

AttentionSpec dense_spec(AttentionSpec spec) {
  spec.sequences_q = spec.sequences_kv = SequenceKind::dense;
  spec.page_size = spec.split_keys = 0;
  spec.sinks = spec.checked = false;
  return spec;
}

bool can_time(const AttentionSpec& spec) {
  if (has_lists(spec)) return false;  // lists are not modeled: here each query would need its own keys
  if (facts(spec.key_dtype()).row_bytes != 0) return false;  // the reference cannot read latent rows
  const std::vector<FunctorTensorUse> uses = functor_tensor_uses(spec);
  return std::none_of(uses.begin(), uses.end(), [&](const FunctorTensorUse& use) {
    if (use.tensor.access != TensorAccess::pointer) return has_varlen_q(spec);
    if (use.row == nullptr || !use.row->varlen_dims) return false;
    return use.row->has_row_for_each_key ? spec.sequences_kv == SequenceKind::varlen : has_varlen_q(spec);
  });
}

std::vector<Program> forward_check_programs(const AttentionSpec& spec) {
  std::vector<Program> programs = {emit_random_fill(input_dtype(spec)), emit_reference(dense_spec(spec))};
  if (has_narrow_keys(spec)) programs.push_back(emit_random_fill(spec.key_dtype()));
  return programs;
}

ForwardBuffers::ForwardBuffers(KernelStore& store, const AttentionSpec& spec, const DeviceInfo& device,
                               const AttentionParams& params, CUstream stream, std::int64_t more_entry_bytes)
    : spec_(spec), device_(device), params_(params) {
  const std::int64_t heads_kv = params_.heads_q / spec_.gqa_ratio;
  const std::int64_t d = spec_.head_dim, dv = spec_.value_head_dim();
  // Columns of a row of k, and of a separate row of v.
  const std::int64_t k_row = stored_columns(spec_, spec_.head_dim),
                     v_row = stored_columns(spec_, spec_.value_head_dim());
  const std::int64_t own_dv = spec_.values_in_keys ? 0 : v_row;
  const ProblemShape shape = shape_of(params_);
  const std::int64_t q_entry = shape.seqlen_q * params_.heads_q;
  const std::int64_t kv_entry = shape.seqlen_kv * heads_kv;
  const int in = size_of(input_dtype(spec_)), kv_in = size_of(spec_.key_dtype());
  const int out = size_of(output_dtype(spec_)), fp32 = size_of(DType::fp32);
  const std::int64_t entry_bytes =
      q_entry * d * in + kv_entry * (k_row + own_dv) * kv_in + q_entry * (dv * out + fp32) + more_entry_bytes;
  params_.batch = affordable_batch(params_.batch, entry_bytes);

  const auto allocate = [&](std::int64_t elements, int bytes) {
    return DeviceBuffer(device_.ordinal,
                        static_cast<std::size_t>(std::max<std::int64_t>(1, elements) * bytes));
  };
  q_ = allocate(params_.batch * q_entry * d, in);
  k_ = allocate(params_.batch * kv_entry * k_row, kv_in);
  v_ = allocate(params_.batch * kv_entry * own_dv, kv_in);
  o_ = allocate(params_.batch * q_entry * dv, out);
  lse_ = allocate(params_.batch * q_entry, fp32);

  const auto strides = [](std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
    return TensorStrides{.batch = seqlen * heads * head_dim, .seq = heads * head_dim, .head = head_dim};
  };
  params_.q = q_.data();
  params_.k = k_.data();
  params_.v = spec_.values_in_keys ? k_.data() : v_.data();
  params_.o = o_.data();
  params_.lse = static_cast<float*>(lse_.data());
  params_.q_strides = strides(shape.seqlen_q, params_.heads_q, d);
  params_.k_strides = strides(shape.seqlen_kv, heads_kv, k_row);
  params_.v_strides = strides(shape.seqlen_kv, heads_kv, spec_.values_in_keys ? k_row : v_row);
  params_.o_strides = strides(shape.seqlen_q, params_.heads_q, dv);
  params_.lse_strides = {.batch = q_entry, .seq = 1, .head = shape.seqlen_q};
  dense_ = params_;
  dense_.seqlen_q = static_cast<int>(shape.seqlen_q);
  dense_.seqlen_kv = static_cast<int>(shape.seqlen_kv);
  dense_.sequences = {};
  describe_sequences();
  describe_scales();
  describe_outputs();
  let_keys_be_there();
  if (spec_.dropout) {
    constexpr std::array<std::int64_t, 2> rng_state = {1, 2};
    DropoutParams& dropout = params_.dropout;
    set_dropout_rate(dropout, typical_dropout);
    dropout.rng_state = static_cast<const unsigned long long*>(array_of(rng_state.data(), sizeof rng_state));
    dense_.dropout = dropout;
  }

  fill_inputs(store, stream);
  run_reference(store, stream);
}

// Marks all keys as arrived: arrivals of the call may be pending, and its keys are not read here.
void ForwardBuffers::let_keys_be_there() {
  if (!spec_.key_arrivals) return;
  constexpr ArrivalHeader all_there = {};
  const std::vector<FunctorTensorSpec> tensors = functor_tensors(spec_);
  FunctorTensor& table = params_.tensors[tensors.size() - 1];  // the last one
  table.data = array_of(&all_there, sizeof all_there);
  table.rows = arrival_header_rows;
  dense_.tensors[tensors.size() - 1] = table;
}

// An array on the device, owned by these buffers.
const void* ForwardBuffers::array_of(const void* host, std::size_t bytes) {
  const DeviceBuffer& buffer =
      sequence_arrays_.emplace_back(device_.ordinal, std::max<std::size_t>(4, bytes));
  if (bytes > 0) buffer.upload(host, bytes);
  return buffer.data();
}

// Sets params_ to varlen and paged sequences, with own arrays in place of the call's.
void ForwardBuffers::describe_sequences() {
  SequenceParams& sequences = params_.sequences;
  const int batch = params_.batch;
  const auto filled = [&](const int*& given, std::size_t count, auto value_of) {
    if (given == nullptr) return;
    std::vector<int> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value_of(static_cast<int>(i));
    given = static_cast<const int*>(array_of(values.data(), count * sizeof(int)));
  };
  const auto entries = static_cast<std::size_t>(batch);
  filled(sequences.cu_seqlens_q, entries + 1, [&](int i) { return i * dense_.seqlen_q; });
  filled(sequences.cu_seqlens_k, entries + 1, [&](int i) { return i * dense_.seqlen_kv; });
  filled(sequences.seqused_q, entries, [&](int) { return dense_.seqlen_q; });
  filled(sequences.seqused_k, entries, [&](int) { return dense_.seqlen_kv; });
  filled(sequences.cache_leftpad, entries, [](int) { return 0; });
  filled(sequences.page_table, entries * static_cast<std::size_t>(sequences.max_pages),
         [](int i) { return i; });
  if (sequences.sinks != nullptr) {
    const std::vector<float> sinks(static_cast<std::size_t>(params_.heads_q), -HUGE_VALF);
    sequences.sinks = static_cast<const float*>(array_of(sinks.data(), sinks.size() * sizeof(float)));
  }
  if (sequences.cu_seqlens_q != nullptr) {
    params_.seqlen_q = sequences.total_q = batch * dense_.seqlen_q;
    params_.q_strides.batch = params_.o_strides.batch = 0;
    params_.lse_strides = {.batch = 0, .seq = 1, .head = sequences.total_q};
    dense_.lse_strides = {.batch = dense_.seqlen_q, .seq = 1, .head = sequences.total_q};
  }
  if (sequences.cu_seqlens_k != nullptr) {
    params_.seqlen_kv = sequences.total_k = batch * dense_.seqlen_kv;
    params_.k_strides.batch = params_.v_strides.batch = 0;
  }
  if (sequences.page_table != nullptr) {
    sequences.pages = batch * sequences.max_pages;
    sequences.page_table_stride = sequences.max_pages;
    params_.k_strides.batch = spec_.page_size * params_.k_strides.seq;
    params_.v_strides.batch = spec_.page_size * params_.v_strides.seq;
  }
}

// Allocates outputs besides o and LSE that the spec requests.
void ForwardBuffers::describe_outputs() {
  if (!spec_.output.is_none() && !has_narrow_keys(spec_)) params_.outputs.o_raw = nullptr;
  const std::int64_t rows = shape_of(params_).seqlen_q * params_.heads_q * params_.batch;
  if (has_quantized_output(spec_)) {
    o_scales_ = DeviceBuffer(device_.ordinal, static_cast<std::size_t>(rows) * sizeof(float));
    params_.outputs.o_descale = static_cast<float*>(o_scales_.data());
    params_.outputs.o_descale_strides = params_.lse_strides;
  }
  for (const ArgumentRow& row : argument_table) {
    const auto is_it = [&](const OutputField& output) { return output.view == row.view; };
    const auto output = std::find_if(output_fields.begin(), output_fields.end(), is_it);
    if (output == output_fields.end() || !(spec_.*output->asked) || row.name == "o_descale") continue;
    if (row.name == "running_lse") {  // each measured call begins
      row.set(params_, nullptr, {});
      continue;
    }
    const std::int64_t count = output->is_of_rows ? rows : params_.heads_q;
    const DeviceBuffer& buffer =
        sequence_arrays_.emplace_back(device_.ordinal, static_cast<std::size_t>(count) * sizeof(float));
    clear_output(TensorView::dense(buffer.data(), DType::fp32, {count}));
    row.set(params_, buffer.data(), params_.lse_strides);
  }
  if (!spec_.mean_score || has_quantized_output(spec_)) return;
  // The gradient of mean_score, for backward.
  const std::vector<float> zeros(static_cast<std::size_t>(rows));
  params_.outputs.d_mean_score =
      static_cast<const float*>(array_of(zeros.data(), zeros.size() * sizeof(float)));
  params_.outputs.d_mean_score_strides = params_.lse_strides;
}

// Sets scales: different ones per key or column if the spec has them, else a constant; 1 for blocks of varlen
// rows and of pages, which are not the blocks of dense sequences. Means differ from column to column;
// lse_shift is zero.
void ForwardBuffers::describe_scales() {
  DescaleParams &own = params_.descale, &dense = dense_.descale;
  const bool has_blocks = spec_.descale_per == ScaleKind::block;
  const auto rows_of = [&](std::int64_t rows) { return has_blocks ? scale_blocks_of(rows) : rows; };
  const std::int64_t heads = params_.heads_kv, seqlen = rows_of(dense_.seqlen_kv);
  const std::int64_t page = rows_of(std::max(1, spec_.page_size));
  const auto array_with = [&](std::int64_t count, const auto& value) {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = value(i);
    return static_cast<const float*>(array_of(numbers.data(), numbers.size() * sizeof(float)));
  };
  // Random bits as integers have a wider distribution than a normal sample.
  const float unit = spec_.key_dtype() == DType::int8   ? 1.0f / 74
                     : spec_.key_dtype() == DType::int4 ? 1.0f / 6
                                                        : 1;
  const auto drawn = [&](std::int64_t count) {
    return array_with(count, [&](std::size_t i) { return unit * (0.5f + static_cast<float>(i % 7) / 7); });
  };
  const std::int64_t columns = spec_.value_head_dim();
  const TensorStrides of_columns{.batch = 0, .seq = 0, .head = columns};
  if (spec_.v_descale_per == ScaleKind::channel) {
    dense.v = drawn(heads * columns);
    dense.v_strides = of_columns;
  }
  if (spec_.descale_per == ScaleKind::head && unit != 1)
    dense.k = dense.v = array_with(1, [&](std::size_t) { return unit; });
  if (spec_.v_mean) {
    dense.v_mean = drawn(heads * columns);
    dense.v_mean_strides = of_columns;
  }
  if (scale_columns(spec_) != 0) describe_block_scales(dense);
  if (spec_.lse_shift) dense.lse_shift = array_with(1, [](std::size_t) { return 0.0f; });
  own = dense;
  if (scale_columns(spec_) != 0) {
    const std::int64_t rows = params_.sequences.page_table != nullptr ? page : 0;
    own.k_blocks_strides.batch = rows * own.k_blocks_strides.seq;
    own.v_blocks_strides.batch = rows * own.v_blocks_strides.seq;
    if (params_.sequences.page_table == nullptr && params_.sequences.cu_seqlens_k == nullptr) own = dense;
  }
  if (spec_.descale_per == ScaleKind::head) return;
  const auto of_rows = [&](std::int64_t count) {
    if (!has_blocks || is_dense(spec_)) return drawn(count);
    return array_with(count, [](std::size_t) { return 1.0f; });
  };
  const std::int64_t in_pages = params_.sequences.page_table != nullptr ? params_.sequences.pages * page : 0;
  const float* const data = of_rows(std::max(dense_.batch * seqlen, in_pages) * heads);
  const TensorStrides strides{.batch = seqlen * heads, .seq = heads, .head = 1};
  dense.k = data;
  dense.k_strides = strides;
  if (spec_.v_descale_per != ScaleKind::channel) {
    dense.v = data;
    dense.v_strides = strides;
  }
  if (has_fp8_queries(spec_)) {
    const std::int64_t queries = rows_of(dense_.seqlen_q), heads_q = params_.heads_q;
    dense.q = of_rows(dense_.batch * queries * heads_q);
    dense.q_strides = {.batch = queries * heads_q, .seq = heads_q, .head = 1};
    // V has at most one scale per KV head.
    dense.v_strides.batch = dense.v_strides.seq = 0;
  }
  own = dense;
  if (params_.sequences.cu_seqlens_q != nullptr) own.q_strides.batch = 0;
  if (params_.sequences.cu_seqlens_k != nullptr) own.k_strides.batch = own.v_strides.batch = 0;
  if (params_.sequences.page_table != nullptr) own.k_strides.batch = own.v_strides.batch = page * heads;
}

// Sets block scales of dense sequences, whose rows pages hold in order, so that random bits are about as wide
// as a normal sample.
void ForwardBuffers::describe_block_scales(DescaleParams& dense) {
  const std::int64_t heads = params_.heads_kv, columns = scale_columns(spec_);
  const std::int64_t rows = std::max<std::int64_t>(std::int64_t{dense_.batch} * dense_.seqlen_kv,
                                                   std::int64_t{params_.sequences.pages} * spec_.page_size);
  const int first = spec_.key_dtype() == DType::nvfp4 ? 0x28 : 125;  // a quarter, in e4m3 and e8m0
  const auto drawn = [&](std::int64_t blocks, TensorStrides& strides) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(rows * heads * blocks));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(first + i % 3);
    strides = {.batch = dense_.seqlen_kv * heads * blocks, .seq = heads * blocks, .head = blocks};
    return static_cast<const unsigned char*>(array_of(bytes.data(), bytes.size()));
  };
  dense.k_blocks = drawn(spec_.head_dim / columns, dense.k_blocks_strides);
  dense.v_blocks = drawn(spec_.value_head_dim() / columns, dense.v_blocks_strides);
}

void ForwardBuffers::fill_inputs(KernelStore& store, CUstream stream) {
  fill_randomly(store, device_, q_, input_dtype(spec_), 1, stream);
  fill_randomly(store, device_, k_, spec_.key_dtype(), 2, stream);
  fill_randomly(store, device_, v_, spec_.key_dtype(), 3, stream);
  jit::check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void ForwardBuffers::run_reference(KernelStore& store, CUstream stream) {
  const std::int64_t total = std::int64_t{dense_.batch} * dense_.heads_q * dense_.seqlen_q;
  const std::int64_t count = std::min(max_sampled_rows, total);
  const DeviceBuffer o(device_.ordinal,
                       static_cast<std::size_t>(count * spec_.value_head_dim()) * sizeof(float));
  const DeviceBuffer lse(device_.ordinal, static_cast<std::size_t>(count) * sizeof(float));
  ReferenceRows rows{.count = count,
                     .step = row_step,
                     .o = static_cast<float*>(o.data()),
                     .lse = static_cast<float*>(lse.data())};

  const Program program = emit_reference(dense_spec(spec_));
  auto image = build_image(store, program, native_target(device_));
  const Kernel kernel = load_module(store, image).kernel(program.name);
  void* arguments[] = {&dense_, &rows};
  const unsigned warps = static_cast<unsigned>(program.threads) / 32;
  launch(kernel.handle(),
         {.grid = {static_cast<unsigned>((count + warps - 1) / warps), 1, 1},
          .block = {static_cast<unsigned>(program.threads), 1, 1}},
         arguments, stream);
  jit::check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  reference_o_.resize(static_cast<std::size_t>(count * spec_.value_head_dim()));
  reference_lse_.resize(static_cast<std::size_t>(count));
  o.download(reference_o_.data(), reference_o_.size() * sizeof(float), 0, stream);
  lse.download(reference_lse_.data(), reference_lse_.size() * sizeof(float), 0, stream);
  if (has_quantized_output(spec_) && !spec_.o_descale) give_scales();
}

// Sets one output scale for all rows, from the sampled reference.
void ForwardBuffers::give_scales() {
  float most = 0;
  for (const float x : reference_o_) most = std::max(most, std::abs(x));
  const float largest = output_dtype(spec_) == DType::int8 ? 127.0f : 448.0f;
  const std::vector<float> scales(o_scales_.size() / sizeof(float), most == 0 ? 1.0f : most / largest);
  o_scales_.upload(scales.data(), scales.size() * sizeof(float));
}

void ForwardBuffers::run(const Plan& plan, CUstream stream) const {
  AttentionParams params = params_;
  params.lse = nullptr;  // most calls have none
  run_plan(plan, params, memory_, stream);
}

std::string ForwardBuffers::check(const Plan& plan, CUstream stream) const {
  const std::int64_t total = std::int64_t{dense_.batch} * dense_.heads_q * dense_.seqlen_q;
  o_.fill(poison, stream);
  lse_.fill(poison, stream);
  AttentionParams params = params_;
  run_plan(plan, params, memory_, stream);
  jit::check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");

  RowComparison o(o_, output_dtype(spec_), spec_.value_head_dim());
  for (std::size_t r = 0; r < reference_lse_.size(); ++r) {
    const std::int64_t flat = static_cast<std::int64_t>(r) * row_step % total;
    const std::int64_t query = flat % dense_.seqlen_q, slice = flat / dense_.seqlen_q;
    const std::int64_t head = slice % dense_.heads_q, batch = slice / dense_.heads_q;
    const std::int64_t lse_at = place_of(dense_.lse_strides, batch, head, query);
    float lse = 0;
    lse_.download(&lse, sizeof lse, static_cast<std::size_t>(lse_at) * sizeof lse, stream);
    const float expected_lse = reference_lse_[r];
    const bool lse_matches =
        std::isinf(expected_lse) ? lse == expected_lse : std::abs(lse - expected_lse) <= lse_tolerance;
    if (!lse_matches) {
      return fmt::format("wrong: lse of batch {}, head {}, query {} is {}, should be {}", batch, head, query,
                         lse, expected_lse);
    }
    float scale = 1;
    if (has_quantized_output(spec_))
      o_scales_.download(&scale, sizeof scale, static_cast<std::size_t>(lse_at) * sizeof scale, stream);
    o.add(place_of(dense_.o_strides, batch, head, query), &reference_o_[r * o.elements()], stream, scale);
  }
  // One scale may serve rows of all magnitudes, so small ones have rounding errors of up to 10 %.
  const double of_output = has_quantized_output(spec_) ? 0.1 : facts(output_dtype(spec_)).tolerance;
  const double tolerance = std::max(facts(spec_.dtype).tolerance, of_output);
  return o.is_within(tolerance) ? "" : fmt::format("wrong: relative error {:.3g} of the output", o.error());
}

}  // namespace jit
