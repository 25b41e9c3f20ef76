#include "tests/support/quantize_run.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include <jit/dtype.h>

#include "templates/base/philox.cuh"

namespace jit::testing {
namespace {

constexpr int max_pos = 90;
constexpr std::uint64_t rotation_seed = 0x123456789abcdef;

bool is_near(double got, double expected, double scale) { return std::abs(got - expected) <= 2e-5 * scale; }

double largest_of(DType dtype) { return dtype == DType::fp8_e4m3 ? 448 : 57344; }

// How far a number of this size is from the next element.
double spacing(DType dtype, double x) {
  const int mantissa = dtype == DType::fp8_e4m3 ? 3 : 2, least = dtype == DType::fp8_e4m3 ? -6 : -14;
  const int exponent = x == 0 ? least : std::max(least, std::ilogb(x));
  return std::ldexp(1.0, exponent - mantissa);
}

bool changes_sign(int column) {
  const auto word = static_cast<unsigned>(column / 32);
  const PhiloxWords drawn = philox<10>({{word / 4, 0, 0, 0}}, static_cast<unsigned>(rotation_seed),
                                       static_cast<unsigned>(rotation_seed >> 32));
  return (drawn.words[word % 4] >> column % 32 & 1) != 0;
}

DeviceTensor int32_tensor(const std::vector<int>& values) {
  DeviceTensor tensor(DType::int32, {static_cast<std::int64_t>(values.size())});
  tensor.fill([&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  tensor.upload();
  return tensor;
}

}  // namespace

bool SequencesCase::has(int batch, int token) const {
  const auto is_used = [&](int sequence, int place) {
    return place >= 0 && (seqused.empty() || place < seqused[static_cast<std::size_t>(sequence)]);
  };
  if (cu_seqlens.empty()) return is_used(batch, token);
  for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    if (token < cu_seqlens[i + 1] && is_used(static_cast<int>(i), token - cu_seqlens[i])) return true;
  }
  return false;
}

std::string to_string(const QuantizeCase& problem) {
  const QuantizeSpec& spec = problem.spec;
  return fmt::format(
      "{} to {} d{}/{} scales {}/{}{}{}{} rows kept {}, batch {}, {} x {} queries, {} x {} keys, "
      "boundaries [{}] and "
      "[{}], lengths [{}] and [{}]",
      to_string(spec.dtype), to_string(spec.out_dtype), spec.head_dim, spec.value_head_dim(),
      static_cast<int>(spec.scales), static_cast<int>(spec.value_scales), spec.rotate ? " rotated" : "",
      spec.center_keys ? " k-mean" : "", spec.center_values ? " v-mean" : "", to_string(spec.keep_rows),
      problem.batch, problem.heads_q, problem.seqlen_q, problem.heads_kv, problem.seqlen_kv,
      fmt::join(problem.queries.cu_seqlens, ", "), fmt::join(problem.keys.cu_seqlens, ", "),
      fmt::join(problem.queries.seqused, ", "), fmt::join(problem.keys.seqused, ", "));
}

QuantizeRun::Index QuantizeRun::at(int batch, std::initializer_list<std::int64_t> rest) const {
  Index index;
  if (problem_.batch != 0) index.push_back(batch);
  index.insert(index.end(), rest);
  return index;
}

DeviceTensor QuantizeRun::rows(DType dtype, int seqlen, int heads, int columns) const {
  TensorLayout layout = problem_.layout;
  if (problem_.batch == 0) layout.order = {};
  if (layout.row_elements != 0) layout.row_elements = columns + layout.row_elements;
  return {dtype, at(problem_.batch, {seqlen, heads, columns}), layout};
}

DeviceTensor QuantizeRun::numbers(std::initializer_list<std::int64_t> shape) const {
  return {DType::fp32, at(problem_.batch, shape)};
}

DeviceTensor QuantizeRun::scales(QuantizedScales kind, int seqlen, int heads, int columns) const {
  if (kind == QuantizedScales::token) return numbers({seqlen, heads});
  if (kind == QuantizedScales::block) return numbers({(seqlen + 63) / 64, heads});
  if (kind == QuantizedScales::channel) return numbers({problem_.heads_kv, columns});
  return numbers({problem_.heads_kv});
}

QuantizeRun::QuantizeRun(const QuantizeCase& problem, std::uint64_t seed)
    : problem_(problem),
      random_(seed),
      q_(rows(problem.spec.dtype, problem.seqlen_q, problem.heads_q, problem.spec.head_dim)),
      k_(rows(problem.spec.dtype, problem.seqlen_kv, problem.heads_kv, problem.spec.head_dim)),
      v_(rows(problem.spec.dtype, problem.seqlen_kv, problem.heads_kv, problem.spec.value_head_dim())),
      q_out_(rows(problem.spec.out_dtype, problem.seqlen_q, problem.heads_q, problem.spec.head_dim)),
      k_out_(rows(problem.spec.out_dtype, problem.seqlen_kv, problem.heads_kv, problem.spec.head_dim)),
      v_out_(
          rows(problem.spec.out_dtype, problem.seqlen_kv, problem.heads_kv, problem.spec.value_head_dim())),
      q_scale_(scales(problem.spec.scales, problem.seqlen_q, problem.heads_q, problem.spec.head_dim)),
      k_scale_(scales(problem.spec.scales, problem.seqlen_kv, problem.heads_kv, problem.spec.head_dim)),
      v_scale_(scales(problem.spec.value_scales, problem.seqlen_kv, problem.heads_kv,
                      problem.spec.value_head_dim())),
      k_mean_(numbers({problem.heads_kv, problem.spec.head_dim})),
      v_mean_(numbers({problem.heads_kv, problem.spec.value_head_dim()})),
      shift_(numbers({problem.heads_q, problem.seqlen_q})),
      q_weight_(problem.spec.norm_dtype, {problem.spec.head_dim}),
      k_weight_(problem.spec.norm_dtype, {problem.spec.head_dim}),
      table_(problem.spec.cos_sin_dtype, {max_pos, std::max(2, problem.spec.rotary_dim)}),
      q_positions_(DType::int64, at(problem.batch, {problem.seqlen_q})),
      k_positions_(DType::int64, at(problem.batch, {problem.seqlen_kv})),
      cu_seqlens_q_(int32_tensor(problem.queries.cu_seqlens)),
      cu_seqlens_k_(int32_tensor(problem.keys.cu_seqlens)),
      seqused_q_(int32_tensor(problem.queries.seqused)),
      seqused_k_(int32_tensor(problem.keys.seqused)) {
  const QuantizeSpec& spec = problem_.spec;
  QuantizeArguments& a = arguments_;
  a.q = q_.view(), a.k = k_.view(), a.v = v_.view();
  a.q_out = q_out_.view(), a.k_out = k_out_.view(), a.v_out = v_out_.view();
  a.q_descale = q_scale_.view(), a.k_descale = k_scale_.view(), a.v_descale = v_scale_.view();
  a.rotation_seed = rotation_seed;
  if (spec.norm) a.q_norm_weight = q_weight_.view(), a.k_norm_weight = k_weight_.view();
  if (spec.rotary_dim != 0) {
    a.cos_sin = table_.view();
    if (problem_.has_positions) a.q_positions = q_positions_.view(), a.k_positions = k_positions_.view();
  }
  for (const auto& [view, tensor] : {std::pair{&a.cu_seqlens_q, &cu_seqlens_q_},
                                     {&a.cu_seqlens_k, &cu_seqlens_k_},
                                     {&a.seqused_q, &seqused_q_},
                                     {&a.seqused_k, &seqused_k_}}) {
    if (tensor->count() > 0) *view = tensor->view();
  }
  problem_.spec.sequences = sequences_of(a);
  written_ = {&q_out_, &k_out_, &v_out_};
  if (spec.scales != QuantizedScales::given) written_.insert(written_.end(), {&q_scale_, &k_scale_});
  if (spec.value_scales != QuantizedScales::given) written_.push_back(&v_scale_);
  if (spec.center_keys && problem_.with_shift) {
    a.k_mean = k_mean_.view(), a.lse_shift = shift_.view();
    written_.insert(written_.end(), {&k_mean_, &shift_});
  }
  if (spec.center_values) {
    a.v_mean = v_mean_.view();
    written_.push_back(&v_mean_);
  }
  fill();
}

void QuantizeRun::fill() {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> scale(0.01, 0.03);
  const auto draw = [&](DeviceTensor& tensor, double offset, const SequencesCase& sequences = {}) {
    const TensorView& view = tensor.view();
    const std::int64_t columns = view.shape[view.rank - 1];
    tensor.fill([&](std::int64_t flat) {
      if (sequences != SequencesCase()) {
        const std::vector<std::int64_t> at = tensor.index(flat);
        const auto token = static_cast<int>(at[at.size() - 3]);
        // NaN would spoil a mean, and a large number a scale.
        if (!sequences.has(view.rank == 4 ? static_cast<int>(at[0]) : 0, token))
          return token % 2 == 0 ? std::nan("") : 3e4;
      }
      const double of_column = offset * std::cos(static_cast<double>(flat % columns));
      return normal(random_) * (random_() % 50 == 0 ? 1 + problem_.outliers : 1) + of_column;
    });
    tensor.upload();
  };
  draw(q_weight_, 0), draw(k_weight_, 0);
  std::uniform_real_distribution<double> angle(-3, 3);
  const int half = problem_.spec.rotary_dim / 2;
  for (int position = 0; position < max_pos; ++position) {
    for (int pair = 0; pair < half; ++pair) {
      const double radians = angle(random_);
      table_.set({position, pair}, std::cos(radians));
      table_.set({position, half + pair}, std::sin(radians));
    }
  }
  table_.upload();
  for (DeviceTensor* positions : {&q_positions_, &k_positions_}) {
    const std::int64_t rows = positions->view().shape[positions->view().rank - 1];
    positions->fill([&](std::int64_t flat) {
      if (!problem_.has_positions) return static_cast<double>(flat % rows);
      return static_cast<double>(random_() % (max_pos + 2)) - 1;  // two of them are none
    });
    positions->upload();
  }
  draw(q_, 0, problem_.queries);
  draw(k_, problem_.offset, problem_.keys);
  draw(v_, problem_.offset, problem_.keys);
  for (DeviceTensor* tensor : {&q_scale_, &k_scale_, &v_scale_}) {
    tensor->fill([&](std::int64_t) { return scale(random_); });
    tensor->upload();
  }
  for (DeviceTensor* tensor : written_) {
    tensor->poison();
    tensor->upload();
  }
}

void QuantizeRun::embed(std::vector<double>& row, const DeviceTensor& weight, std::int64_t position) const {
  const QuantizeSpec& spec = problem_.spec;
  double squares = 0;
  for (const double x : row) squares += x * x;
  for (std::size_t d = 0; spec.norm && d < row.size(); ++d) {
    row[d] *= (weight.get({static_cast<std::int64_t>(d)}) + (spec.norm_adds_one ? 1 : 0)) /
              std::sqrt(squares / spec.head_dim + static_cast<double>(spec.norm_eps));
  }
  if (spec.rotary_dim != 0 && (position < 0 || position >= max_pos)) {
    std::fill(row.begin(), row.end(), std::nan(""));
    return;
  }
  const int half = spec.rotary_dim / 2;
  for (int pair = 0; pair < half; ++pair) {
    double& a = row[static_cast<std::size_t>(spec.rotary_interleaved ? 2 * pair : pair)];
    double& b = row[static_cast<std::size_t>(spec.rotary_interleaved ? 2 * pair + 1 : pair + half)];
    const double cosine = table_.get({position, pair}), sine = table_.get({position, half + pair});
    const double x = a, y = b;
    a = x * cosine - y * sine;
    b = y * cosine + x * sine;
  }
}

QuantizeRun::Rows QuantizeRun::wanted(const DeviceTensor& source, int seqlen, int heads, int columns,
                                      bool is_rotated) const {
  Rows rows;
  for (int b = 0; b < batches(); ++b) {
    for (int token = 0; token < seqlen; ++token) {
      for (int head = 0; head < heads; ++head) {
        const bool is_query = &source == &q_;
        if (!(is_query ? problem_.queries : problem_.keys).has(b, token)) {
          rows.insert(rows.end(), static_cast<std::size_t>(columns), std::nan(""));
          continue;
        }
        std::vector<double> row;
        for (int c = 0; c < columns; ++c) row.push_back(source.get(at(b, {token, head, c})));
        if (&source != &v_)
          embed(row, is_query ? q_weight_ : k_weight_,
                static_cast<std::int64_t>((is_query ? q_positions_ : k_positions_).get(at(b, {token}))));
        if (is_rotated) {
          for (int c = 0; c < columns; ++c) {
            if (changes_sign(c)) row[static_cast<std::size_t>(c)] *= -1;
          }
          std::vector<double> rotated(row.size());
          for (std::size_t j = 0; j < row.size(); ++j) {
            for (std::size_t c = 0; c < row.size(); ++c)
              rotated[j] += std::popcount(c & j) % 2 != 0 ? -row[c] : row[c];
            rotated[j] /= std::sqrt(columns);
          }
          row = rotated;
        }
        rows.insert(rows.end(), row.begin(), row.end());
      }
    }
  }
  return rows;
}

std::string QuantizeRun::check_rows(const char* name, const Rows& rows, const DeviceTensor& made,
                                    const DeviceTensor& scale, QuantizedScales kind,
                                    const SequencesCase& sequences, int seqlen, int heads,
                                    int columns) const {
  const DType dtype = problem_.spec.out_dtype;
  const int ratio = heads / std::max(1, problem_.heads_kv);
  for (int b = 0; b < batches(); ++b) {
    const auto value = [&](int token, int head, int c) {
      return rows[static_cast<std::size_t>(((b * seqlen + token) * heads + head) * columns + c)];
    };
    for (int token = 0; token < seqlen; ++token) {
      for (int head = 0; head < heads; ++head) {
        for (int c = 0; c < columns; ++c) {
          const Index place = kind == QuantizedScales::token     ? at(b, {token, head})
                              : kind == QuantizedScales::block   ? at(b, {token / 64, head})
                              : kind == QuantizedScales::channel ? at(b, {head, c})
                                                                 : at(b, {head / ratio});
          const double by = scale.get(place);
          const double wanted = std::clamp(value(token, head, c) / by, -largest_of(dtype), largest_of(dtype));
          const double got = made.get(at(b, {token, head, c}));
          if (std::isnan(value(token, head, c))) {
            if (std::isnan(got)) continue;
            return fmt::format("{} of batch {}, token {}, head {}, column {} is {}, should be NaN", name, b,
                               token, head, c, got);
          }
          // Sums in fp32 are off by a little.
          if (!(std::abs(got - wanted) <= 0.5 * spacing(dtype, wanted) + 2e-5 * largest_of(dtype)))
            return fmt::format("{} of batch {}, token {}, head {}, column {} is {}, should be {}", name, b,
                               token, head, c, got, wanted);
        }
      }
    }
    if (kind == QuantizedScales::given) continue;
    // The largest magnitude of each scale.
    const bool is_of_rows = kind == QuantizedScales::token || kind == QuantizedScales::block;
    const int together = kind == QuantizedScales::token ? 1 : kind == QuantizedScales::block ? 64 : seqlen;
    const int groups = is_of_rows ? (seqlen + together - 1) / together * heads : problem_.heads_kv;
    for (int group = 0; group < groups; ++group) {
      std::vector<double> largest(kind == QuantizedScales::channel ? static_cast<std::size_t>(columns) : 1);
      const int first_token = is_of_rows ? group / heads * together : 0;
      const int last_token = std::min(first_token + together, seqlen);
      const int first_head = is_of_rows ? group % heads : group * ratio;
      const int last_head = is_of_rows ? first_head + 1 : first_head + ratio;
      for (int token = first_token; token < last_token; ++token) {
        for (int head = first_head; head < last_head; ++head) {
          for (int c = 0; c < columns; ++c) {
            double& most = largest[largest.size() == 1 ? 0 : static_cast<std::size_t>(c)];
            const double own = std::abs(value(token, head, c));
            if (!std::isnan(own)) most = std::max(most, own);
          }
        }
      }
      for (std::size_t i = 0; i < largest.size(); ++i) {
        const auto column = static_cast<std::int64_t>(i);
        const double got = scale.get(is_of_rows ? at(b, {first_token / together, first_head})
                                     : kind == QuantizedScales::channel ? at(b, {group, column})
                                                                        : at(b, {group}));
        const double expected = largest[i] > 0 ? largest[i] / largest_of(dtype) : 1;
        const bool is_untouched = kind == QuantizedScales::token && !sequences.has(b, first_token);
        if (is_untouched && std::isnan(got)) continue;
        if (is_untouched ||
            !is_near(got, expected, expected + (largest[i] > 0 ? 0.1 / largest_of(dtype) : 0)))
          return fmt::format("the scale of {}, batch {}, group {}, column {} is {}, should be {}", name, b,
                             group, i, got, expected);
      }
    }
  }
  return "";
}

std::string QuantizeRun::check() {
  for (DeviceTensor* tensor : written_) tensor->download();
  const QuantizeCase& p = problem_;
  const QuantizeSpec& spec = p.spec;
  const Rows q = wanted(q_, p.seqlen_q, p.heads_q, spec.head_dim, spec.rotate);
  Rows k = wanted(k_, p.seqlen_kv, p.heads_kv, spec.head_dim, spec.rotate);
  Rows v = wanted(v_, p.seqlen_kv, p.heads_kv, spec.value_head_dim(), false);
  std::string wrong;
  const auto center = [&](const char* name, Rows& rows, int columns, const DeviceTensor* made) {
    const auto line = static_cast<std::size_t>(p.heads_kv * columns),
               tokens = static_cast<std::size_t>(p.seqlen_kv);
    std::vector<double> means;
    for (int b = 0; b < batches(); ++b) {
      for (std::size_t i = 0; i < line; ++i) {
        double* const first = rows.data() + static_cast<std::size_t>(b) * tokens * line + i;
        double sum = 0;
        int count = 0;
        for (std::size_t token = 0; token < tokens; ++token) {
          if (!p.keys.has(b, static_cast<int>(token))) continue;
          sum += first[token * line];
          ++count;
        }
        means.push_back(count > 0 ? sum / count : 0);
        for (std::size_t token = 0; token < tokens; ++token) first[token * line] -= means.back();
        const auto head = static_cast<std::int64_t>(i) / columns, c = static_cast<std::int64_t>(i) % columns;
        if (made != nullptr && !is_near(made->get(at(b, {head, c})), means.back(), 1 + std::abs(p.offset)))
          wrong = fmt::format("the mean of {}, batch {}, head {}, column {} is {}, should be {}", name, b,
                              head, c, made->get(at(b, {head, c})), means.back());
      }
    }
    return means;
  };
  if (spec.center_keys) {
    const std::vector<double> means = center("k", k, spec.head_dim, p.with_shift ? &k_mean_ : nullptr);
    const int ratio = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
    for (int b = 0; b < (p.with_shift ? batches() : 0); ++b) {
      for (int token = 0; token < p.seqlen_q; ++token) {
        for (int head = 0; head < p.heads_q; ++head) {
          double sum = 0, magnitude = 1;
          for (int c = 0; c < spec.head_dim; ++c) {
            const double term =
                q[static_cast<std::size_t>(((b * p.seqlen_q + token) * p.heads_q + head) * spec.head_dim +
                                           c)] *
                means[static_cast<std::size_t>((b * p.heads_kv + head / ratio) * spec.head_dim + c)];
            sum += term, magnitude += std::abs(term);
          }
          const double got = shift_.get(at(b, {head, token}));
          if (!p.queries.has(b, token) ? !std::isnan(got) : !is_near(got, sum, magnitude))
            wrong = fmt::format("lse_shift of batch {}, token {}, head {} is {}, should be {}", b, token,
                                head, got, sum);
        }
      }
    }
  }
  if (spec.center_values) center("v", v, spec.value_head_dim(), &v_mean_);
  if (!wrong.empty()) return wrong;
  wrong = check_rows("q", q, q_out_, q_scale_, spec.scales, p.queries, p.seqlen_q, p.heads_q, spec.head_dim);
  if (wrong.empty())
    wrong = check_rows("k", k, k_out_, k_scale_, spec.scales, p.keys, p.seqlen_kv, p.heads_kv, spec.head_dim);
  if (wrong.empty())
    wrong = check_rows("v", v, v_out_, v_scale_, spec.value_scales, p.keys, p.seqlen_kv, p.heads_kv,
                       spec.value_head_dim());
  return wrong;
}

std::vector<std::uint8_t> QuantizeRun::written() const {
  std::vector<std::uint8_t> bytes;
  for (const DeviceTensor* tensor : written_)
    bytes.insert(bytes.end(), tensor->bytes().begin(), tensor->bytes().end());
  return bytes;
}

}  // namespace jit::testing
