#include "tests/support/backward_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/gradient_arguments.h"
#include "tests/support/float16.h"
#include "tests/support/host_dropout.h"
#include "tests/support/host_functors.h"

namespace jit::testing {
namespace {

// Elements in the order of their indices.
std::vector<double> numbers(const DeviceTensor& tensor) {
  std::vector<double> values;
  for (std::int64_t flat = 0; flat < tensor.count(); ++flat) values.push_back(tensor.get(tensor.index(flat)));
  return values;
}

void fill(DeviceTensor& tensor, const std::vector<double>& values) {
  tensor.fill([&](std::int64_t flat) { return values[static_cast<std::size_t>(flat)]; });
  tensor.upload();
}

reference::ScoreFunction meaning(const AttentionCase& problem,
                                 const std::shared_ptr<const reference::FunctorProblem>& functors) {
  if (!problem.text_score) return reference::host_score(problem.spec.score, functors);
  return [text = problem.text_score, functors](double score, int b, int h, int q, int k) {
    return text(*functors, score, b, h, q, k);
  };
}

// The tensors of a problem, one of them in fp32, and there one element moved.
std::shared_ptr<reference::FunctorProblem> moved(const reference::FunctorProblem& problem,
                                                 const std::string& name, std::size_t element,
                                                 float distance) {
  auto copy = std::make_shared<reference::FunctorProblem>(problem);
  reference::FunctorData& data = copy->tensors.at(name);
  std::vector<float> values(data.bytes.size() / static_cast<std::size_t>(size_of(data.dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    if (data.dtype == DType::fp32) {
      std::memcpy(&values[i], &data.bytes[4 * i], 4);
    } else {
      std::memcpy(&half, &data.bytes[2 * i], 2);
      values[i] = reference::to_float(data.dtype, half);
    }
  }
  values[element] += distance;
  data.dtype = DType::fp32;
  const auto bytes = std::as_bytes(std::span(values));
  data.bytes.assign(bytes.begin(), bytes.end());
  return copy;
}

}  // namespace

DeviceTensor BackwardRun::operand(int seqlen, int heads, int columns) const {
  const std::vector<std::int64_t> shape = {case_.batch, seqlen, heads, columns};
  if (case_.layout != Layout::padded) return DeviceTensor(case_.spec.dtype, shape);
  const int gap = case_.spec.alignment / 2;
  return DeviceTensor(
      case_.spec.dtype, shape,
      {.order = {0, 2, 1, 3}, .row_elements = (columns + gap - 1) / gap * gap + gap, .first = gap});
}

BackwardRun::BackwardRun(const AttentionCase& wanted)
    : case_(wanted),
      q_(operand(wanted.seqlen_q, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.head_dim)),
      k_(operand(wanted.seqlen_kv, wanted.heads_kv, wanted.spec.head_dim)),
      v_(operand(wanted.seqlen_kv, wanted.heads_kv, wanted.spec.value_head_dim())),
      d_o_(operand(wanted.seqlen_q, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.value_head_dim())),
      o_(operand(wanted.seqlen_q, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.value_head_dim())),
      lse_(DType::fp32, {wanted.batch, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.seqlen_q},
           wanted.layout == Layout::padded ? TensorLayout{.order = {0, 2, 1}, .row_elements = 0, .first = 1}
                                           : TensorLayout{}),
      dq_(operand(wanted.seqlen_q, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.spec.head_dim)),
      dk_(operand(wanted.seqlen_kv, wanted.heads_kv, wanted.spec.head_dim)),
      dv_(operand(wanted.seqlen_kv, wanted.heads_kv, wanted.spec.value_head_dim())),
      rng_state_(0, 2 * sizeof(std::uint64_t)),
      d_lse_(DType::fp32, {wanted.batch, wanted.heads_kv * wanted.spec.gqa_ratio, wanted.seqlen_q},
             {.order = {0, 2, 1}, .row_elements = 0, .first = 3}),
      sinks_(DType::fp32, {wanted.heads_kv * wanted.spec.gqa_ratio}),
      d_sinks_(DType::fp32, {wanted.heads_kv * wanted.spec.gqa_ratio}) {
  const AttentionSpec& spec = case_.spec;
  std::mt19937_64 random(case_.seed);
  std::normal_distribution<float> normal(0, case_.amplitude);
  for (DeviceTensor* tensor : {&q_, &k_, &v_, &d_o_}) {
    tensor->fill([&](std::int64_t) { return normal(random); });
    tensor->upload();
  }
  functors_ = std::make_shared<const reference::FunctorProblem>(
      reference::random_functor_problem(spec, case_.batch, case_.heads_kv * spec.gqa_ratio, case_.seqlen_q,
                                        case_.seqlen_kv, random, case_.shapes));
  problem_ = {.batch = case_.batch,
              .heads_kv = case_.heads_kv,
              .gqa_ratio = spec.gqa_ratio,
              .seqlen_q = case_.seqlen_q,
              .seqlen_kv = case_.seqlen_kv,
              .head_dim = spec.head_dim,
              .head_dim_v = spec.value_head_dim(),
              .q = numbers(q_),
              .k = numbers(k_),
              .v = numbers(v_),
              .d_o = numbers(d_o_),
              .softmax_scale = spec.scale(),
              .keep = reference::host_mask(spec.mask, functors_),
              .score = case_.score ? case_.score : meaning(case_, functors_)};
  if (spec.dropout) {
    const reference::Dropout dropout{.rate = case_.dropout_p, .seed = random(), .offset = random()};
    const std::uint64_t rng_state[] = {dropout.seed, dropout.offset};
    upload_rng_state(rng_state);
    problem_.weight = [dropout, functors = functors_, heads = problem_.heads_q()](int b, int h, int q,
                                                                                  int k) {
      return dropout.keeps(heads, b, h, functors->query(b, q), functors->key(b, k)) ? 1 / (1 - dropout.rate)
                                                                                    : 0;
    };
  }
  d_lse_.fill([&](std::int64_t) { return normal(random); });
  sinks_.fill([&](std::int64_t) { return normal(random) + case_.sinks_from; });
  for (DeviceTensor* tensor : {&d_lse_, &sinks_}) tensor->upload();
  if (case_.with_d_lse) problem_.d_lse = numbers(d_lse_);
  if (spec.sinks) problem_.sinks = numbers(sinks_);
  const reference::ForwardResult forward = reference::attention_forward(problem_);
  fill(o_, forward.o);
  fill(lse_, forward.lse);

  for (const FunctorTensorSpec& wanted_tensor : functor_tensors(spec)) {
    const reference::FunctorData& data = functors_->tensors.at(wanted_tensor.name);
    FunctorTensor tensor{
        .name = wanted_tensor.name, .memory = DeviceBuffer(0, data.bytes.size() + 16), .view = {}};
    tensor.memory.upload(data.bytes.data(), data.bytes.size());
    tensor.view = {
        .data = tensor.memory.data(), .dtype = data.dtype, .rank = static_cast<int>(data.shape.size())};
    std::int64_t stride = 1;
    for (int i = tensor.view.rank - 1; i >= 0; --i) {
      tensor.view.shape[i] = data.shape[static_cast<std::size_t>(i)];
      tensor.view.strides[i] = stride;
      stride *= tensor.view.shape[i];
    }
    tensors_.push_back(std::move(tensor));
  }
  for (const std::string& name : case_.d_tensors) {
    const reference::FunctorData& data = functors_->tensors.at(name);
    // The last dimension outermost, and memory in front.
    TensorLayout layout{.order = {}, .row_elements = 0, .first = 5};
    for (int i = 0; i < static_cast<int>(data.shape.size()); ++i)
      layout.order.insert(layout.order.begin(), i);
    d_tensors_.emplace_back(data.dtype, data.shape, layout);
  }
  poison_gradients();
}

BackwardArguments BackwardRun::arguments(bool deterministic) const {
  BackwardArguments arguments{.d_o = d_o_.view(),
                              .q = q_.view(),
                              .k = k_.view(),
                              .v = v_.view(),
                              .o = o_.view(),
                              .lse = lse_.view(),
                              .dq = dq_.view(),
                              .dk = dk_.view(),
                              .dv = dv_.view()};
  arguments.deterministic = deterministic;
  if (case_.spec.dropout) {
    arguments.dropout_p = case_.dropout_p;
    arguments.rng_state = TensorView::dense(rng_state_.data(), DType::int64, {2});
  }
  if (case_.with_d_lse) arguments.d_lse = d_lse_.view();
  if (case_.spec.sinks) {
    arguments.sinks = sinks_.view();
    arguments.d_sinks = d_sinks_.view();
  }
  for (std::size_t i = 0; i < d_tensors_.size(); ++i)
    arguments.d_tensors.add({case_.d_tensors[i], d_tensors_[i].view()});
  for (const FunctorTensor& tensor : tensors_) arguments.tensors.add({tensor.name, tensor.view});
  return arguments;
}

std::vector<DeviceTensor*> BackwardRun::written() {
  std::vector<DeviceTensor*> tensors = {&dq_, &dk_, &dv_, &d_sinks_};
  for (DeviceTensor& tensor : d_tensors_) tensors.push_back(&tensor);
  return tensors;
}

void BackwardRun::scale_do(double factor) {
  d_o_.fill([&](std::int64_t flat) { return problem_.d_o[static_cast<std::size_t>(flat)] * factor; });
  d_o_.upload();
}

std::vector<double> BackwardRun::numbers_of(const std::string& name) {
  const auto found = std::find(case_.d_tensors.begin(), case_.d_tensors.end(), name);
  DeviceTensor& tensor = d_tensors_.at(static_cast<std::size_t>(found - case_.d_tensors.begin()));
  tensor.download();
  return numbers(tensor);
}

void BackwardRun::poison_gradients() {
  for (DeviceTensor* tensor : written()) {
    tensor->poison();
    tensor->upload();
  }
}

void BackwardRun::upload_rng_state(std::span<const std::uint64_t, 2> seed_and_offset) const {
  rng_state_.upload(seed_and_offset.data(), seed_and_offset.size_bytes());
}

void BackwardRun::compute(const Context& context, const KernelConfig& dq, const KernelConfig& dkv) const {
  run(context, two_pass_plan(*Access::state(context), case_.spec, {}, dq, dkv, 0));
}

void BackwardRun::compute(const Context& context, const KernelConfig& config) const {
  run(context, one_pass_plan(*Access::state(context), case_.spec, config, 0));
}

void BackwardRun::run(const Context& context, const Plan& plan) const {
  AttentionParams params;
  GradientParams gradients;
  const BackwardArguments given = arguments();
  if (fill_params(case_.spec, functor_tensor_uses(case_.spec), given, params, gradients))
    run_plan(plan, params, Access::state(context)->memory, nullptr, &gradients);
}

std::vector<std::uint8_t> BackwardRun::gradients() {
  std::vector<std::uint8_t> bytes;
  for (DeviceTensor* tensor : written()) {
    tensor->download();
    bytes.insert(bytes.end(), tensor->bytes().begin(), tensor->bytes().end());
  }
  return bytes;
}

BackwardRun::Sums BackwardRun::tensor_gradient(const std::string& name,
                                               const std::vector<SeenScore>& scores) const {
  const reference::FunctorData& data = functors_->tensors.at(name);
  Sums sums{.values =
                std::vector<double>(data.bytes.size() / static_cast<std::size_t>(size_of(data.dtype)), 0)};
  for (std::size_t element = 0; element < sums.values.size(); ++element) {
    constexpr float step = 0x1p-8f;
    const reference::ScoreFunction above = meaning(case_, moved(*functors_, name, element, step));
    const reference::ScoreFunction below = meaning(case_, moved(*functors_, name, element, -step));
    double magnitude = 0;
    for (const auto& [b, h, q, k, raw, gradient] : scores) {
      const double addend = gradient * (above(raw, b, h, q, k) - below(raw, b, h, q, k)) / (2 * step);
      sums.values[element] += addend;
      magnitude += std::abs(addend);
    }
    sums.largest_magnitude = std::max(sums.largest_magnitude, magnitude);
  }
  return sums;
}

std::string BackwardRun::check() {
  error_ratio_ = 0;
  gradients();
  const DType dtype = case_.spec.dtype;
  std::vector<SeenScore> scores, plain_scores;
  const auto see = [this](std::vector<SeenScore>& all) -> reference::SeeScore {
    if (case_.d_tensors.empty()) return nullptr;
    return [&all](int b, int h, int q, int k, double raw, double gradient) {
      all.push_back({b, h, q, k, raw, gradient});
    };
  };
  const reference::GradientResult exact = reference::attention_gradients(problem_, see(scores));
  const reference::GradientResult plain =
      reference::attention_gradients_plain(problem_, dtype, see(plain_scores));
  // With few elements the plain gradients may be right by chance.
  const bool are_few = problem_.q.size() < 65536;
  const reference::GradientResult by_rounded_o =
      are_few ? reference::attention_gradients_by_rounded_o(problem_, dtype) : exact;
  const auto compare = [&](const std::string& name, DeviceTensor& tensor, const std::vector<double>& right,
                           const std::vector<double>& unfused, double least = 0,
                           double cancellation = 0) -> std::string {
    const double limit =
        std::max(least, reference::error_limit(dtype, unfused, right)) + std::max(1e-5, cancellation);
    for (std::int64_t flat = 0; flat < tensor.count(); ++flat) {
      const std::vector<std::int64_t> at = tensor.index(flat);
      const double got = tensor.get(at), expected = right[static_cast<std::size_t>(flat)];
      error_ratio_ = std::max(error_ratio_, std::abs(got - expected) / limit);
      if (!(std::abs(got - expected) <= limit))
        return fmt::format("{}[{}] is {}, should be {} within {}", name, fmt::join(at, ", "), got, expected,
                           limit);
    }
    const std::vector<double> got = numbers(tensor);
    const std::vector<std::uint8_t> bytes = tensor.bytes();
    tensor.poison();
    tensor.fill([&](std::int64_t flat) { return got[static_cast<std::size_t>(flat)]; });
    return bytes == tensor.bytes() ? "" : fmt::format("bytes around {} were written", name);
  };
  std::string trouble =
      compare("dq", dq_, exact.dq, plain.dq, reference::error_limit(dtype, by_rounded_o.dq, exact.dq),
              exact.dq_cancellation);
  if (trouble.empty()) {
    trouble = compare("dk", dk_, exact.dk, plain.dk, reference::error_limit(dtype, by_rounded_o.dk, exact.dk),
                      exact.dk_cancellation);
  }
  if (trouble.empty()) trouble = compare("dv", dv_, exact.dv, plain.dv);
  // Unfused gradients of few elements may be right by chance: delta is of an o that was rounded.
  if (trouble.empty() && case_.spec.sinks) {
    trouble = compare("d_sinks", d_sinks_, exact.d_sinks, plain.d_sinks,
                      reference::unit_roundoff(dtype) * exact.d_sinks_magnitude);
  }
  for (std::size_t i = 0; trouble.empty() && i < d_tensors_.size(); ++i) {
    const std::string& name = case_.d_tensors[i];
    const Sums right = tensor_gradient(name, scores), unfused = tensor_gradient(name, plain_scores);
    trouble = compare("d_" + name, d_tensors_[i], right.values, unfused.values,
                      reference::unit_roundoff(dtype) * right.largest_magnitude);
  }
  return trouble;
}

std::string BackwardRun::check_forward(const Context& context,
                                       const std::optional<KernelConfig>& config) const {
  const int heads = problem_.heads_q();
  DeviceTensor o = operand(case_.seqlen_q, heads, problem_.head_dim_v);
  DeviceTensor lse(DType::fp32, {case_.batch, heads, case_.seqlen_q});
  for (DeviceTensor* tensor : {&o, &lse}) {
    tensor->poison();
    tensor->upload();
  }
  const BackwardArguments given = arguments();
  attention(case_.spec, config, context)({.q = given.q,
                                          .k = given.k,
                                          .v = given.v,
                                          .o = o.view(),
                                          .lse = lse.view(),
                                          .tensors = given.tensors,
                                          .dropout_p = given.dropout_p,
                                          .rng_state = given.rng_state});
  o.download();
  lse.download();
  const reference::ForwardResult exact = reference::attention_forward(problem_);
  const auto compare = [](const char* name, const DeviceTensor& tensor, const std::vector<double>& right,
                          double limit) -> std::string {
    const std::vector<double> got = numbers(tensor);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != right[i] && !(std::abs(got[i] - right[i]) <= limit))
        return fmt::format("{}[{}] is {}, should be {} within {}", name, i, got[i], right[i], limit);
    }
    return "";
  };
  double largest = 0;
  for (const double value : exact.o) largest = std::max(largest, std::abs(value));
  const std::string trouble = compare("o", o, exact.o, largest / 64);  // some roundings to 8 bits
  return trouble.empty() ? compare("lse", lse, exact.lse, 1e-3) : trouble;
}

}  // namespace jit::testing
