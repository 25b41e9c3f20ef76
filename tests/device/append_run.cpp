#include "tests/device/append_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace jit::testing {
namespace {

constexpr int max_pos = 40;

std::vector<std::int64_t> sizes(std::initializer_list<std::int64_t> values) { return values; }

int pages_of(const AppendCase& problem) {
  return problem.to == Destination::contiguous ? static_cast<int>(problem.new_tokens.size())
                                               : 24 / problem.page_size + 9;
}

int page_size_of(const AppendCase& problem) {
  return problem.to == Destination::contiguous ? 20 : problem.page_size;
}

int max_pages_of(const AppendCase& problem) { return (16 + problem.page_size - 1) / problem.page_size; }

DeviceTensor cache(const AppendCase& problem, int columns) {
  return {problem.spec.stored_dtype(),
          sizes({pages_of(problem), page_size_of(problem), problem.heads_kv, columns}), problem.cache_layout};
}

}  // namespace

std::string to_string(const AppendCase& problem) {
  const AppendSpec& spec = problem.spec;
  return fmt::format("{} d{}/{} {}{} rotary {}{} sections {}{} norm {}, {} with pages of {}{}{}",
                     to_string(spec.dtype), spec.head_dim, spec.value_head_dim(),
                     problem.is_dense ? "dense " : "", problem.into_q_out ? "q_out" : "", spec.rotary_dim,
                     spec.rotary_interleaved ? " interleaved" : "", spec.has_sections(),
                     spec.mrope_interleaved ? " in turns" : "", spec.norm,
                     problem.to == Destination::slots   ? "slots"
                     : problem.to == Destination::pages ? "a page table"
                                                        : "contiguous",
                     problem.page_size, problem.with_positions ? "" : " without positions",
                     problem.with_bad_places ? ", bad places" : "");
}

int AppendRun::tokens() const { return static_cast<int>(request_.size()); }

DeviceTensor AppendRun::new_tensor(int heads, int columns) const {
  const AppendCase& p = problem_;
  const auto requests = static_cast<std::int64_t>(p.new_tokens.size());
  return {p.spec.dtype,
          p.is_dense ? sizes({requests, p.new_tokens[0], heads, columns})
                     : sizes({std::accumulate(p.new_tokens.begin(), p.new_tokens.end(), 0), heads, columns})};
}

AppendRun::AppendRun(const AppendCase& problem, std::uint64_t seed)
    : problem_(problem),
      random_(seed),
      k_(new_tensor(problem.heads_kv, problem.spec.head_dim)),
      v_(new_tensor(problem.heads_kv, problem.spec.value_head_dim())),
      q_(new_tensor(problem.heads_q, problem.spec.head_dim)),
      q_out_(new_tensor(problem.heads_q, problem.spec.head_dim)),
      k_cache_(cache(problem, problem.spec.head_dim)),
      v_cache_(cache(problem, problem.spec.value_head_dim())),
      slots_(DType::int64, problem.is_dense ? sizes({k_.view().shape[0], k_.view().shape[1]})
                                            : sizes({k_.view().shape[0]})),
      table_(DType::int32,
             sizes({static_cast<std::int64_t>(problem.new_tokens.size()), max_pages_of(problem)}),
             {.row_elements = max_pages_of(problem) + 3}),
      seqused_(DType::int32, sizes({static_cast<std::int64_t>(problem.new_tokens.size())})),
      cu_seqlens_(DType::int32, sizes({static_cast<std::int64_t>(problem.new_tokens.size()) + 1})),
      cos_sin_(problem.spec.cos_sin_dtype, sizes({max_pos, std::max(2, problem.spec.rotary_dim)})),
      positions_(DType::int64,
                 sizes({3, problem.is_dense ? k_.view().shape[0] * k_.view().shape[1] : k_.view().shape[0]})),
      q_weight_(problem.spec.norm_dtype, sizes({problem.spec.head_dim})),
      k_weight_(problem.spec.norm_dtype, sizes({problem.spec.head_dim})),
      q_before_(new_tensor(problem.heads_q, problem.spec.head_dim)) {
  const AppendSpec& spec = problem_.spec;
  begins_ = {0};
  for (std::size_t request = 0; request < problem_.new_tokens.size(); ++request) {
    begins_.push_back(begins_.back() + problem_.new_tokens[request]);
    request_.insert(request_.end(), static_cast<std::size_t>(problem_.new_tokens[request]),
                    static_cast<int>(request));
  }
  AppendArguments& a = arguments_;
  a = {.k = k_.view(), .v = v_.view(), .k_cache = k_cache_.view(), .v_cache = v_cache_.view()};
  if (problem_.to == Destination::slots) {
    a.slot_mapping = slots_.view();
  } else {
    a.seqused_k = seqused_.view();
    if (!problem_.is_dense) a.cu_seqlens_q = cu_seqlens_.view();
    if (problem_.to == Destination::pages) a.page_table = table_.view();
  }
  if (problem_.heads_q > 0) a.q = q_.view();
  if (problem_.into_q_out) a.q_out = q_out_.view();
  if (spec.rotary_dim > 0) {
    a.cos_sin = cos_sin_.view();
    if (problem_.with_positions) {
      a.positions = positions_.view();
      if (!spec.has_sections()) {
        a.positions.rank = 1;
        a.positions.shape[0] = a.positions.shape[1];
        a.positions.strides[0] = 1;
      }
      if (problem_.is_dense) {  // the last dimension is (batch, seqlen)
        const int last = a.positions.rank++ - 1;
        a.positions.shape[last] = k_.view().shape[0];
        a.positions.shape[last + 1] = k_.view().shape[1];
        a.positions.strides[last] = k_.view().shape[1];
        a.positions.strides[last + 1] = 1;
      }
    }
  }
  if (spec.norm) {
    a.k_norm_weight = k_weight_.view();
    if (problem_.heads_q > 0) a.q_norm_weight = q_weight_.view();
  }
  fill();
}

void AppendRun::fill() {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> angle(-3, 3);
  const auto draw = [&](DeviceTensor& tensor) {
    tensor.fill([&](std::int64_t) { return normal(random_); });
    tensor.upload();
  };
  for (DeviceTensor* tensor : {&k_, &v_, &q_, &q_weight_, &k_weight_}) draw(*tensor);
  q_before_.fill([&](std::int64_t flat) { return q_.get(q_.index(flat)); });
  const int half = std::max(2, problem_.spec.rotary_dim) / 2;
  for (int position = 0; position < max_pos; ++position) {
    for (int pair = 0; pair < half; ++pair) {
      const double radians = angle(random_);
      cos_sin_.set({position, pair}, std::cos(radians));
      cos_sin_.set({position, half + pair}, std::sin(radians));
    }
  }
  cos_sin_.upload();

  // Pages in any order, and places of the requests in them.
  const int page_size = page_size_of(problem_), max_pages = max_pages_of(problem_);
  std::vector<int> pages(static_cast<std::size_t>(pages_of(problem_)));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random_);
  std::size_t next = 0;
  places_.assign(request_.size(), {});
  positions_values_.assign(3, std::vector<std::int64_t>(request_.size()));
  const auto bad = [&] { return problem_.with_bad_places && random_() % 3 == 0; };
  for (std::size_t request = 0; request < problem_.new_tokens.size(); ++request) {
    const int past = problem_.past_tokens[request], total = past + problem_.new_tokens[request];
    seqused_.set({static_cast<std::int64_t>(request)}, total);
    for (int index = 0; index < max_pages; ++index) {
      const bool is_used = problem_.to != Destination::contiguous && index * page_size < total;
      std::int64_t page = is_used ? pages.at(next++) : -7;  // what is not used means nothing
      if (is_used && bad()) page = random_() % 2 == 0 ? -1 : pages_of(problem_);
      table_.set({static_cast<std::int64_t>(request), index}, static_cast<double>(page));
    }
    for (int i = 0; i < problem_.new_tokens[request]; ++i) {
      const auto token = static_cast<std::size_t>(begins_[request] + i);
      const std::int64_t position = past + i, index = position / page_size;
      const bool is_contiguous = problem_.to == Destination::contiguous;
      std::int64_t page =
          is_contiguous ? static_cast<std::int64_t>(request)
          : index < max_pages
              ? static_cast<std::int64_t>(table_.get({static_cast<std::int64_t>(request), index}))
              : -1;
      if (page < 0 || page >= pages_of(problem_) || (is_contiguous && index > 0)) page = -1;
      places_[token] = {page, page < 0 ? -1 : position % page_size};
      for (std::size_t axis = 0; axis < 3; ++axis) {
        auto& value = positions_values_[axis][token];
        value = problem_.with_positions ? static_cast<std::int64_t>(random_() % max_pos) : position;
        if (problem_.with_positions && bad()) value = random_() % 2 == 0 ? -1 : max_pos;
      }
    }
  }
  for (int token = 0; token < tokens(); ++token) {
    Place& place = places_[static_cast<std::size_t>(token)];
    std::int64_t slot = place.page < 0 ? -1 : place.page * page_size + place.offset;
    if (problem_.to == Destination::slots && bad()) {
      slot = random_() % 2 == 0 ? -1 : std::int64_t{pages_of(problem_)} * page_size;
      place = {};
    }
    slots_.set(slots_.index(token), static_cast<double>(slot));
    for (int axis = 0; axis < 3; ++axis)
      positions_.set({axis, token}, static_cast<double>(axis_position(token, axis)));
  }
  for (std::size_t i = 0; i < begins_.size(); ++i)
    cu_seqlens_.set({static_cast<std::int64_t>(i)}, begins_[i]);
  for (DeviceTensor* tensor : {&slots_, &table_, &seqused_, &cu_seqlens_, &positions_}) tensor->upload();
  for (DeviceTensor* tensor : {&k_cache_, &v_cache_, &q_out_}) {
    tensor->poison();
    tensor->upload();
  }
}

std::vector<std::int64_t> AppendRun::at(int token, int head, int column) const {
  if (!problem_.is_dense) return {token, head, column};
  const int seqlen = problem_.new_tokens[0];
  return {token / seqlen, token % seqlen, head, column};
}

std::int64_t AppendRun::axis_position(int token, int axis) const {
  return positions_values_[static_cast<std::size_t>(axis)][static_cast<std::size_t>(token)];
}

bool AppendRun::is_left_alone(int token) const {
  if (problem_.spec.rotary_dim == 0) return false;
  const int axes = problem_.spec.has_sections() ? 3 : 1;
  for (int axis = 0; axis < axes; ++axis) {
    if (axis_position(token, axis) < 0 || axis_position(token, axis) >= max_pos) return true;
  }
  return false;
}

double AppendRun::table(int token, int pair, bool sine) const {
  const AppendSpec& spec = problem_.spec;
  const auto& [first, second, third] = spec.mrope_sections;
  int axis = 0;
  if (spec.has_sections() && spec.mrope_interleaved) {
    if (pair % 3 == 1 && pair < 3 * second) axis = 1;
    if (pair % 3 == 2 && pair < 3 * third) axis = 2;
  } else if (spec.has_sections()) {
    axis = pair < first ? 0 : pair < first + second ? 1 : 2;
  }
  return cos_sin_.get({axis_position(token, axis), pair + (sine ? spec.rotary_dim / 2 : 0)});
}

std::vector<double> AppendRun::rotated(const DeviceTensor& source, int token, int head,
                                       const DeviceTensor& weight) const {
  const AppendSpec& spec = problem_.spec;
  std::vector<double> row(static_cast<std::size_t>(spec.head_dim));
  double squares = 0;
  for (int d = 0; d < spec.head_dim; ++d) {
    const double x = source.get(at(token, head, d));
    row[static_cast<std::size_t>(d)] = x;
    squares += x * x;
  }
  for (int d = 0; spec.norm && d < spec.head_dim; ++d) {
    row[static_cast<std::size_t>(d)] *=
        (weight.get({d}) + (spec.norm_adds_one ? 1 : 0)) /
        std::sqrt(squares / spec.head_dim + static_cast<double>(spec.norm_eps));
  }
  for (int pair = 0; pair < spec.rotary_dim / 2; ++pair) {
    double& a = row[static_cast<std::size_t>(spec.rotary_interleaved ? 2 * pair : pair)];
    double& b =
        row[static_cast<std::size_t>(spec.rotary_interleaved ? 2 * pair + 1 : pair + spec.rotary_dim / 2)];
    const double cosine = table(token, pair, false), sine = table(token, pair, true);
    const double x = a, y = b;
    a = x * cosine - y * sine;
    b = y * cosine + x * sine;
  }
  return row;
}

bool AppendRun::is_near(DType dtype, double got, double expected) const {
  const double rounding = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  return std::abs(got - expected) <= rounding * std::abs(expected) + 1e-4;
}

std::string AppendRun::check() {
  for (DeviceTensor* tensor : {&k_cache_, &v_cache_, &q_, &q_out_}) tensor->download();
  const AppendSpec& spec = problem_.spec;
  DeviceTensor k_cache = cache(problem_, spec.head_dim), v_cache = cache(problem_, spec.value_head_dim());
  DeviceTensor& q = problem_.into_q_out ? q_out_ : q_;
  for (int token = 0; token < tokens(); ++token) {
    const bool is_left = is_left_alone(token);
    for (int head = 0; head < problem_.heads_q; ++head) {
      const std::vector<double> row = rotated_or(token, head, is_left);
      for (int d = 0; d < spec.head_dim; ++d) {
        const double got = q.get(at(token, head, d)), expected = row[static_cast<std::size_t>(d)];
        if (std::isnan(expected) ? !std::isnan(got) : !is_near(spec.dtype, got, expected))
          return fmt::format("q of token {}, head {}, column {} is {}, should be {}", token, head, d, got,
                             expected);
      }
    }
    const auto& [page, offset] = places_[static_cast<std::size_t>(token)];
    if (page < 0 || is_left) continue;
    for (int head = 0; head < problem_.heads_kv; ++head) {
      const std::vector<double> row = rotated(k_, token, head, k_weight_);
      for (int d = 0; d < spec.head_dim; ++d) {
        const double got = k_cache_.get({page, offset, head, d}), expected = row[static_cast<std::size_t>(d)];
        if (!is_near(spec.stored_dtype(), got, expected))
          return fmt::format("k of token {}, head {}, column {} is {}, should be {}", token, head, d, got,
                             expected);
        k_cache.set({page, offset, head, d}, got);
      }
      for (int d = 0; d < spec.value_head_dim(); ++d) {
        v_cache.set({page, offset, head, d}, v_.get(at(token, head, d)));
      }
    }
  }
  if (k_cache.bytes() != k_cache_.bytes()) return "bytes of k_cache have changed that are none of a token's";
  if (v_cache.bytes() != v_cache_.bytes()) return "v_cache is not what was stored and nothing else";
  return "";
}

std::vector<double> AppendRun::rotated_or(int token, int head, bool is_left) const {
  if (!is_left) return rotated(q_before_, token, head, q_weight_);
  std::vector<double> row(static_cast<std::size_t>(problem_.spec.head_dim), std::nan(""));
  for (int d = 0; !problem_.into_q_out && d < problem_.spec.head_dim; ++d)
    row[static_cast<std::size_t>(d)] = q_before_.get(at(token, head, d));
  return row;
}

std::vector<std::uint8_t> AppendRun::written() const {
  std::vector<std::uint8_t> bytes;
  for (const DeviceTensor* tensor : {&k_cache_, &v_cache_, &q_, &q_out_})
    bytes.insert(bytes.end(), tensor->bytes().begin(), tensor->bytes().end());
  return bytes;
}

}  // namespace jit::testing
