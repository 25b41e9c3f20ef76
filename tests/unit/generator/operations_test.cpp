// Operations beside attention without a device: specs, programs, checks of arguments.
#include <jit/append.h>
#include <jit/merge.h>

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/operations/append/arguments.h"
#include "generator/operations/append/program.h"
#include "generator/operations/merge/arguments.h"
#include "generator/operations/merge/program.h"
#include "generator/tensors/overlap.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

void* address(std::uintptr_t place) { return reinterpret_cast<void*>(place << 32); }

TensorView dense(std::uintptr_t place, DType dtype, std::initializer_list<std::int64_t> shape) {
  return TensorView::dense(address(place), dtype, shape);
}

TEST(MergeSpecTest, RefusesWhatCannotBeServed) {
  const std::vector<std::pair<const char*, MergeSpec>> wrong = {
      {"spec.dtype", {.dtype = DType::int32}},
      {"spec.out_dtype", {.out_dtype = DType::uint8}},
      {"spec.head_dim_v", {.head_dim_v = 0}},
      {"spec.head_dim_v", {.head_dim_v = 1025}},
      {"spec.alignment", {.alignment = 3}},
      {"spec.views", {.views = 33}},
      {"spec.views", {.views = 0}}};
  for (const auto& [field, spec] : wrong) {
    const Error error = error_of([&, spec = spec] { validate(spec); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr("nearest supported"));
  }
  validate(MergeSpec());
}

TEST(MergeSpecTest, EachFieldMakesAnotherProgram) {
  std::set<std::string> sources;
  const std::vector<MergeSpec> specs = {
      {},          {.dtype = DType::bf16}, {.out_dtype = DType::fp16}, {.head_dim_v = 64}, {.alignment = 8},
      {.views = 4}};
  for (const MergeSpec& spec : specs) {
    const OperationPrograms programs = merge_programs(spec);
    sources.insert(programs.every_size.source);
    sources.insert(programs.some_sizes->source);
    sources.insert(programs.other_sizes->source);
  }
  EXPECT_EQ(sources.size(), 3 * specs.size());
}

// Two states have a program in which half as many lanes have a row, in blocks of as many rows; 16 and more one in which
// a lane asks for up to eight at once, if it has one piece of a row and there are lanes for them.
TEST(MergeSpecTest, FewAndManyStatesHavePrograms) {
  const MergeSpec spec{.dtype = DType::bf16};
  const OperationPrograms programs = merge_programs(spec);
  EXPECT_THAT(programs.every_size.source, HasSubstr("ahead = 2"));
  EXPECT_THAT(programs.some_sizes->source, HasSubstr("merge_pair"));
  EXPECT_THAT(programs.other_sizes->source, HasSubstr("ahead = 8"));
  EXPECT_THAT(
      merge_programs({.dtype = DType::bf16, .out_dtype = DType::bf16, .head_dim_v = 64}).other_sizes->source,
      HasSubstr("ahead = 4"));
  EXPECT_EQ(
      (std::set{programs.every_size.name, programs.some_sizes->name, programs.other_sizes->name}.size()), 3u);
  EXPECT_EQ(programs.every_size.threads, 2 * programs.some_sizes->threads);
  EXPECT_EQ(programs.every_size.threads, programs.other_sizes->threads);
  EXPECT_EQ(merge_program_for(spec, 1), OperationProgram::every_size);
  EXPECT_EQ(merge_program_for(spec, 2), OperationProgram::some_sizes);
  EXPECT_EQ(merge_program_for(spec, 3), OperationProgram::every_size);
  EXPECT_EQ(merge_program_for(spec, 15), OperationProgram::every_size);
  EXPECT_EQ(merge_program_for(spec, 16), OperationProgram::other_sizes);
  for (const MergeSpec& other : {MergeSpec{.head_dim_v = 256}, MergeSpec{.head_dim_v = 8}}) {
    EXPECT_FALSE(merge_programs(other).other_sizes);
    EXPECT_EQ(merge_program_for(other, 1000), OperationProgram::every_size);
  }
}

TEST(DivisorTest, DividesExactly) {
  const std::vector<unsigned> divisors = {1, 2, 3, 5, 7, 12, 32, 96, 641, 65'535, 65'537, (1u << 31) - 1};
  for (const unsigned divisor : divisors) {
    const Divisor by = division_by(divisor);
    for (const unsigned n :
         {0u, 1u, divisor - 1, divisor, divisor + 1, 12'345u, 1'000'000'007u, (1u << 31) - 1})
      EXPECT_EQ(by.quotient(n), n / divisor) << n << " by " << divisor;
    for (unsigned multiple = divisor; multiple < (1u << 31) - divisor;
         multiple += std::max(divisor, 99'991 / divisor * divisor)) {
      EXPECT_EQ(by.quotient(multiple), multiple / divisor);
      EXPECT_EQ(by.quotient(multiple - 1), (multiple - 1) / divisor);
    }
  }
}

// Parts at equal distances are one view; of others there are as many as the spec has.
TEST(MergeArgumentsTest, CollectsViews) {
  MergeSpec spec{.dtype = DType::bf16, .head_dim_v = 8, .views = 1};
  const auto part = [](std::uintptr_t place) {
    return PartialState{dense(place, DType::bf16, {4, 2, 8}), dense(place + 100, DType::fp32, {2, 4})};
  };
  std::vector<PartialState> parts = {part(10), part(12), part(14), part(16)};
  const MergeArguments arguments{.parts = parts, .o = dense(1, DType::bf16, {4, 2, 8})};
  MergeParams<max_merge_views> params;
  ASSERT_TRUE(fill_params(spec, arguments, params));
  EXPECT_EQ(params.states, 4u);
  EXPECT_EQ(params.view[0].states, 4);
  EXPECT_EQ(params.view[0].o_state_stride, (std::int64_t{2} << 32) / 2);
  EXPECT_EQ(params.view[0].lse_state_stride, (std::int64_t{2} << 32) / 4);

  parts[3] = part(17);
  const Error error = error_of([&] { fill_params(spec, arguments, params); });
  EXPECT_EQ(error.field(), "parts");
  EXPECT_THAT(error.message(), HasSubstr("parts[3]"));
  spec.views = 3;
  ASSERT_TRUE(fill_params(spec, arguments, params));
  EXPECT_EQ(params.view[0].states, 3);
  EXPECT_EQ(params.view[1].states, 1);
  EXPECT_EQ(params.view[1].o, address(17));
  EXPECT_EQ(params.view[2].states, 0);
}

TEST(MergeArgumentsTest, RefusesByName) {
  const MergeSpec spec{.dtype = DType::bf16, .head_dim_v = 8};
  const PartialState right{dense(10, DType::bf16, {4, 2, 8}), dense(11, DType::fp32, {2, 4})};
  const auto refused = [&](const char* field, const char* message, const PartialState& second, TensorView o,
                           TensorView lse) {
    const PartialState parts[] = {right, second};
    const Error error = error_of([&] { check_arguments(spec, {.parts = parts, .o = o, .lse = lse}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr(message));
  };
  const TensorView o = dense(1, DType::bf16, {4, 2, 8}), lse = dense(2, DType::fp32, {2, 4});
  PartialState other = right;
  other.o.dtype = DType::fp16;
  refused("parts[1].o", "is fp16; it must be bf16", other, o, lse);
  other = right;
  other.lse.shape[1] = 5;
  refused("parts[1].lse", "has tokens = 5; it must be 4", other, o, lse);
  other = {.o = right.o, .lse = {}};
  refused("parts[1].lse", "is missing", other, o, lse);
  other.o = dense(12, DType::bf16, {3, 4, 2, 8});
  other.lse = dense(13, DType::fp32, {2, 2, 4});
  refused("parts[1].lse", "has states = 2; it must be 3", other, o, lse);
  refused("o", "is missing", right, {}, lse);
  refused("lse", "has heads = 3", right, o, dense(2, DType::fp32, {3, 4}));
  TensorView shifted = right.o;
  shifted.data = static_cast<char*>(shifted.data) + 16;
  refused("o", "shares memory with parts[0].o", right, shifted, lse);
  TensorView folded = o;
  folded.strides[0] = 0;
  refused("o", "make elements share memory", right, folded, lse);
  refused("lse", "shares memory with parts[0].o", right, o, dense(10, DType::fp32, {2, 4}));
  TensorView odd = o;
  odd.data = static_cast<char*>(odd.data) + 8;
  refused("o", "not aligned to 16 bytes", right, odd, lse);
  check_arguments(spec, {.parts = {&right, 1}, .o = right.o, .lse = right.lse});
}

TEST(AppendSpecTest, RefusesWhatCannotBeServed) {
  const std::vector<std::pair<const char*, AppendSpec>> wrong = {
      {"spec.dtype", {.dtype = DType::fp32}},
      {"spec.cache_dtype", {.cache_dtype = DType::int32}},
      {"spec.head_dim", {.head_dim = 12}},
      {"spec.head_dim_v", {.head_dim_v = 1032}},
      {"spec.alignment", {.alignment = 1}},
      {"spec.rotary_dim", {.rotary_dim = -2}},
      {"spec.rotary_dim", {.head_dim = 64, .rotary_dim = 66}},
      {"spec.rotary_dim", {.rotary_dim = 7}},
      {"spec.cos_sin_dtype", {.cos_sin_dtype = DType::uint8}},
      {"spec.mrope_sections", {.rotary_dim = 64, .mrope_sections = {16, 16, 1}}},
      {"spec.mrope_sections", {.rotary_dim = 64, .mrope_sections = {40, -8, 0}}},
      {"spec.norm_dtype", {.norm_dtype = DType::int64}},
      {"spec.norm_eps", {.norm_eps = -1}}};
  for (const auto& [field, spec] : wrong) {
    const Error error = error_of([&, spec = spec] { validate(spec); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), field);
  }
  validate(AppendSpec());
}

TEST(AppendSpecTest, EachBakedFieldMakesAnotherProgram) {
  std::set<std::string> sources;
  const AppendSpec base{.rotary_dim = 64, .mrope_sections = {16, 8, 8}};
  const std::vector<void (*)(AppendSpec&)> changes = {[](AppendSpec&) {},
                                                      [](AppendSpec& s) { s.dtype = DType::fp16; },
                                                      [](AppendSpec& s) { s.cache_dtype = DType::fp16; },
                                                      [](AppendSpec& s) { s.head_dim = 64; },
                                                      [](AppendSpec& s) { s.head_dim_v = 64; },
                                                      [](AppendSpec& s) { s.alignment = 4; },
                                                      [](AppendSpec& s) { s.rotary_dim = 32; },
                                                      [](AppendSpec& s) { s.rotary_interleaved = true; },
                                                      [](AppendSpec& s) { s.cos_sin_dtype = DType::bf16; },
                                                      [](AppendSpec& s) {
                                                        s.mrope_sections = {8, 16, 8};
                                                      },
                                                      [](AppendSpec& s) {
                                                        s.mrope_sections = {8, 8, 16};
                                                      },
                                                      [](AppendSpec& s) { s.mrope_interleaved = true; },
                                                      [](AppendSpec& s) { s.norm = true; },
                                                      [](AppendSpec& s) { s.norm_dtype = DType::fp32; },
                                                      [](AppendSpec& s) { s.norm_adds_one = true; }};
  for (const auto& change : changes) {
    AppendSpec spec = base;
    change(spec);
    sources.insert(append_program(spec).source);
  }
  EXPECT_EQ(sources.size(), changes.size());
  AppendSpec other_eps = base;
  other_eps.norm_eps = 1e-5f;
  EXPECT_TRUE(sources.contains(append_program(other_eps).source)) << "a run-time fact";
}

TEST(AppendArgumentsTest, FindsOutWhereTokensGo) {
  const AppendSpec spec{.head_dim = 8};
  AppendArguments arguments{.k = dense(1, DType::bf16, {5, 2, 8}),
                            .v = dense(2, DType::bf16, {5, 2, 8}),
                            .k_cache = dense(3, DType::bf16, {7, 4, 2, 8}),
                            .v_cache = dense(4, DType::bf16, {7, 4, 2, 8}),
                            .slot_mapping = dense(5, DType::int64, {5})};
  BlockAppendParams params;
  ASSERT_TRUE(fill_params(spec, arguments, params));
  EXPECT_EQ(params.tokens, 5);
  EXPECT_EQ(params.heads_q, 0);
  EXPECT_EQ(params.page_size, 4);
  EXPECT_EQ(params.slot_mapping, address(5));

  arguments.slot_mapping = {};
  arguments.seqused_k = dense(6, DType::int32, {3});
  arguments.cu_seqlens_q = dense(7, DType::int32, {4});
  arguments.page_table = dense(8, DType::int32, {3, 9});
  arguments.page_table.shape[1] = 6;  // some columns of a wider one
  ASSERT_TRUE(fill_params(spec, arguments, params));
  EXPECT_EQ(params.slot_mapping, nullptr);
  EXPECT_EQ(params.requests, 3);
  EXPECT_EQ(params.max_pages, 6);
  EXPECT_EQ(params.page_table_stride, 9);

  arguments.k.shape[0] = arguments.v.shape[0] = 0;
  EXPECT_FALSE(fill_params(spec, arguments, params));
}

// q, k and v of one projection, with fewer heads of k and v: q is written, k and v beside it are read.
TEST(OverlapTest, ViewsOfOneTensorWithDifferentSizesAreToldApart) {
  TensorView q = dense(1, DType::bf16, {4, 12, 8}), k = q, v = q;
  q.shape[1] = 8;
  k.shape[1] = v.shape[1] = 2;
  k.data = static_cast<char*>(k.data) + 8 * 8 * 2;
  v.data = static_cast<char*>(v.data) + 10 * 8 * 2;
  for (const auto& [a, b] : {std::pair{q, k}, {q, v}, {k, v}}) {
    EXPECT_FALSE(overlap(a, b));
    EXPECT_FALSE(overlap(b, a));
  }
  TensorView longer = q;
  longer.shape[1] = 9;
  EXPECT_TRUE(overlap(longer, k));
  EXPECT_TRUE(overlap(k, longer));
  EXPECT_FALSE(overlap(longer, v));
  // From the last token to the first one.
  for (TensorView* view : {&q, &k, &longer}) {
    view->data = static_cast<char*>(view->data) + 3 * view->strides[0] * 2;
    view->strides[0] = -view->strides[0];
  }
  EXPECT_FALSE(overlap(q, k));
  EXPECT_FALSE(overlap(k, q));
  EXPECT_TRUE(overlap(longer, k));
}

TEST(OverlapTest, PartsOfPagesShareNoByte) {
  // Pages of numbers, 2 heads of 4 tokens of 8 bytes, their scales, a byte each, and 3 bytes that nobody has.
  TensorView numbers = dense(1, DType::uint8, {5, 2, 4, 8}), scales = dense(1, DType::uint8, {5, 2, 4, 1});
  numbers.strides[0] = scales.strides[0] = 75;
  scales.data = static_cast<char*>(scales.data) + 64;
  for (int further : {0, 75, -75}) {
    TensorView moved = scales;
    moved.data = static_cast<char*>(moved.data) + further;
    EXPECT_FALSE(overlap(numbers, moved)) << further;
    EXPECT_FALSE(overlap(moved, numbers)) << further;
    for (int wrong : {-1, 4}) {
      TensorView worse = moved;
      worse.data = static_cast<char*>(worse.data) + wrong;
      EXPECT_TRUE(overlap(numbers, worse)) << further << " " << wrong;
      EXPECT_TRUE(overlap(worse, numbers)) << further << " " << wrong;
    }
  }
  scales.strides[0] = 76;
  EXPECT_TRUE(overlap(numbers, scales));
  scales.data = static_cast<char*>(numbers.data) + 5 * 75 - 11;  // behind the last page's numbers
  EXPECT_FALSE(overlap(numbers, scales));
}

}  // namespace
}  // namespace jit::testing
