#include "tests/support/exchange_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <jit/device.h>

namespace jit::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void let_all_see_each_other() {
  const auto count = static_cast<int>(devices().size());
  for (int device = 0; device < count; ++device) {
    for (int peer = 0; peer < count; ++peer) {
      if (device != peer) enable_peer_access(device, peer);
    }
  }
}

}  // namespace

ExchangeRun::ExchangeRun(const ExchangeCase& problem, std::uint64_t seed) : problem_(problem), random_(seed) {
  let_all_see_each_other();
  const ExchangeMergeSpec& spec = problem.spec;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const CurrentDevice device(device_of(rank));
    Rank own;
    own.stream = std::make_unique<TestStream>();
    const std::vector<std::int64_t> o_shape = {problem.tokens, problem.heads, spec.head_dim_v};
    own.o = std::make_unique<DeviceTensor>(spec.dtype, o_shape, problem.o_layout);
    own.lse = std::make_unique<DeviceTensor>(
        DType::fp32, std::vector<std::int64_t>{problem.heads, problem.tokens}, problem.lse_layout);
    const Range tokens = part(ExchangeShare::tokens, problem.tokens, rank);
    const Range heads = part(ExchangeShare::heads, problem.heads, rank);
    const std::int64_t t = tokens.end - tokens.first, h = heads.end - heads.first;
    own.out =
        std::make_unique<DeviceTensor>(spec.out_dtype, std::vector<std::int64_t>{t, h, spec.head_dim_v});
    own.out_lse = std::make_unique<DeviceTensor>(DType::fp32, std::vector<std::int64_t>{h, t});
    own.buffer = std::make_unique<DeviceBuffer>(
        device_of(rank), exchange_merge_bytes(spec, std::max(problem.room, problem.tokens), problem.heads));
    buffers_.push_back(own.buffer->data());
    ranks_.push_back(std::move(own));
  }
  reset();
  fill();
}

ExchangeRun::~ExchangeRun() {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CurrentDevice device(device_of(rank));
    driver().cuCtxSynchronize();
  }
}

int ExchangeRun::device_of(int rank) const { return rank % static_cast<int>(devices().size()); }

ExchangeRun::Range ExchangeRun::part(ExchangeShare share, std::int64_t all, int rank) const {
  if (problem_.spec.share != share) return {0, all};
  return {all * rank / ranks(), all * (rank + 1) / ranks()};
}

void ExchangeRun::fill() {
  std::normal_distribution<double> normal;
  for (Rank& rank : ranks_) {
    for (std::int64_t t = 0; t < problem_.tokens; ++t) {
      for (std::int64_t h = 0; h < problem_.heads; ++h) {
        const unsigned kind = random_() % 8;
        const bool is_empty = (t == 0 && h == 0) || kind < 2;
        rank.lse->set({h, t}, is_empty ? (kind % 2 == 0 ? -infinity : infinity) : 20 * normal(random_));
        for (int d = 0; d < problem_.spec.head_dim_v; ++d)
          rank.o->set({t, h, d}, is_empty ? std::nan("") : normal(random_));
      }
    }
    rank.out->poison();
    rank.out_lse->poison();
    for (const auto* tensor : {&rank.o, &rank.lse, &rank.out, &rank.out_lse}) (*tensor)->upload();
  }
}

ExchangeMergeArguments ExchangeRun::arguments(int rank) const {
  const Rank& own = ranks_[index(rank)];
  return {.o = own.o->view(),
          .lse = own.lse->view(),
          .out = own.out->view(),
          .out_lse = own.out_lse->view(),
          .buffers = buffers_,
          .buffer_bytes = own.buffer->size(),
          .rank = rank,
          .timeout = problem_.timeout};
}

void ExchangeRun::call(int rank, const ExchangeMerge& kernel) const {
  const CurrentDevice device(device_of(rank));
  kernel(arguments(rank), stream(rank).get());
}

void ExchangeRun::call_all(const ExchangeMerge& kernel) {
  std::vector<int> order(index(ranks()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  // Nothing waits while not all have been asked: loading does.
  for (const int rank : order) {
    const CurrentDevice device(device_of(rank));
    kernel.prepare();
  }
  for (const int rank : order) call(rank, kernel);
  synchronize();
}

void ExchangeRun::synchronize() const {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CurrentDevice device(device_of(rank));
    stream(rank).synchronize();
  }
}

void ExchangeRun::reset() const {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CurrentDevice device(device_of(rank));
    ranks_[index(rank)].buffer->fill(0, stream(rank).get());
  }
  synchronize();
}

std::optional<ExchangeFault> ExchangeRun::fault(int rank) const {
  return exchange_fault(buffers_[index(rank)], stream(rank).get());
}

double ExchangeRun::lse_of(int rank, std::int64_t token, std::int64_t head) const {
  const double lse = ranks_[index(rank)].lse->get({head, token});
  return lse == infinity ? -infinity : lse;
}

std::string ExchangeRun::check(int rank) {
  Rank& own = ranks_[index(rank)];
  own.out->download();
  own.out_lse->download();
  const Range tokens = part(ExchangeShare::tokens, problem_.tokens, rank);
  const Range heads = part(ExchangeShare::heads, problem_.heads, rank);
  const DType out = problem_.spec.out_dtype;
  const double rounding = out == DType::bf16 ? 0x1p-8 : out == DType::fp16 ? 0x1p-11 : 0;
  for (std::int64_t t = tokens.first; t < tokens.end; ++t) {
    for (std::int64_t h = heads.first; h < heads.end; ++h) {
      double largest = -infinity, sum = 0;
      for (int source = 0; source < ranks(); ++source) largest = std::max(largest, lse_of(source, t, h));
      for (int source = 0; source < ranks(); ++source)
        sum += largest == -infinity ? 0 : std::exp(lse_of(source, t, h) - largest);
      const double expected_lse = sum == 0 ? -infinity : largest + std::log(sum);
      const double lse = own.out_lse->get({h - heads.first, t - tokens.first});
      const std::string place = fmt::format("rank {}, token {}, head {}", rank, t, h);
      if (!(lse == expected_lse || std::abs(lse - expected_lse) <= 1e-5 * (1 + std::abs(expected_lse))))
        return fmt::format("lse of {} is {}, should be {}", place, lse, expected_lse);
      for (int d = 0; d < problem_.spec.head_dim_v; ++d) {
        double expected = 0, magnitude = 0;
        for (int source = 0; source < ranks(); ++source) {
          if (lse_of(source, t, h) == -infinity) continue;
          const double term =
              std::exp(lse_of(source, t, h) - largest) / sum * ranks_[index(source)].o->get({t, h, d});
          expected += term;
          magnitude += std::abs(term);
        }
        const double got = own.out->get({t - tokens.first, h - heads.first, d});
        if (!(std::abs(got - expected) <= rounding * std::abs(expected) + 1e-5 * magnitude + 1e-7))
          return fmt::format("o of {}, column {} is {}, should be {}", place, d, got, expected);
      }
    }
  }
  return "";
}

std::string ExchangeRun::check_all() {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (std::string wrong = check(rank); !wrong.empty()) return wrong;
  }
  return "";
}

bool ExchangeRun::is_poisoned(int rank) {
  Rank& own = ranks_[index(rank)];
  own.out->download();
  own.out_lse->download();
  for (const DeviceTensor* tensor : {own.out.get(), own.out_lse.get()}) {
    for (std::int64_t flat = 0; flat < tensor->count(); ++flat) {
      if (!std::isnan(tensor->get(tensor->index(flat)))) return false;
    }
  }
  return true;
}

std::vector<std::uint8_t> ExchangeRun::bytes(int rank) const {
  const Rank& own = ranks_[index(rank)];
  std::vector<std::uint8_t> bytes = own.out->bytes();
  bytes.insert(bytes.end(), own.out_lse->bytes().begin(), own.out_lse->bytes().end());
  return bytes;
}

}  // namespace jit::testing
