#include "generator/problem/arguments.h"

#include <cstdint>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

// Addresses only: nothing here is ever dereferenced.
void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
constexpr std::uintptr_t base = 0x7f0000000000;

constexpr int batch = 2, seqlen_q = 128, seqlen_kv = 96, heads_q = 8, heads_kv = 4, head_dim = 64;

AttentionSpec spec_of() { return {.head_dim = head_dim, .gqa_ratio = heads_q / heads_kv}; }

AttentionArguments good_arguments() {
  return {.q = TensorView::bshd(at(base), DType::bf16, {batch, seqlen_q, heads_q, head_dim}),
          .k = TensorView::bshd(at(base + 0x1000000), DType::bf16, {batch, seqlen_kv, heads_kv, head_dim}),
          .v = TensorView::bshd(at(base + 0x2000000), DType::bf16, {batch, seqlen_kv, heads_kv, head_dim}),
          .o = TensorView::bshd(at(base + 0x3000000), DType::bf16, {batch, seqlen_q, heads_q, head_dim}),
          .lse = TensorView::bhs(at(base + 0x4000000), batch, heads_q, seqlen_q)};
}

bool fill(const AttentionSpec& spec, const AttentionArguments& arguments, AttentionParams& params) {
  return fill_params(spec, functor_tensor_uses(spec), arguments, params);
}

void expect_fine(const AttentionSpec& spec, const AttentionArguments& arguments) {
  AttentionParams params{};
  EXPECT_NO_THROW(fill(spec, arguments, params));
}

void expect_refused(const AttentionSpec& spec, const AttentionArguments& arguments, const std::string& field,
                    const std::string& message) {
  AttentionParams params{};
  const Error error = error_of([&] { fill(spec, arguments, params); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << message;
  EXPECT_EQ(error.field(), field) << error.what();
  EXPECT_THAT(error.message(), HasSubstr(message));
  EXPECT_THAT(error.message(), HasSubstr(field));
}

using Change = std::function<void(AttentionArguments&)>;

TEST(FillParams, TakesGoodArguments) {
  AttentionParams params{};
  const AttentionArguments arguments = good_arguments();
  EXPECT_TRUE(fill(spec_of(), arguments, params));
  EXPECT_EQ(params.q, arguments.q.data);
  EXPECT_EQ(params.k, arguments.k.data);
  EXPECT_EQ(params.v, arguments.v.data);
  EXPECT_EQ(params.o, arguments.o.data);
  EXPECT_EQ(params.lse, arguments.lse.data);
  EXPECT_EQ(params.batch, batch);
  EXPECT_EQ(params.heads_q, heads_q);
  EXPECT_EQ(params.seqlen_q, seqlen_q);
  EXPECT_EQ(params.seqlen_kv, seqlen_kv);
  EXPECT_FLOAT_EQ(params.softmax_scale, 0.125f);
  EXPECT_EQ(params.q_strides.batch, seqlen_q * heads_q * head_dim);
  EXPECT_EQ(params.q_strides.seq, heads_q * head_dim);
  EXPECT_EQ(params.q_strides.head, head_dim);
  EXPECT_EQ(params.k_strides.seq, heads_kv * head_dim);
  EXPECT_EQ(params.lse_strides.batch, heads_q * seqlen_q);
  EXPECT_EQ(params.lse_strides.head, seqlen_q);
  EXPECT_EQ(params.lse_strides.seq, 1);
  EXPECT_EQ(shape_of(params),
            (ProblemShape{.batch = batch, .heads_q = heads_q, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv}));
}

TEST(FillParams, LseMayBeLeftOut) {
  AttentionArguments arguments = good_arguments();
  arguments.lse = {};
  AttentionParams params{};
  EXPECT_TRUE(fill(spec_of(), arguments, params));
  EXPECT_EQ(params.lse, nullptr);
}

TEST(FillParams, NamesTheArgumentThatIsWrong) {
  const std::vector<std::tuple<const char*, const char*, Change>> bad = {
      {"q", "is missing", [](auto& a) { a.q = {}; }},
      {"k", "is missing", [](auto& a) { a.k = {}; }},
      {"v", "is missing", [](auto& a) { a.v = {}; }},
      {"o", "is missing", [](auto& a) { a.o = {}; }},
      {"q", "has 3 dimensions", [](auto& a) { a.q.rank = 3; }},
      {"v", "has 2 dimensions", [](auto& a) { a.v.rank = 2; }},
      {"lse", "has 2 dimensions", [](auto& a) { a.lse.rank = 2; }},
      {"q", "is fp16; it must be bf16", [](auto& a) { a.q.dtype = DType::fp16; }},
      {"k", "is fp32; it must be bf16", [](auto& a) { a.k.dtype = DType::fp32; }},
      {"v", "is uint8; it must be bf16", [](auto& a) { a.v.dtype = DType::uint8; }},
      {"o", "is fp32; it must be bf16", [](auto& a) { a.o.dtype = DType::fp32; }},
      {"lse", "is bf16; it must be fp32", [](auto& a) { a.lse.dtype = DType::bf16; }},
      {"k", "has batch = 3", [](auto& a) { a.k.shape[0] = 3; }},
      {"v", "has batch = 1", [](auto& a) { a.v.shape[0] = 1; }},
      {"o", "has batch = 4", [](auto& a) { a.o.shape[0] = 4; }},
      {"v", "has seqlen = 95", [](auto& a) { a.v.shape[1] = 95; }},
      {"o", "has seqlen = 96", [](auto& a) { a.o.shape[1] = 96; }},
      {"k", "has 8 heads", [](auto& a) { a.k.shape[2] = 8; }},
      {"k", "has 3 heads", [](auto& a) { a.k.shape[2] = 3; }},
      {"v", "has heads = 8", [](auto& a) { a.v.shape[2] = 8; }},
      {"o", "has heads = 4", [](auto& a) { a.o.shape[2] = 4; }},
      {"q", "has head_dim = 128", [](auto& a) { a.q.shape[3] = 128; }},
      {"k", "has head_dim = 32", [](auto& a) { a.k.shape[3] = 32; }},
      {"v", "has head_dim = 32", [](auto& a) { a.v.shape[3] = 32; }},
      {"o", "has head_dim = 32", [](auto& a) { a.o.shape[3] = 32; }},
      {"lse", "has heads = 4", [](auto& a) { a.lse.shape[1] = 4; }},
      {"lse", "has seqlen = 127", [](auto& a) { a.lse.shape[2] = 127; }},
      {"q", "negative size", [](auto& a) { a.q.shape[1] = -1; }},
      {"k", "negative size", [](auto& a) { a.k.shape[2] = -4; }},
      {"q", "null pointer", [](auto& a) { a.q.data = nullptr; }},
      {"k", "null pointer", [](auto& a) { a.k.data = nullptr; }},
      {"v", "null pointer", [](auto& a) { a.v.data = nullptr; }},
      {"o", "null pointer", [](auto& a) { a.o.data = nullptr; }},
      {"lse", "null pointer", [](auto& a) { a.lse.data = nullptr; }},
      {"q", "not aligned to 16 bytes", [](auto& a) { a.q.data = at(base + 8); }},
      {"o", "not aligned to 16 bytes", [](auto& a) { a.o.data = at(base + 0x3000002); }},
      {"lse", "not aligned to 4 bytes", [](auto& a) { a.lse.data = at(base + 0x4000002); }},
      {"k", "has stride 2 along head_dim", [](auto& a) { a.k.strides[3] = 2; }},
      {"o", "has stride 0 along head_dim", [](auto& a) { a.o.strides[3] = 0; }},
      {"q", "does not keep rows aligned to 16 bytes", [](auto& a) { a.q.strides[1] += 4; }},
      {"v", "does not keep rows aligned to 16 bytes", [](auto& a) { a.v.strides[2] = 66; }},
      {"k", "does not keep rows aligned to 16 bytes", [](auto& a) { a.k.strides[0] += 1; }},
      {"o", "elements share memory", [](auto& a) { a.o.strides[1] = 0; }},
      {"o", "elements share memory", [](auto& a) { a.o.strides[2] = 32; }},
      {"o", "elements share memory", [](auto& a) { a.o.strides[0] = 64; }},
      {"lse", "elements share memory", [](auto& a) { a.lse.strides[1] = 1; }},
  };
  for (const auto& [field, message, change] : bad) {
    AttentionArguments arguments = good_arguments();
    change(arguments);
    expect_refused(spec_of(), arguments, field, message);
  }
}

// (batch, heads, head_dim, seqlen) in memory, rows of 112 keys: for products of fp8, too, v has a row for each key.
TEST(FillParams, ValuesAlongTheSequence) {
  constexpr long long pitch = 112;
  AttentionSpec spec = spec_of();
  spec.dtype = DType::fp8_e4m3;
  AttentionArguments arguments = good_arguments();
  for (TensorView* view : {&arguments.q, &arguments.k, &arguments.v}) view->dtype = spec.dtype;
  TensorView& v = arguments.v;
  v.strides[0] = heads_kv * head_dim * pitch;
  v.strides[1] = 1;
  v.strides[2] = head_dim * pitch;
  v.strides[3] = pitch;
  expect_refused(spec, arguments, "v",
                 "stride 112 along head_dim; it must be 1, so give it with a row of head_dim for each token "
                 "and head, not one of all tokens for each column");
  v.strides[1] = 2;
  expect_refused(spec, arguments, "v", "stride 112 along head_dim; it must be 1: ");
}

TEST(FillParams, OutputsShareNoMemory) {
  const std::vector<std::tuple<const char*, const char*, Change>> bad = {
      {"o", "shares memory with q", [](auto& a) { a.o = a.q; }},
      {"o", "shares memory with q", [](auto& a) { a.o.data = at(base + 16); }},
      {"o", "shares memory with k", [](auto& a) { a.o.data = a.k.data; }},
      {"o", "shares memory with v",
       [](auto& a) { a.o.data = at(base + 0x2000000 + 2 * (batch * seqlen_kv * heads_kv * head_dim - 8)); }},
      {"lse", "shares memory with q", [](auto& a) { a.lse.data = at(base + 256); }},
      {"lse", "shares memory with o", [](auto& a) { a.lse.data = a.o.data; }},
  };
  for (const auto& [field, message, change] : bad) {
    AttentionArguments arguments = good_arguments();
    change(arguments);
    expect_refused(spec_of(), arguments, field, message);
  }
  AttentionArguments adjacent = good_arguments();
  adjacent.o.data = at(base + 2ull * batch * seqlen_q * heads_q * head_dim);
  expect_fine(spec_of(), adjacent);
  AttentionArguments inputs_may = good_arguments();
  inputs_may.v = inputs_may.k;
  expect_fine(spec_of(), inputs_may);
}

// q, k and v as slices of one tensor (batch, seqlen, 3, heads, head_dim), and o in a fourth slice.
TEST(FillParams, TakesPackedViews) {
  AttentionSpec spec = spec_of();
  spec.gqa_ratio = 1;
  AttentionArguments arguments = good_arguments();
  const auto slice = [&](int index, int slices) {
    TensorView view = TensorView::bshd(at(base + 2ull * static_cast<unsigned>(index * heads_q * head_dim)),
                                       DType::bf16, {batch, seqlen_q, heads_q, head_dim});
    view.strides[1] = slices * heads_q * head_dim;
    view.strides[0] = seqlen_q * view.strides[1];
    return view;
  };
  arguments.q = slice(0, 3);
  arguments.k = slice(1, 3);
  arguments.v = slice(2, 3);
  expect_fine(spec, arguments);
  arguments.q = slice(0, 4);
  arguments.k = slice(1, 4);
  arguments.v = slice(2, 4);
  arguments.o = slice(3, 4);
  expect_fine(spec, arguments);
  arguments.o = slice(2, 4);
  expect_refused(spec, arguments, "o", "shares memory with v");
  arguments.o.data = at(base + 2ull * (3 * heads_q * head_dim) - 16);
  expect_refused(spec, arguments, "o", "shares memory with v");
}

TEST(FillParams, TakesEveryAlignmentThatTheSpecNames) {
  for (const int alignment : {16, 8, 4, 2}) {
    AttentionSpec spec = spec_of();
    spec.alignment = alignment;
    AttentionArguments arguments = good_arguments();
    arguments.q.data = at(base + static_cast<unsigned>(alignment));
    arguments.q.strides[1] += alignment / 2;
    arguments.q.strides[0] += seqlen_q * alignment / 2;
    expect_fine(spec, arguments);
    if (alignment == 2) continue;
    arguments.q.data = at(base + static_cast<unsigned>(alignment / 2));
    expect_refused(spec, arguments, "q", "is not aligned to");
  }
  AttentionSpec spec = spec_of();
  spec.alignment = 2;
  AttentionArguments odd = good_arguments();
  odd.k.data = at(base + 0x1000001);
  expect_refused(spec, odd, "k", "not aligned to 2 bytes");
}

TEST(FillParams, NegativeStridesAreViewsToo) {
  AttentionArguments arguments = good_arguments();
  const std::int64_t row = arguments.k.strides[1];
  arguments.k.data = at(base + 0x1000000 + static_cast<std::uintptr_t>(2 * (seqlen_kv - 1) * row));
  arguments.k.strides[1] = -row;
  AttentionParams params{};
  EXPECT_TRUE(fill(spec_of(), arguments, params));
  EXPECT_EQ(params.k_strides.seq, -row);
  // o backwards, right behind q, then one row too low.
  arguments.o.strides[1] = -arguments.o.strides[1];
  const std::uintptr_t q_end = base + 2ull * batch * seqlen_q * heads_q * head_dim;
  arguments.o.data = at(q_end + 2ull * (seqlen_q - 1) * heads_q * head_dim);
  expect_fine(spec_of(), arguments);
  arguments.o.data = at(q_end + 2ull * (seqlen_q - 2) * heads_q * head_dim);
  expect_refused(spec_of(), arguments, "o", "shares memory with q");
}

TEST(FillParams, DimensionsOfOneMayCarryAnyStride) {
  AttentionArguments arguments = good_arguments();
  for (TensorView* view : {&arguments.q, &arguments.k, &arguments.v, &arguments.o}) {
    view->shape[0] = 1;
    view->strides[0] = 3;
  }
  arguments.lse.shape[0] = 1;
  arguments.lse.strides[0] = -77;
  AttentionParams params{};
  EXPECT_TRUE(fill(spec_of(), arguments, params));
  EXPECT_EQ(params.q_strides.batch, 0);
}

TEST(FillParams, NothingToCompute) {
  for (const int dimension : {0, 1, 2}) {
    AttentionArguments arguments = good_arguments();
    std::vector<TensorView*> views = {&arguments.q, &arguments.o};
    if (dimension != 1) views.insert(views.end(), {&arguments.k, &arguments.v});
    for (TensorView* view : views) {
      view->shape[dimension] = 0;
      view->data = nullptr;
    }
    arguments.lse.shape[dimension == 0 ? 0 : 3 - dimension] = 0;
    arguments.lse.data = nullptr;
    AttentionParams params{};
    EXPECT_FALSE(fill(spec_of(), arguments, params)) << dimension;
  }
}

TEST(FillParams, NoKeysStillNeedAnOutput) {
  AttentionArguments arguments = good_arguments();
  for (TensorView* view : {&arguments.k, &arguments.v}) {
    view->shape[1] = 0;
    view->data = nullptr;
  }
  AttentionParams params{};
  EXPECT_TRUE(fill(spec_of(), arguments, params));
  EXPECT_EQ(params.seqlen_kv, 0);
}

TEST(FillParams, SizesThatOverflowAreRefused) {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t size : {std::int64_t{1} << 31, std::int64_t{1} << 40, huge}) {
    for (const int dimension : {0, 1, 2}) {
      for (const bool of_q : {true, false}) {
        AttentionArguments arguments = good_arguments();
        arguments.lse = {};
        TensorView& view = of_q ? arguments.q : arguments.k;
        view.shape[dimension] = size;
        AttentionParams params{};
        EXPECT_EQ(error_of([&] { fill(spec_of(), arguments, params); }).code(), ErrorCode::invalid_argument);
      }
    }
  }
  // Consistent, and too much for a launch.
  AttentionSpec spec = spec_of();
  spec.gqa_ratio = 1;
  const auto dense = [](std::uintptr_t address, std::int64_t b, std::int64_t s, std::int64_t h) {
    return TensorView::bshd(at(address), DType::bf16, {b, s, h, head_dim});
  };
  AttentionArguments arguments{.q = dense(base, (1ll << 31) - 1, 1, 1),
                               .k = dense(base, (1ll << 31) - 1, 1, 1),
                               .v = dense(base, (1ll << 31) - 1, 1, 1),
                               .o = dense(base << 1, (1ll << 31) - 1, 1, 1)};
  expect_refused(spec, arguments, "q", "at most");
  arguments = {.q = dense(base, 1, 16, 1ll << 31),
               .k = dense(base, 1, 16, 1ll << 31),
               .v = dense(base, 1, 16, 1ll << 31),
               .o = dense(base << 1, 1, 16, 1ll << 31)};
  expect_refused(spec, arguments, "q", "has 2147483648 heads; at most 2147483647 fit");
  arguments = {.q = dense(base, 1, (1ll << 31) - 1, 1),
               .k = dense(base, 1, 16, 1),
               .v = dense(base, 1, 16, 1),
               .o = dense(base << 1, 1, (1ll << 31) - 1, 1)};
  expect_refused(spec, arguments, "q", "at most");
}

TEST(FillParams, StridesThatOverflowAreRefused) {
  for (const std::int64_t stride : {std::numeric_limits<std::int64_t>::max() / 16 * 16,
                                    std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 60}) {
    for (const auto& [name, view] : std::vector<std::pair<const char*, TensorView AttentionArguments::*>>{
             {"q", &AttentionArguments::q},
             {"k", &AttentionArguments::k},
             {"v", &AttentionArguments::v},
             {"o", &AttentionArguments::o},
             {"lse", &AttentionArguments::lse}}) {
      for (const int dimension : {0, 1, 2}) {
        AttentionArguments arguments = good_arguments();
        (arguments.*view).strides[dimension] = stride;
        expect_refused(spec_of(), arguments, name, "reaches further than any memory");
      }
    }
  }
}

TEST(FillParams, BakedLengthsMustMatch) {
  AttentionSpec spec = spec_of();
  spec.seqlen_q = seqlen_q;
  spec.seqlen_kv = seqlen_kv;
  expect_fine(spec, good_arguments());
  spec.seqlen_q = seqlen_q + 1;
  expect_refused(spec, good_arguments(), "q", "it must be 129");
  spec.seqlen_q = 0;
  spec.seqlen_kv = 1;
  expect_refused(spec, good_arguments(), "k", "it must be 1");
}

AttentionSpec functor_spec() {
  AttentionSpec spec = spec_of();
  spec.mask = mask::document() && mask::prefix_lengths();
  spec.score = score::alibi().then(score::bias());
  return spec;
}

TensorView ints(std::initializer_list<std::int64_t> shape) {
  return TensorView::dense(at(base + 0x5000000), DType::int32, shape);
}
TensorView floats(std::initializer_list<std::int64_t> shape) {
  return TensorView::dense(at(base + 0x6000000), DType::fp32, shape);
}

/// Arguments for functor_spec() with one tensor replaced; an absent view leaves it out.
AttentionArguments functor_arguments(std::string_view name = "", const TensorView& replacement = {}) {
  AttentionArguments arguments = good_arguments();
  const std::vector<NamedTensor> all = {{"document_ids_q", ints({batch, seqlen_q})},
                                        {"document_ids_kv", ints({batch, seqlen_kv})},
                                        {"prefix_lengths", ints({batch})},
                                        {"alibi_slopes", floats({heads_q})},
                                        {"bias", floats({batch, heads_q, seqlen_q, seqlen_kv})}};
  for (const NamedTensor& tensor : all) {
    if (tensor.name != name) {
      arguments.tensors.add(tensor);
    } else if (replacement.is_present()) {
      arguments.tensors.add({name, replacement});
    }
  }
  return arguments;
}

TEST(FillParams, TakesTensorsOfFunctorsAndBroadcasts) {
  expect_fine(functor_spec(), functor_arguments());
  expect_fine(functor_spec(), functor_arguments("document_ids_q", ints({1, seqlen_q})));
  expect_fine(functor_spec(), functor_arguments("alibi_slopes", floats({batch, heads_q})));
  expect_fine(functor_spec(), functor_arguments("alibi_slopes", floats({1, heads_q})));
  AttentionParams params{};
  fill(functor_spec(), functor_arguments("bias", floats({1, heads_q, 1, seqlen_kv})), params);
  EXPECT_EQ(params.tensors[4].data, at(base + 0x6000000));
  EXPECT_EQ(params.tensors[4].strides[0], 0);
  EXPECT_EQ(params.tensors[4].strides[1], seqlen_kv);
  EXPECT_EQ(params.tensors[4].strides[2], 0);
  TensorView expanded = floats({batch, heads_q, seqlen_q, seqlen_kv});
  expanded.strides[0] = expanded.strides[1] = 0;
  expect_fine(functor_spec(), functor_arguments("bias", expanded));
}

TEST(FillParams, NamesTheFunctorTensorThatIsWrong) {
  TensorView strided = floats({batch, heads_q, seqlen_q, seqlen_kv});
  strided.strides[3] = 2;
  TensorView odd = floats({heads_q});
  odd.data = at(base + 2);
  TensorView null = ints({batch});
  null.data = nullptr;
  const std::vector<std::tuple<const char*, TensorView, const char*>> bad = {
      {"bias", {}, "was not given"},
      {"prefix_lengths", {}, "was not given"},
      {"bias", ints({batch, heads_q, seqlen_q, seqlen_kv}), "is int32; it must be fp32"},
      {"bias", floats({batch, heads_q, seqlen_q}), "has 3 dimensions"},
      {"bias", floats({batch, 2, seqlen_q, seqlen_kv}), "has heads_q = 2"},
      {"bias", floats({batch, heads_q, seqlen_q, 1}), "has seqlen_kv = 1"},
      {"bias", strided, "stride 1 in its last dimension"},
      {"alibi_slopes", floats({heads_kv}), "has heads_q = 4"},
      {"alibi_slopes", floats({3, heads_q}), "has batch = 3"},
      {"alibi_slopes", floats({1, 1, heads_q}), "has 3 dimensions"},
      {"alibi_slopes", odd, "not aligned to 4 bytes"},
      {"document_ids_q", ints({batch, seqlen_kv}), "has seqlen_q = 96"},
      {"document_ids_kv", ints({batch, seqlen_q}), "has seqlen_kv = 128"},
      {"document_ids_kv", ints({seqlen_kv}), "has 1 dimensions"},
      {"prefix_lengths", ints({1}), "has batch = 1"},
      {"prefix_lengths", null, "null pointer"},
  };
  for (const auto& [name, view, message] : bad) {
    expect_refused(functor_spec(), functor_arguments(name, view), name, message);
  }
}

// The bits of drafts: as many words as there are queries for, or more; rows count as those of varlen queries do.
TEST(FillParams, TakesTheBitsOfDrafts) {
  const auto with = [](const TensorView& bits, AttentionArguments arguments) {
    arguments.tensors.add({"draft_tree", bits});
    return arguments;
  };
  AttentionSpec spec = spec_of();
  spec.mask = mask::draft_tree();
  AttentionParams params{};
  fill(spec, with(ints({batch, seqlen_q, 5}), good_arguments()), params);
  EXPECT_EQ(params.tensors[0].strides[0], 5 * seqlen_q);
  EXPECT_EQ(params.tensors[0].strides[1], 5);
  EXPECT_EQ(params.tensors[0].last_size, 5);
  fill(spec, with(ints({seqlen_q, 4}), good_arguments()), params);
  EXPECT_EQ(params.tensors[0].strides[0], 0);
  EXPECT_EQ(params.tensors[0].strides[1], 4);
  for (const auto& [bits, message] :
       {std::pair(ints({batch, seqlen_q, 3}), "has words = 3; it must be at least 4"),
        {ints({seqlen_q, 3}), "has words = 3"},
        {ints({seqlen_kv, 4}), "has seqlen_q = 96"},
        {ints({4}), "it must be (seqlen_q, words) or (batch, seqlen_q, words)"}})
    expect_refused(spec, with(bits, good_arguments()), "draft_tree", message);

  spec.sequences_q = SequenceKind::varlen;
  AttentionArguments varlen = good_arguments();
  const std::int64_t total_q = 300;
  varlen.q = TensorView::dense(at(base), spec.dtype, {total_q, heads_q, spec.head_dim});
  varlen.o = TensorView::dense(at(base + 0x3000000), spec.dtype, {total_q, heads_q, spec.value_head_dim()});
  varlen.lse = {};
  varlen.cu_seqlens_q = ints({batch + 1});
  fill(spec, with(ints({total_q, 1}), varlen), params);
  EXPECT_EQ(params.tensors[0].strides[0], 0);
  EXPECT_EQ(params.tensors[0].strides[1], 1);
  EXPECT_EQ(params.tensors[0].last_size, 1);
  for (const auto& [bits, message] : {std::pair(ints({total_q, 0}), "has words = 0; it must be at least 1"),
                                      {ints({seqlen_q, 1}), "has total_q = 128; it must be 300"},
                                      {ints({batch, total_q, 1}), "it must be (total_q, words)"}})
    expect_refused(spec, with(bits, varlen), "draft_tree", message);
}

// Without a sequence, rows of varlen queries are padding: there is something to write only where zeros are wanted.
TEST(FillParams, PaddingIsWorkWhereZerosAreWanted) {
  AttentionSpec spec = spec_of();
  spec.sequences_q = SequenceKind::varlen;
  AttentionArguments arguments = good_arguments();
  arguments.q = TensorView::dense(at(base), spec.dtype, {7, heads_q, spec.head_dim});
  arguments.o = TensorView::dense(at(base + 0x3000000), spec.dtype, {7, heads_q, spec.value_head_dim()});
  arguments.k.shape[0] = arguments.v.shape[0] = 0;
  arguments.lse = {};
  arguments.cu_seqlens_q = ints({1});
  AttentionParams params{};
  EXPECT_FALSE(fill(spec, arguments, params));
  EXPECT_EQ(params.sequences.zero_padding, 0);
  arguments.zero_padding = true;
  EXPECT_TRUE(fill(spec, arguments, params));
  EXPECT_EQ(params.sequences.zero_padding, 1);
  arguments.q.shape[0] = arguments.o.shape[0] = 0;
  EXPECT_FALSE(fill(spec, arguments, params));
}

TEST(FillParams, RefusesTensorsThatNobodyReads) {
  AttentionArguments arguments = good_arguments();
  arguments.tensors.add({"bias", floats({1, 1, 1, seqlen_kv})});
  expect_refused(spec_of(), arguments, "bias", "neither mask nor score reads");
  arguments = functor_arguments();
  arguments.tensors.add({"bias", floats({1, 1, 1, seqlen_kv})});
  expect_refused(functor_spec(), arguments, "tensors", "given twice");
}

TEST(FillParams, OutputsDoNotOverlapFunctorTensors) {
  TensorView bias = floats({batch, heads_q, seqlen_q, seqlen_kv});
  bias.data = good_arguments().o.data;
  expect_refused(functor_spec(), functor_arguments("bias", bias), "o", "shares memory with bias");
  bias.data = good_arguments().lse.data;
  expect_refused(functor_spec(), functor_arguments("bias", bias), "lse", "shares memory with bias");
}

TEST(FillParams, TensorsOfUserTextMayHaveAnyShape) {
  AttentionSpec spec = spec_of();
  spec.mask = mask::text({.name = "t", .body = "return x[k] != 0;", .tensors = {{"x", DType::int32}}});
  AttentionArguments arguments = good_arguments();
  const auto give = [&](const TensorView& view) {
    arguments.tensors = {{"x", view}};
    return arguments;
  };
  expect_fine(spec, give(ints({1})));
  expect_fine(spec, give(ints({2, 3, 4, 5})));
  expect_refused(spec, give(ints({0})), "x", "has no element");
  expect_refused(spec, give({}), "x", "has 0 dimensions");
  TensorView wrong = ints({4});
  wrong.rank = 5;
  expect_refused(spec, give(wrong), "x", "has 5 dimensions");
  wrong = ints({4});
  wrong.strides[0] = std::numeric_limits<std::int64_t>::min();
  expect_refused(spec, give(wrong), "x", "reaches further");
  wrong = ints({4});
  wrong.data = nullptr;
  expect_refused(spec, give(wrong), "x", "null pointer");
  expect_refused(spec, give(floats({4})), "x", "is fp32; it must be int32");
}

TEST(PlaceholderArguments, PassEveryCheck) {
  for (const int alignment : {16, 2}) {
    AttentionSpec spec{.head_dim = 64, .head_dim_v = 24, .gqa_ratio = 3, .alignment = alignment};
    const ProblemShape shape{.batch = 16, .heads_q = 1023, .seqlen_q = 1 << 24, .seqlen_kv = 1 << 24};
    const AttentionArguments arguments = placeholder_arguments(spec, extents_of(spec, shape));
    AttentionParams params{};
    EXPECT_TRUE(fill(spec, arguments, params));
    EXPECT_EQ(shape_of(params).heads_q, shape.heads_q);
    EXPECT_EQ(params.heads_kv, 341);
    EXPECT_EQ(params.v_strides.head, 24);
    EXPECT_EQ(params.lse, nullptr);
  }
}

// A text's pointer tells of no strides, whatever a built-in functor of the same tensor takes.
TEST(FillParams, TensorsThatTextsReadTooAreDense) {
  AttentionSpec spec = spec_of();
  spec.score = score::bias();
  AttentionArguments arguments = good_arguments();
  TensorView bias = TensorView::dense(at(base + 0x6000000), DType::fp32, {1, 1, seqlen_q, seqlen_kv});
  bias.strides[2] = 2 * seqlen_kv;
  arguments.tensors = {{"bias", bias}};
  expect_fine(spec, arguments);
  spec.mask = mask::text({.name = "t", .body = "return bias[k] > 0;", .tensors = {{"bias", DType::fp32}}});
  expect_refused(spec, arguments, "bias", "must be dense");
}

TEST(NamedTensors, HoldEight) {
  NamedTensors tensors;
  for (int i = 0; i < 8; ++i) tensors.add({"t", {}});
  EXPECT_EQ(error_of([&] { tensors.add({"t", {}}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(tensors.end() - tensors.begin(), 8);
}

}  // namespace
}  // namespace jit
