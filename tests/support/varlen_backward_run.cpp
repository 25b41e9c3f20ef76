#include "tests/support/varlen_backward_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/problem/gradient_arguments.h"
#include "tests/support/host_dropout.h"
#include "tests/support/host_functors.h"

namespace jit::testing {

std::string to_string(const VarlenBackwardCase& problem) {
  const auto side = [](const VarlenSide& of) {
    return fmt::format("[{}] spare [{}] around {}", fmt::join(of.lengths, " "), fmt::join(of.spare, " "),
                       of.around);
  };
  return fmt::format("{}, heads_kv {}, queries {}, keys {}, gaps {}, seed {}", to_string(problem.spec),
                     problem.heads_kv, side(problem.q), side(problem.kv), problem.has_gaps, problem.seed);
}

VarlenBackwardRun::Rows VarlenBackwardRun::rows_of(const VarlenSide& side, bool varlen) {
  const auto batch = static_cast<std::int64_t>(side.lengths.size());
  Rows rows{.varlen = varlen,
            .begins = {varlen ? side.around : 0},
            .count = 0,
            .boundaries = DeviceTensor(DType::int32, {batch + 1}),
            .used = DeviceTensor(DType::int32, {batch}),
            .has_used = !side.spare.empty()};
  for (std::size_t b = 0; b < side.lengths.size(); ++b) {
    rows.begins.push_back(rows.begins.back() + side.room(b));
    rows.count = std::max<std::int64_t>(rows.count, side.room(b));
  }
  if (varlen) rows.count = rows.begins.back() + side.around;
  rows.boundaries.fill([&](std::int64_t b) { return rows.begins[static_cast<std::size_t>(b)]; });
  rows.used.fill([&](std::int64_t b) { return side.lengths[static_cast<std::size_t>(b)]; });
  rows.boundaries.upload();
  rows.used.upload();
  return rows;
}

DeviceTensor VarlenBackwardRun::operand(const Rows& rows, int heads, int columns) const {
  std::vector<std::int64_t> shape = {rows.count, heads, columns};
  std::vector<int> order = {1, 0, 2};
  if (!rows.varlen) {
    shape.insert(shape.begin(), static_cast<std::int64_t>(rows.begins.size()) - 1);
    order = {0, 2, 1, 3};
  }
  if (!case_.has_gaps) return DeviceTensor(case_.spec.dtype, shape);
  const int gap = case_.spec.alignment / 2;
  return DeviceTensor(case_.spec.dtype, shape,
                      {.order = order, .row_elements = (columns + gap - 1) / gap * gap + gap, .first = gap});
}

std::vector<std::int64_t> VarlenBackwardRun::index(const Rows& rows, std::size_t request, std::int64_t row,
                                                   std::int64_t head, std::int64_t column) {
  if (rows.varlen) return {rows.begins[request] + row, head, column};
  return {static_cast<std::int64_t>(request), row, head, column};
}

DeviceTensor VarlenBackwardRun::statistic() const {
  const std::int64_t heads_q = case_.heads_kv * case_.spec.gqa_ratio;
  if (q_rows_.varlen) return DeviceTensor(DType::fp32, {heads_q, q_rows_.count});
  return DeviceTensor(DType::fp32,
                      {static_cast<std::int64_t>(case_.q.lengths.size()), heads_q, q_rows_.count});
}

std::vector<std::int64_t> VarlenBackwardRun::statistic_index(std::size_t request, std::int64_t head,
                                                             std::int64_t row) const {
  if (q_rows_.varlen) return {head, q_rows_.begins[request] + row};
  return {static_cast<std::int64_t>(request), head, row};
}

// Calls visit(index, number of the element among the request's) in the order of a dense tensor.
template <class F>
void VarlenBackwardRun::for_each(const Rows& rows, const VarlenSide& side, int heads, int columns,
                                 std::size_t request, const F& visit) const {
  std::size_t at = 0;
  for (int row = 0; row < side.lengths[request]; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (int column = 0; column < columns; ++column) visit(index(rows, request, row, head, column), at++);
    }
  }
}

VarlenBackwardRun::VarlenBackwardRun(const VarlenBackwardCase& wanted)
    : case_(wanted),
      q_rows_(rows_of(wanted.q, wanted.spec.sequences_q == SequenceKind::varlen)),
      kv_rows_(rows_of(wanted.kv, wanted.spec.sequences_kv == SequenceKind::varlen)),
      q_(operand(q_rows_, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.head_dim)),
      k_(operand(kv_rows_, wanted.heads_kv, wanted.spec.head_dim)),
      v_(operand(kv_rows_, wanted.heads_kv, wanted.spec.value_head_dim())),
      d_o_(operand(q_rows_, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.value_head_dim())),
      o_(operand(q_rows_, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.value_head_dim())),
      lse_(statistic()),
      dq_(operand(q_rows_, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.head_dim)),
      dk_(operand(kv_rows_, wanted.heads_kv, wanted.spec.head_dim)),
      dv_(operand(kv_rows_, wanted.heads_kv, wanted.spec.value_head_dim())),
      rng_state_(0, 2 * sizeof(std::uint64_t)) {
  const AttentionSpec& spec = case_.spec;
  std::mt19937_64 random(case_.seed);
  std::normal_distribution<float> normal;
  const int heads_q = case_.heads_kv * spec.gqa_ratio, d = spec.head_dim, dv = spec.value_head_dim();
  reference::Dropout dropout;
  if (spec.dropout) {
    dropout = {.rate = case_.dropout_p, .seed = random(), .offset = random()};
    const std::uint64_t rng_state[] = {dropout.seed, dropout.offset};
    rng_state_.upload(rng_state, sizeof rng_state);
  }
  for (std::size_t b = 0; b < case_.q.lengths.size(); ++b) {
    reference::GradientProblem request{.batch = 1,
                                       .heads_kv = case_.heads_kv,
                                       .gqa_ratio = spec.gqa_ratio,
                                       .seqlen_q = case_.q.lengths[b],
                                       .seqlen_kv = case_.kv.lengths[b],
                                       .head_dim = d,
                                       .head_dim_v = dv,
                                       .softmax_scale = spec.scale()};
    const auto functors = std::make_shared<const reference::FunctorProblem>(reference::FunctorProblem{
        .batch = 1, .heads_q = heads_q, .seqlen_q = request.seqlen_q, .seqlen_kv = request.seqlen_kv});
    request.keep = reference::host_mask(spec.mask, functors);
    request.score = reference::host_score(spec.score, functors);
    if (spec.dropout) {
      request.weight = [dropout, heads_q, entry = static_cast<int>(b)](int, int h, int q, int k) {
        return dropout.keeps(heads_q, entry, h, q, k) ? 1 / (1 - dropout.rate) : 0;
      };
    }
    const auto randomize = [&](DeviceTensor& tensor, const Rows& rows, const VarlenSide& side, int heads,
                               int columns, std::vector<double>& numbers) {
      for_each(rows, side, heads, columns, b, [&](const std::vector<std::int64_t>& at, std::size_t) {
        tensor.set(at, normal(random));
        numbers.push_back(tensor.get(at));
      });
    };
    randomize(q_, q_rows_, case_.q, heads_q, d, request.q);
    randomize(k_, kv_rows_, case_.kv, case_.heads_kv, d, request.k);
    randomize(v_, kv_rows_, case_.kv, case_.heads_kv, dv, request.v);
    randomize(d_o_, q_rows_, case_.q, heads_q, dv, request.d_o);
    const reference::ForwardResult forward = reference::attention_forward(request);
    for_each(q_rows_, case_.q, heads_q, dv, b,
             [&](const std::vector<std::int64_t>& at, std::size_t i) { o_.set(at, forward.o[i]); });
    for (int head = 0; head < heads_q; ++head) {
      for (int row = 0; row < request.seqlen_q; ++row)
        lse_.set(statistic_index(b, head, row),
                 forward.lse[static_cast<std::size_t>(head * request.seqlen_q + row)]);
    }
    requests_.push_back(std::move(request));
  }
  for (const DeviceTensor* tensor : {&q_, &k_, &v_, &d_o_, &o_, &lse_}) tensor->upload();
  poison_gradients();
}

BackwardArguments VarlenBackwardRun::arguments(bool deterministic) const {
  BackwardArguments arguments{.d_o = d_o_.view(),
                              .q = q_.view(),
                              .k = k_.view(),
                              .v = v_.view(),
                              .o = o_.view(),
                              .lse = lse_.view(),
                              .dq = dq_.view(),
                              .dk = dk_.view(),
                              .dv = dv_.view()};
  if (q_rows_.varlen) arguments.cu_seqlens_q = q_rows_.boundaries.view();
  if (kv_rows_.varlen) arguments.cu_seqlens_k = kv_rows_.boundaries.view();
  if (q_rows_.has_used) arguments.seqused_q = q_rows_.used.view();
  if (kv_rows_.has_used) arguments.seqused_k = kv_rows_.used.view();
  arguments.deterministic = deterministic;
  if (case_.spec.dropout) {
    arguments.dropout_p = case_.dropout_p;
    arguments.rng_state = TensorView::dense(rng_state_.data(), DType::int64, {2});
  }
  return arguments;
}

void VarlenBackwardRun::poison_gradients() {
  for (DeviceTensor* tensor : {&dq_, &dk_, &dv_}) {
    tensor->poison();
    tensor->upload();
  }
}

void VarlenBackwardRun::compute(const Context& context, const KernelConfig& dq,
                                const KernelConfig& dkv) const {
  run(context, two_pass_plan(*Access::state(context), case_.spec, {}, dq, dkv, 0));
}

void VarlenBackwardRun::compute(const Context& context, const KernelConfig& config) const {
  run(context, one_pass_plan(*Access::state(context), case_.spec, config, 0));
}

void VarlenBackwardRun::run(const Context& context, const Plan& plan) const {
  AttentionParams params;
  GradientParams gradients;
  const BackwardArguments given = arguments();
  if (fill_params(case_.spec, functor_tensor_uses(case_.spec), given, params, gradients))
    run_plan(plan, params, Access::state(context)->memory, nullptr, &gradients);
}

std::string VarlenBackwardRun::check_forward(const Context& context,
                                             const std::optional<KernelConfig>& config,
                                             std::vector<std::uint8_t>* o_bytes) const {
  const int heads_q = case_.heads_kv * case_.spec.gqa_ratio, dv = case_.spec.value_head_dim();
  DeviceTensor o = operand(q_rows_, heads_q, dv), lse = statistic(), other_o = operand(q_rows_, heads_q, dv),
               other_lse = statistic();
  for (DeviceTensor* tensor : {&o, &lse, &other_o, &other_lse}) {
    tensor->poison();
    tensor->upload();
  }
  const BackwardArguments given = arguments();
  attention(case_.spec, config, context)({.q = given.q,
                                          .k = given.k,
                                          .v = given.v,
                                          .o = o.view(),
                                          .lse = lse.view(),
                                          .cu_seqlens_q = given.cu_seqlens_q,
                                          .cu_seqlens_k = given.cu_seqlens_k,
                                          .seqused_q = given.seqused_q,
                                          .seqused_k = given.seqused_k,
                                          .dropout_p = given.dropout_p,
                                          .rng_state = given.rng_state});
  o.download();
  lse.download();
  std::string trouble;
  for (std::size_t b = 0; b < requests_.size() && trouble.empty(); ++b) {
    const reference::ForwardResult exact = reference::attention_forward(requests_[b]);
    double largest = 0;
    for (const double value : exact.o) largest = std::max(largest, std::abs(value));
    const auto compare = [&](const char* name, double got, double right, double limit) {
      if (got == right || std::abs(got - right) <= limit || !trouble.empty()) return;
      trouble = fmt::format("{} of request {} is {}, should be {} within {}", name, b, got, right, limit);
    };
    for_each(q_rows_, case_.q, heads_q, dv, b, [&](const std::vector<std::int64_t>& at, std::size_t i) {
      compare("o", o.get(at), exact.o[i], largest / 64);  // some roundings to 8 bits
      other_o.set(at, o.get(at));
    });
    std::size_t i = 0;
    for (int head = 0; head < heads_q; ++head) {
      for (int row = 0; row < case_.q.lengths[b]; ++row) {
        const std::vector<std::int64_t> at = statistic_index(b, head, row);
        compare("lse", lse.get(at), exact.lse[i++], 1e-3);
        other_lse.set(at, lse.get(at));
      }
    }
  }
  if (trouble.empty() && (o.bytes() != other_o.bytes() || lse.bytes() != other_lse.bytes()))
    trouble = "bytes around o or lse were written";
  if (o_bytes != nullptr) *o_bytes = o.bytes();
  return trouble;
}

std::vector<std::uint8_t> VarlenBackwardRun::gradients() {
  std::vector<std::uint8_t> bytes;
  for (DeviceTensor* tensor : {&dq_, &dk_, &dv_}) {
    tensor->download();
    bytes.insert(bytes.end(), tensor->bytes().begin(), tensor->bytes().end());
  }
  return bytes;
}

std::string VarlenBackwardRun::check() {
  gradients();
  const AttentionSpec& spec = case_.spec;
  const int heads_q = case_.heads_kv * spec.gqa_ratio;
  DeviceTensor dq = operand(q_rows_, heads_q, spec.head_dim),
               dk = operand(kv_rows_, case_.heads_kv, spec.head_dim),
               dv = operand(kv_rows_, case_.heads_kv, spec.value_head_dim());
  std::string trouble;
  for (std::size_t b = 0; b < requests_.size(); ++b) {
    const reference::GradientResult exact = reference::attention_gradients(requests_[b]);
    const reference::GradientResult plain = reference::attention_gradients_plain(requests_[b], spec.dtype);
    // Right elements are copied to `untouched`.
    const auto compare = [&](const char* name, const DeviceTensor& tensor, DeviceTensor& untouched,
                             const Rows& rows, const VarlenSide& side, int heads, int columns,
                             const std::vector<double>& right, const std::vector<double>& unfused,
                             double cancellation = 0) {
      const double limit = reference::error_limit(spec.dtype, unfused, right) + std::max(1e-5, cancellation);
      for_each(rows, side, heads, columns, b, [&](const std::vector<std::int64_t>& at, std::size_t i) {
        const double got = tensor.get(at);
        if (!(std::abs(got - right[i]) <= limit) && trouble.empty())
          trouble = fmt::format("{}[{}] of request {} is {}, should be {} within {}", name,
                                fmt::join(at, ", "), b, got, right[i], limit);
        untouched.set(at, got);
      });
    };
    compare("dq", dq_, dq, q_rows_, case_.q, heads_q, spec.head_dim, exact.dq, plain.dq,
            exact.dq_cancellation);
    compare("dk", dk_, dk, kv_rows_, case_.kv, case_.heads_kv, spec.head_dim, exact.dk, plain.dk,
            exact.dk_cancellation);
    compare("dv", dv_, dv, kv_rows_, case_.kv, case_.heads_kv, spec.value_head_dim(), exact.dv, plain.dv);
  }
  for (const auto& [name, written, untouched] :
       {std::tuple{"dq", &dq_, &dq}, {"dk", &dk_, &dk}, {"dv", &dv_, &dv}}) {
    if (trouble.empty() && written->bytes() != untouched->bytes())
      trouble = fmt::format("bytes around {} were written", name);
  }
  return trouble;
}

}  // namespace jit::testing
