#include "tests/support/attention_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/float16.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_tensors.h"
#include "templates/base/params.cuh"
#include "tests/support/attention_exact.h"
#include "tests/support/attention_plain.h"
#include "tests/support/float16.h"

namespace jit::testing {
namespace {

// Sums of fp32, and ex2 and lg2 that are right to 2^-22.
constexpr double lse_tolerance = 5e-5;
// wgmma sums products of 8 bits in 13 bits behind the point.
constexpr double fp8_lse_tolerance = 1e-3;

Place place_operand(Arena& arena, const AttentionCase& wanted, const RequestRows& rows, int heads,
                    int head_dim, DType dtype) {
  const std::int64_t b = rows.entries, s = rows.per_entry, h = heads, d = head_dim;
  const int bytes = size_of(dtype);
  Place place{.dtype = dtype, .rank = 4, .shape = {b, s, h, d}, .strides = {s * h * d, h * d, d, 1}};
  std::int64_t elements = b * s * h * d;
  std::int64_t first = 0;
  if (wanted.layout == Layout::bhsd) {
    place.strides[0] = h * s * d;
    place.strides[1] = d;
    place.strides[2] = s * d;
  } else if (wanted.layout == Layout::padded) {
    const std::int64_t pad = std::max(1, wanted.spec.alignment / bytes);
    place.strides[2] = (d + pad - 1) / pad * pad + pad;
    place.strides[1] = h * place.strides[2] + 2 * pad;
    place.strides[0] = s * place.strides[1] + pad;
    first = pad;
    elements = b * place.strides[0] + pad;
  } else if (wanted.layout == Layout::reversed && s > 0) {
    first = (s - 1) * h * d;
    place.strides[1] = -h * d;
  }
  place.offset =
      arena.reserve(static_cast<std::size_t>(elements * bytes)) + static_cast<std::size_t>(first * bytes);
  return place;
}

// Slices of one dense tensor (batch, seqlen, Σ heads · head_dim).
void place_packed(Arena& arena, const std::vector<Place*>& places) {
  const std::int64_t batch = places[0]->shape[0], seqlen = places[0]->shape[1];
  std::int64_t row = 0;
  for (const Place* place : places) row += place->shape[2] * place->shape[3];
  const auto bytes = static_cast<std::size_t>(size_of(places[0]->dtype));
  const auto base = arena.reserve(static_cast<std::size_t>(batch * seqlen * row) * bytes);
  std::int64_t column = 0;
  for (Place* place : places) {
    place->offset = base + static_cast<std::size_t>(column) * bytes;
    place->strides[0] = seqlen * row;
    place->strides[1] = row;
    place->strides[2] = place->shape[3];
    column += place->shape[2] * place->shape[3];
  }
}

// By batch entry, row and head; calls are given (batch, heads, rows), or (heads, rows).
Place place_lse(Arena& arena, const AttentionCase& wanted, const RequestRows& rows) {
  const std::int64_t b = rows.entries, h = wanted.heads_q(), s = rows.per_entry;
  Place place{.dtype = DType::fp32, .rank = 3, .shape = {b, s, h}, .strides = {h * s, 1, s}};
  if (wanted.layout == Layout::padded) {
    place.strides[0] = h * s + 3;
    place.strides[1] = h;
    place.strides[2] = 1;
  }
  place.offset = arena.reserve(static_cast<std::size_t>(b * place.strides[0]) * 4);
  place = rows.of(place);
  Place stored = place.stored ? *place.stored : place;
  const int row = stored.rank - 2;
  std::swap(stored.shape[row], stored.shape[row + 1]);
  std::swap(stored.strides[row], stored.strides[row + 1]);
  place.stored = std::make_shared<const Place>(stored);
  return place;
}

// Bias rows lie apart; all other tensors of functors are dense.
Place place_functor_tensor(Arena& arena, const reference::FunctorData& data) {
  Place place{.dtype = data.dtype, .rank = static_cast<int>(data.shape.size())};
  const std::int64_t gap = data.dtype == DType::int32 ? 4 : 5;  // mask bits begin at multiples of 16 bytes
  std::int64_t stride = 1;
  for (int i = place.rank - 1; i >= 0; --i) {
    place.shape[i] = data.shape[static_cast<std::size_t>(i)];
    place.strides[i] = stride;
    stride *= place.shape[i];
    if (place.rank == 4 && i == 3) stride += gap;
  }
  const auto element = static_cast<std::size_t>(size_of(data.dtype));
  place.offset = arena.reserve(static_cast<std::size_t>(stride) * element);
  const std::size_t row =
      place.rank == 0 ? 0 : static_cast<std::size_t>(place.shape[place.rank - 1]) * element;
  if (row == 0) return place;
  const std::size_t rows = data.bytes.size() / row;
  const std::size_t pitch = row + (place.rank == 4 ? static_cast<std::size_t>(gap) * element : 0);
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(arena.host.data() + place.offset + i * pitch, data.bytes.data() + i * row, row);
  return place;
}

// Scales of elements of 8 bits: powers of two.
Place place_scales(Arena& arena, const AttentionCase& wanted, const Place& tensor, const RequestRows& rows,
                   bool is_value, std::mt19937_64& random) {
  const bool is_each =
      wanted.spec.descale_per != ScaleKind::head && !(is_value && has_fp8_queries(wanted.spec));
  const std::int64_t together = wanted.spec.descale_per == ScaleKind::block ? scale_block_rows : 1;
  const std::int64_t b = is_each ? rows.entries : wanted.batch,
                     s = (rows.per_entry + together - 1) / together,
                     h = is_each ? tensor.shape[2] : wanted.heads_kv;
  Place place{.dtype = DType::fp32, .rank = 2, .shape = {b, h}, .strides = {h, 1}};
  if (is_value && wanted.spec.v_descale_per == ScaleKind::channel) {
    const std::int64_t d = wanted.spec.value_head_dim();
    place = {.dtype = DType::fp32, .rank = 4, .shape = {b, 1, h, d}, .strides = {h * d, 0, d, 1}};
  }
  if (is_each) place = {.dtype = DType::fp32, .rank = 3, .shape = {b, s, h}, .strides = {s * h, h, 1}};
  const std::int64_t count = place.strides[0] * b;
  place.offset = arena.reserve(static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = std::ldexp(1.0f, static_cast<int>(random() % 4) - 3);
    std::memcpy(arena.host.data() + place.offset + static_cast<std::size_t>(i) * sizeof scale, &scale,
                sizeof scale);
  }
  if (!is_each) return place;
  if (rows.kind != SequenceKind::dense) return rows.of(place, together);
  place.rows = together;
  return place;
}

// Means, or what scores have lost: normally distributed, and dense.
Place place_normal(Arena& arena, std::initializer_list<std::int64_t> shape, std::vector<float>& numbers,
                   std::mt19937_64& random) {
  Place place{.dtype = DType::fp32, .rank = static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), place.shape);
  std::int64_t count = 1;
  for (int i = place.rank - 1; i >= 0; --i) {
    place.strides[i] = count;
    count *= place.shape[i];
  }
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(normal(random));
  place.offset = arena.reserve(numbers.size() * sizeof(float));
  std::memcpy(arena.host.data() + place.offset, numbers.data(), numbers.size() * sizeof(float));
  return place;
}

// Without the dimension of rows, which share what there is one of for each column.
TensorView without_rows(TensorView view) {
  if (view.rank < 4) return view;
  --view.rank;
  std::copy(view.shape + 2, view.shape + 4, view.shape + 1);
  std::copy(view.strides + 2, view.strides + 4, view.strides + 1);
  return view;
}

// Heads of queries that share a scale.
int q_scale_ratio(const AttentionSpec& spec) {
  return spec.descale_per == ScaleKind::head ? spec.gqa_ratio : 1;
}

float scale_at(const Arena& arena, const Place& scales, std::int64_t b, std::int64_t s, std::int64_t h,
               std::int64_t d) {
  float scale;
  const std::size_t at =
      scales.rank == 2 ? scales.at(b, h) : scales.at(b, s / scales.rows, h, scales.rank == 4 ? d : 0);
  std::memcpy(&scale, arena.host.data() + at, sizeof scale);
  return scale;
}

// Calls f(b, s, h, d) for each element of a row that is there.
template <class F>
void for_each_element(const Place& place, const F& f) {
  for (std::int64_t b = 0; b < place.shape[0]; ++b) {
    for (std::int64_t s = 0; s < place.shape[1]; ++s) {
      if (!place.has_row(b, s)) continue;
      for (std::int64_t h = 0; h < place.shape[2]; ++h) {
        for (std::int64_t d = 0; d < place.shape[3]; ++d) f(b, s, h, d);
      }
    }
  }
}

// Elements of 8 bits that are normally distributed once they are multiplied by their scales, which `ratio` heads share.
void fill_codes(Arena& arena, const Place& place, const Place& scales, int ratio, float amplitude,
                std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, amplitude);
  const reference::NearestCode nearest_code(place.dtype);
  for_each_element(place, [&](auto b, auto s, auto h, auto d) {
    arena.host[place.at(b, s, h, d)] =
        nearest_code(normal(random) / scale_at(arena, scales, b, s, h / ratio, d));
  });
}

void fill_random(Arena& arena, const Place& place, float amplitude, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, amplitude);
  for_each_element(place, [&](auto b, auto s, auto h, auto d) {
    const std::uint16_t bits = reference::from_float(place.dtype, normal(random));
    std::memcpy(arena.host.data() + place.at(b, s, h, d), &bits, sizeof(bits));
  });
}

// Nothing where there are none; as a table with so many columns, if any.
Place place_numbers(Arena& arena, const std::vector<int>& numbers, std::int64_t columns = 0) {
  if (numbers.empty()) return {};
  const auto count = static_cast<std::int64_t>(numbers.size());
  Place place{.dtype = DType::int32, .rank = 1, .shape = {count}, .strides = {1}};
  if (columns > 0)
    place = {.dtype = DType::int32, .rank = 2, .shape = {count / columns, columns}, .strides = {columns, 1}};
  place.offset = arena.reserve(numbers.size() * sizeof(int));
  std::memcpy(arena.host.data() + place.offset, numbers.data(), numbers.size() * sizeof(int));
  return place;
}

// The functors of a call whose entries have lengths of their own: each sees its entry's.
void give_entries_their_lengths(reference::Problem& problem, const AttentionCase& wanted,
                                const reference::FunctorProblem& whole) {
  struct Entry {
    int keys;
    reference::Keep keep;
    reference::ScoreFunction score;
  };
  const AttentionSpec& spec = wanted.spec;
  std::vector<Entry> entries;
  for (int b = 0; b < wanted.batch; ++b) {
    const auto own = std::make_shared<reference::FunctorProblem>(whole);
    const auto length = [&](const std::vector<int>& used, int all) {
      return used.empty() ? all : used[static_cast<std::size_t>(b)];
    };
    const int keys = length(wanted.used_keys, wanted.seqlen_kv);
    // Parts of sequences are of one that is as long as tensors have it.
    if (!has_positions(spec)) {
      own->seqlen_q = length(wanted.used_queries, wanted.seqlen_q);
      own->seqlen_kv = keys;
    }
    entries.push_back({keys, reference::host_mask(spec.mask, own), reference::host_score(spec.score, own)});
  }
  problem.keep = [entries](int b, int h, int q, int k) {
    const Entry& entry = entries[static_cast<std::size_t>(b)];
    return k < entry.keys && (!entry.keep || entry.keep(b, h, q, k));
  };
  if (!problem.score) return;
  problem.score = [entries](double score, int b, int h, int q, int k) {
    return entries[static_cast<std::size_t>(b)].score(score, b, h, q, k);
  };
}

reference::HostTensor host_tensor(const Arena& arena, const Place& place) {
  return {.data = reinterpret_cast<const std::uint16_t*>(arena.host.data() + place.offset),
          .batch_stride = place.strides[0],
          .seq_stride = place.strides[1],
          .head_stride = place.strides[2]};
}

float element(const std::vector<unsigned char>& bytes, const Place& place, std::size_t offset) {
  if (place.dtype == DType::fp32) {
    float value;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes.data() + offset, sizeof(bits));
  return reference::to_float(place.dtype, bits);
}

}  // namespace

AttentionRun::AttentionRun(const AttentionCase& wanted, int device)
    : case_(wanted), tensor_specs_(functor_tensors(wanted.spec)) {
  const AttentionSpec& spec = case_.spec;
  std::mt19937_64 random(case_.seed);
  inputs_.reserve(0);
  const DType key_dtype = spec.key_dtype();
  const auto rows_of = [&](SequenceKind kind, int seqlen, const std::vector<int>& used) {
    if (kind == SequenceKind::varlen) return RequestRows::varlen(seqlen, used, case_.spare_rows);
    if (kind == SequenceKind::paged) return RequestRows::paged(seqlen, used, spec.page_size, random);
    return RequestRows::dense(case_.batch, seqlen, used);
  };
  q_rows_ = rows_of(spec.sequences_q, case_.seqlen_q, case_.used_queries);
  kv_rows_ = rows_of(spec.sequences_kv, case_.seqlen_kv, case_.used_keys);
  q_ = place_operand(inputs_, case_, q_rows_, case_.heads_q(), spec.head_dim, spec.dtype);
  k_ = place_operand(inputs_, case_, kv_rows_, case_.heads_kv, spec.head_dim, key_dtype);
  if (!spec.values_in_keys)
    v_ = place_operand(inputs_, case_, kv_rows_, case_.heads_kv, spec.value_head_dim(), key_dtype);
  if (case_.layout == Layout::packed_qkv) {
    const bool self = is_dense(spec) && case_.seqlen_q == case_.seqlen_kv && key_dtype == spec.dtype;
    std::vector<Place*> packed = {&k_};
    if (self) packed.insert(packed.begin(), &q_);
    if (!spec.values_in_keys) packed.push_back(&v_);
    place_packed(inputs_, packed);
  }
  q_ = q_rows_.of(q_);
  for (Place* const place : {&k_, &v_}) *place = kv_rows_.of(*place);
  if (has_fp8_queries(spec)) {
    q_descale_ = place_scales(inputs_, case_, q_, q_rows_, false, random);
    fill_codes(inputs_, q_, q_descale_, q_scale_ratio(spec), case_.amplitude, random);
  } else {
    fill_random(inputs_, q_, case_.amplitude, random);
  }
  for (const auto& [keys, scales] : {std::pair{&k_, &k_descale_}, {&v_, &v_descale_}}) {
    if (has_narrow_keys(spec)) {
      *scales = place_scales(inputs_, case_, *keys, kv_rows_, keys == &v_, random);
      fill_codes(inputs_, *keys, *scales, 1, case_.amplitude, random);
    } else {
      fill_random(inputs_, *keys, case_.amplitude, random);
    }
  }
  if (spec.values_in_keys) {
    v_ = k_;
    v_.shape[3] = spec.value_head_dim();
  }

  std::vector<float> v_mean, lse_shift, sinks;
  if (spec.v_mean)
    v_mean_ = place_normal(inputs_, {case_.batch, case_.heads_kv, spec.value_head_dim()}, v_mean, random);
  if (spec.lse_shift)
    lse_shift_ = place_normal(inputs_, {case_.batch, case_.heads_q(), case_.seqlen_q}, lse_shift, random);

  if (spec.sinks) sinks_ = place_normal(inputs_, {case_.heads_q()}, sinks, random);
  page_table_ = place_numbers(inputs_, kv_rows_.table, kv_rows_.table_width);
  boundaries_q_ = place_numbers(inputs_, q_rows_.boundaries);
  boundaries_k_ = place_numbers(inputs_, kv_rows_.boundaries);
  const auto has_used = [&](const RequestRows& rows) {
    return rows.kind != SequenceKind::varlen || rows.has_gaps();
  };
  if (has_used(q_rows_)) used_queries_ = place_numbers(inputs_, case_.used_queries);
  if (has_used(kv_rows_)) used_keys_ = place_numbers(inputs_, case_.used_keys);

  const auto functors = std::make_shared<const reference::FunctorProblem>(
      reference::random_functor_problem(spec, case_.batch, case_.heads_q(), static_cast<int>(q_rows_.room),
                                        static_cast<int>(kv_rows_.room), random));
  for (const FunctorTensorSpec& tensor : tensor_specs_)
    tensors_.push_back(place_functor_tensor(inputs_, functors->tensors.at(tensor.name)));

  outputs_.reserve(0);
  o_ = q_rows_.of(
      place_operand(outputs_, case_, q_rows_, case_.heads_q(), spec.value_head_dim(), output_dtype(spec)));
  lse_ = place_lse(outputs_, case_, q_rows_);

  inputs_.upload(device);
  outputs_.upload(device);
  problem_ = {.dtype = has_fp8_queries(spec) ? DType::bf16 : spec.dtype,
              .batch = case_.batch,
              .heads_q = case_.heads_q(),
              .gqa_ratio = spec.gqa_ratio,
              .seqlen_q = case_.seqlen_q,
              .seqlen_kv = case_.seqlen_kv,
              .head_dim = spec.head_dim,
              .head_dim_v = spec.value_head_dim(),
              .q = host_tensor(inputs_, q_),
              .k = host_tensor(inputs_, k_),
              .v = host_tensor(inputs_, v_),
              .softmax_scale = spec.scale(),
              .fp8_weights = has_fp8_queries(spec),
              .keep = reference::host_mask(spec.mask, functors),
              .score = reference::host_score(spec.score, functors),
              .v_mean = std::move(v_mean),
              .lse_shift = std::move(lse_shift),
              .sinks = std::move(sinks)};
  const bool has_lengths = !case_.used_keys.empty() || !case_.used_queries.empty();
  if (has_lengths) give_entries_their_lengths(problem_, case_, *functors);
  if (has_narrow_keys(spec) || has_lengths) upcast();
}

void AttentionRun::upcast() {
  const auto upcast = [&](const Place& place, const Place& scales, int ratio,
                          std::vector<std::uint16_t>& wide) {
    const std::int64_t rows = place.shape[1], heads = place.shape[2], d = place.shape[3];
    wide.resize(static_cast<std::size_t>(place.shape[0] * rows * heads * d));
    for_each_element(place, [&](auto b, auto s, auto h, auto column) {
      const std::size_t at = place.at(b, s, h, column);
      std::uint16_t& number = wide[static_cast<std::size_t>(((b * rows + s) * heads + h) * d + column)];
      if (size_of(place.dtype) == 2) {
        std::memcpy(&number, inputs_.host.data() + at, sizeof number);
      } else {
        number =
            reference::from_float(problem_.dtype, float_from_bits(place.dtype, inputs_.host[at]) *
                                                      scale_at(inputs_, scales, b, s, h / ratio, column));
      }
    });
    return reference::HostTensor{
        .data = wide.data(), .batch_stride = rows * heads * d, .seq_stride = heads * d, .head_stride = d};
  };
  problem_.q = upcast(q_, q_descale_, q_scale_ratio(case_.spec), wide_[0]);
  problem_.k = upcast(k_, k_descale_, 1, wide_[1]);
  problem_.v = upcast(v_, v_descale_, 1, wide_[2]);
}

AttentionArguments AttentionRun::arguments() const {
  AttentionArguments arguments{.q = inputs_.view(q_), .k = inputs_.view(k_), .o = outputs_.view(o_)};
  if (!case_.spec.values_in_keys) arguments.v = inputs_.view(v_);
  if (case_.with_lse) arguments.lse = outputs_.view(lse_);
  if (has_fp8_queries(case_.spec)) arguments.q_descale = inputs_.view(q_descale_);
  if (has_narrow_keys(case_.spec)) {
    arguments.k_descale = inputs_.view(k_descale_);
    arguments.v_descale = without_rows(inputs_.view(v_descale_));
  }
  if (case_.spec.v_mean) arguments.v_mean = inputs_.view(v_mean_);
  if (case_.spec.lse_shift) arguments.lse_shift = inputs_.view(lse_shift_);
  if (case_.spec.sinks) arguments.sinks = inputs_.view(sinks_);
  for (const auto& [place, view] : {std::pair{&page_table_, &arguments.page_table},
                                    {&boundaries_q_, &arguments.cu_seqlens_q},
                                    {&boundaries_k_, &arguments.cu_seqlens_k},
                                    {&used_queries_, &arguments.seqused_q},
                                    {&used_keys_, &arguments.seqused_k}}) {
    if (place->rank > 0) *view = inputs_.view(*place);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    arguments.tensors.add({tensor_specs_[i].name, inputs_.view(tensors_[i])});
  return arguments;
}

void AttentionRun::poison_outputs() { outputs_.device.upload(outputs_.host.data(), outputs_.host.size()); }

std::vector<unsigned char> AttentionRun::outputs() const {
  std::vector<unsigned char> bytes(outputs_.device.size());
  outputs_.device.download(bytes.data(), bytes.size());
  return bytes;
}

bool AttentionRun::untouched() const { return outputs() == outputs_.host; }

Verdict AttentionRun::check(std::size_t sampled) const {
  const std::vector<unsigned char> bytes = outputs();
  std::vector<bool> belongs(bytes.size(), false);

  // Every element was written, with a number.
  for (std::int64_t b = 0; b < o_.shape[0]; ++b) {
    for (std::int64_t q = 0; q < o_.shape[1]; ++q) {
      if (!o_.has_row(b, q)) continue;
      for (std::int64_t h = 0; h < o_.shape[2]; ++h) {
        for (std::int64_t d = 0; d < o_.shape[3]; ++d) {
          const std::size_t at = o_.at(b, q, h, d);
          std::fill_n(belongs.begin() + static_cast<std::ptrdiff_t>(at), size_of(o_.dtype), true);
          if (!std::isfinite(element(bytes, o_, at)))
            return {fmt::format("o[{}, {}, {}, {}] is {}", b, q, h, d, element(bytes, o_, at))};
        }
        if (!case_.with_lse) continue;
        const std::size_t at = lse_.at(b, q, h);
        std::fill_n(belongs.begin() + static_cast<std::ptrdiff_t>(at), 4, true);
        const float lse = element(bytes, lse_, at);
        if (std::isnan(lse) || lse == std::numeric_limits<float>::infinity())
          return {fmt::format("lse[{}, {}, {}] is {}", b, h, q, lse)};
      }
    }
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!belongs[i] && bytes[i] != poison)
      return {fmt::format("byte {} of the outputs was written, which belongs to no element", i)};
  }
  std::vector<unsigned char> inputs(inputs_.host.size());
  inputs_.device.download(inputs.data(), inputs.size());
  if (inputs != inputs_.host) return {"an input was written"};

  std::vector<reference::Row> rows = reference::sample_rows(problem_, sampled, case_.seed);
  std::erase_if(rows, [&](const reference::Row& row) { return !o_.has_row(row.b, row.q); });
  if (rows.empty()) return {};
  const reference::Output exact = reference::attention_exact(problem_, rows);
  const reference::Output plain = reference::attention_plain(problem_, rows);
  reference::Output actual;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [b, h, q] = rows[i];
    const bool sees_nothing = std::isinf(exact.lse[i]);
    for (int d = 0; d < problem_.head_dim_v; ++d) {
      actual.o.push_back(element(bytes, o_, o_.at(b, q, h, d)));
      if (sees_nothing && actual.o.back() != 0)
        return {fmt::format("o[{}, {}, {}, {}] is {}, but the row sees no key", b, q, h, d, actual.o.back())};
    }
    actual.lse.push_back(case_.with_lse ? element(bytes, lse_, lse_.at(b, q, h)) : exact.lse[i]);
    if (std::isinf(actual.lse.back()) != sees_nothing)
      return {fmt::format("lse[{}, {}, {}] is {}, expected {}", b, h, q, actual.lse.back(), exact.lse[i])};
  }

  Verdict verdict;
  const auto compare = [&](const char* name, const std::vector<double>& values,
                           const std::vector<double>& right, double limit) {
    const double error = reference::max_error(values, right);
    verdict.error_ratio = std::max(verdict.error_ratio, error / limit);
    if (error <= limit || !verdict.failure.empty()) return;
    std::size_t worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::abs(values[i] - right[i]) > std::abs(values[worst] - right[worst])) worst = i;
    }
    const auto [b, h, q] = rows[worst / (values.size() / rows.size())];
    verdict.failure =
        fmt::format("{} is {} instead of {} (batch {}, head {}, query {}): error {:.3g}, allowed {:.3g}",
                    name, values[worst], right[worst], b, h, q, error, limit);
  };
  compare("o", actual.o, exact.o, reference::error_limit(o_.dtype, plain.o, exact.o));
  double largest = 1;
  for (const double lse : exact.lse) {
    if (std::isfinite(lse)) largest = std::max(largest, std::abs(lse));
  }
  // The cap's tanh is as coarse as a 16-bit score; nothing else is.
  const bool capped = case_.spec.score.to_string().find("softcap") != std::string::npos;
  compare("lse", actual.lse, exact.lse,
          capped ? reference::error_limit(problem_.dtype, plain.lse, exact.lse)
                 : (has_fp8_queries(case_.spec) ? fp8_lse_tolerance : lse_tolerance) * largest);
  return verdict;
}

}  // namespace jit::testing
