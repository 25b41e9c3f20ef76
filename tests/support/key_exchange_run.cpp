#include "tests/support/key_exchange_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <jit/device.h>

namespace jit::testing {
namespace {

int length_of(const KeyExchangeCase& problem) { return problem.seqlen * (problem.of_other_host ? 2 : 1); }

// The tensors of the mask, equal for queries and keys.
std::shared_ptr<const reference::FunctorProblem> whole_problem(const KeyExchangeCase& problem,
                                                               std::mt19937_64& random) {
  auto whole = std::make_shared<reference::FunctorProblem>(
      reference::random_functor_problem({.mask = problem.mask}, problem.batch, problem.heads_q,
                                        length_of(problem), length_of(problem), random));
  if (whole->tensors.contains("document_ids_q"))
    whole->tensors["document_ids_q"] = whole->tensors["document_ids_kv"];
  return whole;
}

}  // namespace

KeyExchangeRun::KeyExchangeRun(const KeyExchangeCase& problem, std::uint64_t seed, const Context& context)
    : problem_(problem), random_(seed) {
  const auto count = static_cast<int>(devices().size());
  for (int device = 0; device < count; ++device) {
    for (int peer = 0; peer < count; ++peer) {
      if (device != peer) enable_peer_access(device, peer);
    }
  }
  spec_ = {.dtype = problem.dtype,
           .head_dim = problem.head_dim,
           .gqa_ratio = problem.heads_q / problem.heads_kv,
           .sinks = problem.sinks,
           .dropout = problem.dropout_p > 0,
           .q_positions = true,
           .k_positions = problem.of_other_host,
           .key_arrivals = true,
           .mask = problem.mask};
  whole_ = whole_problem(problem, random_);
  std::normal_distribution<float> normal;
  for (int head = 0; head < problem.heads_q; ++head) sinks_.push_back(normal(random_));
  dropout_ = {.rate = problem.dropout_p, .seed = random_() >> 12, .offset = random_() >> 24};
  placement_ = place(work(), problem.ranks, problem.placement);
  const KeyExchangeSpec exchanged{.dtype = problem.dtype,
                                  .batch = problem.batch,
                                  .heads_kv = problem.heads_kv,
                                  .head_dim = problem.head_dim,
                                  .head_dim_v = problem.head_dim,
                                  .chunk_bytes = problem.chunk_bytes};
  std::vector<void*> buffers;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const CurrentDevice device(device_of(rank));
    Rank own;
    own.stream = std::make_unique<TestStream>();
    const std::int64_t rows = placement_.rows(rank), batch = problem.batch;
    const auto tensor = [&](DType dtype, std::vector<std::int64_t> shape) {
      return std::make_unique<DeviceTensor>(dtype, shape);
    };
    own.q = tensor(problem.dtype, {batch, rows, problem.heads_q, problem.head_dim});
    own.k = tensor(problem.dtype, {batch, rows, problem.heads_kv, problem.head_dim});
    own.v = tensor(problem.dtype, {batch, rows, problem.heads_kv, problem.head_dim});
    own.o = tensor(problem.dtype, {batch, rows, problem.heads_q, problem.head_dim});
    own.lse = tensor(DType::fp32, {batch, problem.heads_q, rows});
    own.d_o = tensor(problem.dtype, {batch, rows, problem.heads_q, problem.head_dim});
    own.dq = tensor(problem.dtype, {batch, rows, problem.heads_q, problem.head_dim});
    own.dk = tensor(problem.dtype, {batch, problem.seqlen, problem.heads_kv, problem.head_dim});
    own.dv = tensor(problem.dtype, {batch, problem.seqlen, problem.heads_kv, problem.head_dim});
    own.positions = positions_of(placement_.runs(rank), 0);
    own.k_positions = positions_of({{0, problem.seqlen}}, 1);
    own.lengths = tensor(DType::int32, {1, 2});
    own.lengths->fill([&](std::int64_t) { return length_of(problem); });
    own.sinks = tensor(DType::fp32, {problem.heads_q});
    own.sinks->fill([&](std::int64_t head) { return sinks_[static_cast<std::size_t>(head)]; });
    own.rng_state = tensor(DType::int64, {2});
    for (const auto& [name, data] : whole_->tensors) {
      auto of_mask = tensor(data.dtype, data.shape);
      for (std::int64_t flat = 0; flat < of_mask->count(); ++flat) {
        std::int32_t number = 0;
        std::memcpy(&number, data.bytes.data() + flat * static_cast<std::int64_t>(sizeof number),
                    sizeof number);
        of_mask->set(of_mask->index(flat), number);
      }
      of_mask->upload();
      own.of_mask.emplace_back(name, std::move(of_mask));
    }
    own.rng_state->fill(
        [&](std::int64_t i) { return static_cast<double>(i == 0 ? dropout_.seed : dropout_.offset); });
    for (auto* given : {&own.positions, &own.k_positions, &own.lengths, &own.sinks, &own.rng_state})
      (*given)->upload();
    for (const IndexRange& run : placement_.runs(rank)) {
      for (std::int64_t position = run.begin; position < run.end; ++position) own.at.push_back(position);
    }
    own.buffer = std::make_unique<DeviceBuffer>(device_of(rank), key_exchange_bytes(exchanged, placement_));
    own.buffer->fill(0, own.stream->get());
    own.fault = std::make_unique<DeviceBuffer>(device_of(rank), sizeof(std::uint32_t));
    own.fault->fill(0, own.stream->get());
    own.stream->synchronize();
    buffers.push_back(own.buffer->data());
    ranks_.push_back(std::move(own));
  }
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const CurrentDevice device(device_of(rank));
    ranks_[index(rank)].exchange = std::make_unique<KeyExchange>(
        exchanged, placement_,
        KeyExchangeRank{.rank = rank,
                        .buffers = buffers,
                        .timeout = problem.timeout,
                        .fault = static_cast<std::uint32_t*>(ranks_[index(rank)].fault->data())},
        context);
  }
  fill();
}

KeyExchangeRun::~KeyExchangeRun() {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CurrentDevice device(device_of(rank));
    driver().cuCtxSynchronize();
  }
}

int KeyExchangeRun::device_of(int rank) const { return rank % static_cast<int>(devices().size()); }

int KeyExchangeRun::at_of_host(std::int64_t place, int host) const {
  if (!problem_.of_other_host) return static_cast<int>(place);
  return static_cast<int>((place / problem_.granule * 2 + host) * problem_.granule +
                          place % problem_.granule);
}

std::unique_ptr<DeviceTensor> KeyExchangeRun::positions_of(const std::vector<IndexRange>& runs,
                                                           int host) const {
  std::vector<std::array<std::int64_t, 4>> pieces;
  std::int64_t row = 0;
  for (const IndexRange& run : runs) {
    for (std::int64_t place = run.begin; place < run.end; ++place, ++row) {
      const std::int64_t at = at_of_host(place, host);
      if (pieces.empty() || at != pieces.back()[1] + row - pieces.back()[0])
        pieces.push_back({row, at, 1, 1});
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i][2] = pieces[i][3] = (i + 1 < pieces.size() ? pieces[i + 1][0] : row) - pieces[i][0];
  auto tensor = std::make_unique<DeviceTensor>(
      DType::int32, std::vector<std::int64_t>{1, static_cast<std::int64_t>(pieces.size()), 4});
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (std::size_t j = 0; j < 4; ++j)
      tensor->set({0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)},
                  static_cast<double>(pieces[i][j]));
  return tensor;
}

// Where tensors tell what a mask keeps, by its blocks of granules.
PlacementWork KeyExchangeRun::work() const {
  if (whole_->tensors.empty()) return work_of_mask(problem_.mask, problem_.seqlen, problem_.granule);
  const int side = (problem_.seqlen + problem_.granule - 1) / problem_.granule;
  const reference::Keep keep = reference::host_mask(problem_.mask, whole_);
  std::vector<std::uint8_t> classes(static_cast<std::size_t>(side * side));
  for (int b = 0; b < problem_.batch; ++b)
    for (int q = 0; q < problem_.seqlen; ++q)
      for (int k = 0; k < problem_.seqlen; ++k) {
        if (keep(b, 0, q, k))
          classes[static_cast<std::size_t>(q / problem_.granule * side + k / problem_.granule)] = 1;
      }
  return work_of_blocks(classes, problem_.seqlen, problem_.granule);
}

void KeyExchangeRun::fill() {
  std::normal_distribution<double> normal;
  for (Rank& rank : ranks_) {
    rank.q->fill([&](std::int64_t) { return problem_.magnitude * normal(random_); });
    for (auto* tensor : {&rank.k, &rank.v, &rank.d_o})
      (*tensor)->fill([&](std::int64_t) { return normal(random_); });
    for (auto* tensor : {&rank.o, &rank.lse, &rank.dq, &rank.dk, &rank.dv}) (*tensor)->poison();
    for (auto* tensor :
         {&rank.q, &rank.k, &rank.v, &rank.d_o, &rank.o, &rank.lse, &rank.dq, &rank.dk, &rank.dv})
      (*tensor)->upload();
  }
}

void KeyExchangeRun::call(int rank, const Attention& kernel, CUstream on) {
  const CurrentDevice device(device_of(rank));
  Rank& own = ranks_[index(rank)];
  Stream const stream = on != nullptr ? on : own.stream->get();
  const ArrivingKeys keys = own.exchange->begin(own.k->view(), own.v->view(), stream);
  const NamedTensors tensors = tensors_of(rank, keys);
  AttentionArguments arguments;
  arguments.q = own.q->view();
  arguments.k = keys.k;
  arguments.v = keys.v;
  arguments.o = own.o->view();
  arguments.lse = own.lse->view();
  arguments.tensors = tensors;
  if (problem_.sinks) arguments.sinks = own.sinks->view();
  if (problem_.dropout_p > 0) {
    arguments.dropout_p = problem_.dropout_p;
    arguments.rng_state = own.rng_state->view();
  }
  kernel(arguments, stream);
  own.exchange->end(stream);
}

NamedTensors KeyExchangeRun::tensors_of(int rank, const ArrivingKeys& keys) {
  const Rank& own = ranks_[index(rank)];
  NamedTensors tensors{{"key_arrivals", keys.arrivals},
                       {"q_positions", own.positions->view()},
                       {"global_seqlens", own.lengths->view()}};
  if (problem_.of_other_host) tensors.add({"k_positions", own.k_positions->view()});
  for (const auto& [name, tensor] : own.of_mask) tensors.add({name, tensor->view()});
  return tensors;
}

BackwardArguments KeyExchangeRun::gradients_of(int rank, const ArrivingKeys& keys,
                                               const NamedTensors& tensors) {
  const Rank& own = ranks_[index(rank)];
  return {.d_o = own.d_o->view(),
          .q = own.q->view(),
          .k = keys.k,
          .v = keys.v,
          .o = own.o->view(),
          .lse = own.lse->view(),
          .dq = own.dq->view(),
          .dk = own.dk->view(),
          .dv = own.dv->view(),
          .tensors = tensors,
          .deterministic = problem_.deterministic};
}

void KeyExchangeRun::backward(int rank, const Attention& kernel) {
  const CurrentDevice device(device_of(rank));
  Rank& own = ranks_[index(rank)];
  Stream const stream = own.stream->get();
  const ArrivingKeys keys = own.exchange->begin(own.k->view(), own.v->view(), stream);
  kernel.backward(gradients_of(rank, keys, tensors_of(rank, keys)), stream);
  own.exchange->end(stream);
}

void KeyExchangeRun::prepare_backward(int rank, const Attention& kernel) {
  const CurrentDevice device(device_of(rank));
  const Rank& own = ranks_[index(rank)];
  TensorView rows = own.dk->view();  // of the shape of keys
  rows.data = own.buffer->data();
  const ArrivingKeys keys{
      .k = rows, .v = rows, .arrivals = TensorView::dense(own.buffer->data(), DType::int32, {8, 4})};
  kernel.prepare_backward(gradients_of(rank, keys, tensors_of(rank, keys)));
}

std::vector<int> KeyExchangeRun::shuffled_ranks() {
  std::vector<int> order(index(ranks()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void KeyExchangeRun::call_all(const Attention& kernel) {
  for (const int rank : shuffled_ranks()) call(rank, kernel);
  synchronize();
}

void KeyExchangeRun::backward_all(const Attention& kernel) {
  for (const int rank : shuffled_ranks()) backward(rank, kernel);
  synchronize();
}

void KeyExchangeRun::synchronize() const {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CurrentDevice device(device_of(rank));
    stream(rank).synchronize();
  }
}

void KeyExchangeRun::reset() {
  for (int rank = 0; rank < ranks(); ++rank) {
    const CurrentDevice device(device_of(rank));
    exchange(rank).reset(stream(rank).get());
    ranks_[index(rank)].fault->fill(0, stream(rank).get());
  }
  synchronize();
}

std::uint32_t KeyExchangeRun::word_of(int rank, const DeviceBuffer& buffer) {
  const CurrentDevice device(device_of(rank));
  std::uint32_t word = 0;
  jit::check(driver().cuMemcpyDtoH(&word, reinterpret_cast<CUdeviceptr>(buffer.data()), sizeof word),
             "cuMemcpyDtoH");
  return word;
}
std::uint32_t KeyExchangeRun::noted_fault(int rank) { return word_of(rank, *ranks_[index(rank)].fault); }
std::uint32_t KeyExchangeRun::counted(int rank) { return word_of(rank, *ranks_[index(rank)].buffer); }

std::string KeyExchangeRun::check(int rank) {
  Rank& own = ranks_[index(rank)];
  own.o->download();
  own.lse->download();
  const int d = problem_.head_dim, ratio = problem_.heads_q / problem_.heads_kv;
  const reference::Keep keep = reference::host_mask(problem_.mask, whole_);
  const double rounding = problem_.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  for (std::int64_t b = 0; b < problem_.batch; ++b) {
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(own.at.size()); row += 1 + random_() % 5) {
      const std::int64_t h = static_cast<std::int64_t>(random_() % static_cast<unsigned>(problem_.heads_q));
      const std::int64_t q = own.at[static_cast<std::size_t>(row)];
      struct Seen {
        const Rank* rank;
        std::int64_t row;
        double score;
        double factor;  // of dropout
      };
      std::vector<Seen> seen;
      double largest = -std::numeric_limits<double>::infinity();
      for (const Rank& source : ranks_) {
        for (std::size_t i = 0; i < source.at.size(); ++i) {
          const int at_q = query_at(q), at_k = key_at(source.at[i]);
          if (keep && !keep(static_cast<int>(b), static_cast<int>(h), at_q, at_k)) continue;
          double score = 0;
          for (int c = 0; c < d; ++c)
            score +=
                own.q->get({b, row, h, c}) * source.k->get({b, static_cast<std::int64_t>(i), h / ratio, c});
          const bool is_kept =
              problem_.dropout_p == 0 ||
              dropout_.keeps(problem_.heads_q, static_cast<int>(b), static_cast<int>(h), at_q, at_k);
          seen.push_back({&source, static_cast<std::int64_t>(i), score / std::sqrt(d),
                          is_kept ? 1 / (1 - static_cast<double>(problem_.dropout_p)) : 0.0});
          largest = std::max(largest, seen.back().score);
        }
      }
      const double sink = sinks_[static_cast<std::size_t>(h)];
      if (problem_.sinks) largest = std::max(largest, sink);
      double sum = problem_.sinks ? std::exp(sink - largest) : 0;
      for (Seen& key : seen) sum += key.score = std::exp(key.score - largest);
      const double lse = sum == 0 ? -std::numeric_limits<double>::infinity() : largest + std::log(sum),
                   got_lse = own.lse->get({b, h, row});
      const std::string place = fmt::format("rank {}, batch {}, query {}, head {}", rank, b, q, h);
      const bool is_same = sum == 0 ? got_lse == lse : std::abs(got_lse - lse) <= 2e-3;
      if (!is_same) return fmt::format("lse of {} is {}, should be {}", place, got_lse, lse);
      for (int c = 0; c < d; c += 7) {
        double o = 0, magnitude = 0;
        for (const Seen& key : seen) {
          const double term = key.factor * key.score / sum * key.rank->v->get({b, key.row, h / ratio, c});
          o += term;
          magnitude += std::abs(term);
        }
        const double got = own.o->get({b, row, h, c});
        if (!(std::abs(got - o) <= rounding * (std::abs(o) + 2 * magnitude)))
          return fmt::format("o of {}, column {} is {}, should be {}", place, c, got, o);
      }
    }
  }
  return "";
}

std::string KeyExchangeRun::check_all() {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (std::string wrong = check(rank); !wrong.empty()) return wrong;
  }
  return "";
}

std::string KeyExchangeRun::check_gradients(int rank) {
  Rank& own = ranks_[index(rank)];
  for (auto* tensor : {&own.o, &own.lse, &own.dq, &own.dk, &own.dv}) (*tensor)->download();
  const int d = problem_.head_dim, ratio = problem_.heads_q / problem_.heads_kv;
  const double scale = 1 / std::sqrt(d);
  const auto sizes = std::make_shared<reference::FunctorProblem>();
  sizes->batch = problem_.batch;
  sizes->heads_q = problem_.heads_q;
  sizes->seqlen_q = sizes->seqlen_kv = length_of(problem_);
  const reference::Keep keep = reference::host_mask(problem_.mask, sizes);
  // The rank and row of each position.
  std::vector<std::pair<const Rank*, std::int64_t>> places(static_cast<std::size_t>(problem_.seqlen));
  for (const Rank& source : ranks_) {
    for (std::size_t i = 0; i < source.at.size(); ++i)
      places[static_cast<std::size_t>(source.at[i])] = {&source, static_cast<std::int64_t>(i)};
  }
  struct Sum {
    double value = 0, magnitude = 0;
    void add(double x) { value += x, magnitude += std::abs(x); }
  };
  const double rounding = problem_.dtype == DType::bf16 ? 0x1p-7 : 0x1p-9;
  const auto is_right = [&](double got, const Sum& sum) {
    return std::abs(got - sum.value) <= rounding * (std::abs(sum.value) + sum.magnitude) + 1e-3;
  };
  const auto rows = static_cast<std::int64_t>(own.at.size());
  for (std::int64_t b = 0; b < problem_.batch; ++b) {
    for (std::int64_t kv = 0; kv < problem_.heads_kv; ++kv) {
      std::vector<Sum> dk(static_cast<std::size_t>(problem_.seqlen) * 2), dv = dk;  // of two columns
      const int columns[] = {static_cast<int>(random_() % static_cast<unsigned>(d)), d - 1};
      for (std::int64_t h = kv * ratio; h < (kv + 1) * ratio; ++h) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t q = own.at[static_cast<std::size_t>(row)];
          const double lse = own.lse->get({b, h, row});
          double delta = 0;
          for (int c = 0; c < d; ++c) delta += own.d_o->get({b, row, h, c}) * own.o->get({b, row, h, c});
          Sum dq[2];
          for (std::int64_t key = 0; key < problem_.seqlen; ++key) {
            if (keep && !keep(static_cast<int>(b), static_cast<int>(h), query_at(q), key_at(key))) continue;
            const auto [source, at] = places[static_cast<std::size_t>(key)];
            double score = 0, dp = 0;
            for (int c = 0; c < d; ++c) {
              score += own.q->get({b, row, h, c}) * source->k->get({b, at, kv, c});
              dp += own.d_o->get({b, row, h, c}) * source->v->get({b, at, kv, c});
            }
            const double p = std::exp(score * scale - lse), ds = p * (dp - delta) * scale;
            for (int i = 0; i < 2; ++i) {
              const std::size_t place = static_cast<std::size_t>(key) * 2 + static_cast<std::size_t>(i);
              dq[i].add(ds * source->k->get({b, at, kv, columns[i]}));
              dk[place].add(ds * own.q->get({b, row, h, columns[i]}));
              dv[place].add(p * own.d_o->get({b, row, h, columns[i]}));
            }
          }
          for (int i = 0; i < 2; ++i) {
            const double got = own.dq->get({b, row, h, columns[i]});
            if (!is_right(got, dq[i]))
              return fmt::format("dq of rank {}, batch {}, query {}, head {} is {}, should be {}", rank, b, q,
                                 h, got, dq[i].value);
          }
        }
      }
      for (std::int64_t key = 0; key < problem_.seqlen; ++key) {
        for (int i = 0; i < 2; ++i) {
          const std::size_t place = static_cast<std::size_t>(key) * 2 + static_cast<std::size_t>(i);
          if (dk[place].magnitude == 0 && dv[place].magnitude == 0) continue;
          const double got_k = own.dk->get({b, key, kv, columns[i]}),
                       got_v = own.dv->get({b, key, kv, columns[i]});
          if (!is_right(got_k, dk[place]) || !is_right(got_v, dv[place]))
            return fmt::format(
                "dk and dv of rank {}, batch {}, key {}, head {} are {} and {}, should be {} and {}", rank, b,
                key, kv, got_k, got_v, dk[place].value, dv[place].value);
        }
      }
    }
  }
  return "";
}

std::string KeyExchangeRun::check_all_gradients() {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (std::string wrong = check_gradients(rank); !wrong.empty()) return wrong;
  }
  return "";
}

bool KeyExchangeRun::has_poisoned_gradients(int rank) {
  Rank& own = ranks_[index(rank)];
  const auto numbers_in = [](DeviceTensor& tensor) {
    tensor.download();
    std::int64_t count = 0;
    for (std::int64_t flat = 0; flat < tensor.count(); ++flat)
      count += !std::isnan(tensor.get(tensor.index(flat)));
    return count;
  };
  return numbers_in(*own.dq) == 0 && numbers_in(*own.dk) < own.dk->count();
}

std::vector<bool> KeyExchangeRun::poisoned(int rank) {
  Rank& own = ranks_[index(rank)];
  own.o->download();
  own.lse->download();
  std::vector<bool> rows(own.at.size(), true);
  for (std::int64_t flat = 0; flat < own.o->count(); ++flat) {
    const std::vector<std::int64_t> at = own.o->index(flat);
    if (!std::isnan(own.o->get(at)) || !std::isnan(own.lse->get({at[0], at[2], at[1]})))
      rows[static_cast<std::size_t>(at[1])] = false;
  }
  return rows;
}

std::vector<std::uint8_t> KeyExchangeRun::bytes(int rank) {
  Rank& own = ranks_[index(rank)];
  own.o->download();
  own.lse->download();
  std::vector<std::uint8_t> bytes = own.o->bytes();
  bytes.insert(bytes.end(), own.lse->bytes().begin(), own.lse->bytes().end());
  return bytes;
}

std::vector<std::uint8_t> KeyExchangeRun::gradient_bytes(int rank) {
  Rank& own = ranks_[index(rank)];
  for (auto* tensor : {&own.dq, &own.dk, &own.dv}) (*tensor)->download();
  std::vector<std::uint8_t> bytes = own.dq->bytes();
  const std::size_t row = own.dk->bytes().size() / static_cast<std::size_t>(problem_.batch * problem_.seqlen);
  for (const auto* tensor : {&own.dk, &own.dv}) {
    for (std::int64_t b = 0; b < problem_.batch; ++b) {
      for (const std::int64_t position : own.at) {
        const auto first =
            (*tensor)->bytes().begin() + static_cast<std::ptrdiff_t>(row) * (b * problem_.seqlen + position);
        bytes.insert(bytes.end(), first, first + static_cast<std::ptrdiff_t>(row));
      }
    }
  }
  return bytes;
}

}  // namespace jit::testing
