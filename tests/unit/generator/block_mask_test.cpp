// jit::block_mask without a device: specs, programs, checks of arguments.
#include <jit/block_mask.h>

#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/operations/block_mask/arguments.h"
#include "generator/operations/block_mask/program.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

TensorView tensor(std::uintptr_t place, DType dtype, std::initializer_list<std::int64_t> shape) {
  return TensorView::dense(reinterpret_cast<void*>(place << 32), dtype, shape);
}

TEST(BlockMaskSpecTest, RefusesWhatCannotBeServed) {
  const std::vector<std::tuple<const char*, const char*, BlockMaskSpec>> wrong = {
      {"spec.block_q", "nearest supported: 112", {.mask = {}, .block_q = 100}},
      {"spec.block_q", "nearest supported: 16", {.mask = {}, .block_q = 0}},
      {"spec.block_kv", "nearest supported: 4096", {.mask = {}, .block_kv = 4112}},
      {"spec.block_kv", "nearest supported: 16", {.mask = {}, .block_kv = -16}},
      {"spec.mask", "must have no block_mask in it", {.mask = mask::causal() && mask::block_mask(64, 64)}}};
  for (const auto& [field, message, spec] : wrong) {
    const Error error = error_of([&, spec = spec] { validate(spec); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr(message));
  }
  validate(BlockMaskSpec());
}

// One call has one table.
TEST(BlockMaskSpecTest, MasksOfOneAttentionHaveBlocksOfOneSize) {
  const Mask coarse = mask::block_mask(64, 128), fine = mask::block_mask(64, 16);
  validate(AttentionSpec{.mask = coarse || !mask::block_mask(64, 128, mask::causal())});
  const Error error = error_of([&] { validate(AttentionSpec{.mask = coarse && !fine}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
  EXPECT_EQ(error.field(), "spec.mask and score");
  EXPECT_THAT(error.message(), HasSubstr("wanted of two sizes"));
}

TEST(BlockMaskSpecTest, EachFieldMakesAnotherProgram) {
  std::set<std::string> sources;
  const std::vector<BlockMaskSpec> specs = {{},
                                            {.mask = mask::causal()},
                                            {.mask = {}, .block_q = 64},
                                            {.mask = {}, .block_kv = 64},
                                            {.mask = {}, .varlen_q = true},
                                            {.mask = {}, .varlen_kv = true},
                                            {.mask = {}, .scores = true}};
  for (const BlockMaskSpec& spec : specs) sources.insert(block_mask_program(spec).source);
  EXPECT_EQ(sources.size(), specs.size());
}

TEST(BlockMaskArgumentsTest, ShapesHaveTwoBitsForABlockAndAPlaceForARow) {
  const BlockMaskSpec spec{.mask = {}, .block_q = 64, .block_kv = 128};
  using Shape = std::array<std::int64_t, 4>;
  EXPECT_EQ(block_mask_shape(spec, 2, 3, 64, 4096), (Shape{2, 3, 1, 3}));
  EXPECT_EQ(block_mask_shape(spec, 2, 3, 65, 4097), (Shape{2, 3, 2, 5}));
  EXPECT_EQ(block_mask_shape(spec, 1, 1, 0, 0), (Shape{1, 1, 0, 1}));
}

TEST(BlockMaskArgumentsTest, OneForAllHasNoStride) {
  const BlockMaskSpec spec{.mask = {}, .block_q = 16, .block_kv = 16};
  const BlockMaskArguments arguments{
      .block_mask = tensor(1, DType::int32, {2, 3, 4, 4}),
      .seqlen_q = 50,
      .seqlen_kv = 600,
      .partial = {tensor(2, DType::int32, {1, 3, 4}), tensor(3, DType::int32, {1, 3, 4, 9})},
      .full = {tensor(4, DType::int32, {2, 1, 4}), tensor(5, DType::int32, {2, 1, 4, 1})}};
  BlockMaskParams params;
  EXPECT_EQ(fill_params(spec, arguments, params), (BlockMaskGrids{.lists = 2}));
  EXPECT_EQ(params.partial.count_strides[0], 0);
  EXPECT_EQ(params.partial.count_strides[1], 4);
  EXPECT_EQ(params.partial.index_strides[1], 36);
  EXPECT_EQ(params.partial.capacity, 9);
  EXPECT_EQ(params.full.index_strides[0], 4);
  EXPECT_EQ(params.full.index_strides[1], 0);
}

TEST(BlockMaskArgumentsTest, RowsOfAllSlicesAreSorted) {
  const BlockMaskSpec spec{.mask = {}, .block_q = 16, .block_kv = 16};
  BlockMaskParams params;
  const auto grids = [&](std::int64_t queries, std::int64_t rows) {
    return fill_params(
        spec, {.block_mask = tensor(1, DType::int32, {2, 3, rows, 5}), .seqlen_q = queries, .seqlen_kv = 600},
        params);
  };
  EXPECT_EQ(grids(16 * 512, 512), (BlockMaskGrids{.classes = 2 * 3 * 512 * 2, .order = 2 * 3 * 2}));
  EXPECT_EQ(params.block_words, 4);
  EXPECT_EQ(params.cut_row, -1);
  EXPECT_EQ(grids(16 * 512 + 1, 513), (BlockMaskGrids{.classes = 2 * 3 * 513 * 2, .order = 2 * 3 * 3}));
  EXPECT_EQ(params.cut_row, 512);
}

TEST(BlockMaskArgumentsTest, RefusesByName) {
  const BlockMaskSpec spec{.mask = mask::document(), .block_q = 64, .block_kv = 128};
  const TensorView ids = tensor(2, DType::int32, {2, 300}), counts = tensor(4, DType::int32, {2, 3, 5}),
                   indices = tensor(5, DType::int32, {2, 3, 5, 3});
  const BlockMaskArguments right{.block_mask = tensor(1, DType::int32, {2, 3, 5, 2}),
                                 .seqlen_q = 300,
                                 .seqlen_kv = 300,
                                 .tensors = {{"document_ids_q", ids}, {"document_ids_kv", ids}}};
  check_arguments(spec, right);
  struct Wrong {
    const char *field, *message;
    std::function<void(BlockMaskArguments&)> change;
  };
  const std::vector<Wrong> wrong = {
      {"seqlen_q", "is -1", [](auto& a) { a.seqlen_q = -1; }},
      {"seqlen_kv", "it must be from 0", [](auto& a) { a.seqlen_kv = std::int64_t{1} << 40; }},
      {"block_mask", "has block_rows = 5; it must be 6", [](auto& a) { a.seqlen_q = 321; }},
      {"block_mask", "has block_words = 2; it must be 5", [](auto& a) { a.seqlen_kv = 4097; }},
      {"block_mask", "has 3 heads; it must have 1, or heads_q = 6", [](auto& a) { a.heads_q = 6; }},
      {"block_mask", "is fp32; it must be int32", [](auto& a) { a.block_mask.dtype = DType::fp32; }},
      {"block_mask", "has 3 dimensions", [](auto& a) { a.block_mask.rank = 3; }},
      {"block_mask", "make elements share memory", [](auto& a) { a.block_mask.strides[1] = 0; }},
      {"block_mask", "shares memory with document_ids_q", [&](auto& a) { a.block_mask.data = ids.data; }},
      {"document_ids_kv", "was not given",
       [&](auto& a) {
         a.tensors = {{"document_ids_q", ids}};
       }},
      {"document_ids_q", "has seqlen_q = 300; it must be 290", [](auto& a) { a.seqlen_q = 290; }},
      {"alien", "neither mask nor score reads",
       [&](auto& a) {
         a.tensors.add({"alien", ids});
       }},
      {"map", "has columns = 4; it must be 3",
       [](auto& a) {
         a.map = tensor(3, DType::uint8, {2, 3, 5, 4});
       }},
      {"map", "is int32; it must be uint8",
       [](auto& a) {
         a.map = tensor(3, DType::int32, {2, 3, 5, 3});
       }},
      {"map", "beside lists",
       [&](auto& a) {
         a.map = tensor(3, DType::uint8, {2, 3, 5, 3});
         a.partial = {counts, indices};
       }},
      {"block_mask", "shares memory with map",
       [](auto& a) {
         a.map = tensor(1, DType::uint8, {2, 3, 5, 3});
       }},
      {"partial.indices", "is missing",
       [&](auto& a) {
         a.partial = {counts, {}};
       }},
      {"full.counts", "is missing",
       [&](auto& a) {
         a.full = {{}, indices};
       }},
      {"partial.counts", "is missing, and so is indptr", [&](auto& a) { a.partial = {.indices = indices}; }},
      {"partial.indices", "is missing, and indptr is given",
       [&](auto& a) {
         a.partial = {.indptr = tensor(6, DType::int32, {2, 3, 6})};
       }},
      {"partial.indptr", "was given beside counts",
       [&](auto& a) {
         a.partial = {counts, indices, tensor(6, DType::int32, {2, 3, 6})};
       }},
      {"full.indptr", "has rows + 1 = 5; it must be 6",
       [&](auto& a) {
         a.full = {.indices = tensor(5, DType::int32, {9}), .indptr = tensor(6, DType::int32, {2, 3, 5})};
       }},
      {"full.indices", "has 4 dimensions; it must have 1",
       [&](auto& a) {
         a.full = {.indices = indices, .indptr = tensor(6, DType::int32, {2, 3, 6})};
       }},
      {"block_mask", "shares memory with partial.indptr",
       [&](auto& a) {
         a.partial = {.indices = tensor(5, DType::int32, {9}), .indptr = tensor(1, DType::int32, {2, 3, 6})};
       }},
      {"map", "beside lists",
       [&](auto& a) {
         a.map = tensor(3, DType::uint8, {2, 3, 5, 3});
         a.full = {.indices = tensor(5, DType::int32, {9}), .indptr = tensor(6, DType::int32, {2, 3, 6})};
       }},
      {"full.counts", "has rows = 4; it must be 5",
       [&](auto& a) {
         a.full = {tensor(6, DType::int32, {2, 3, 4}), indices};
       }},
      {"partial.indices", "has batch = 4; it must be 2",
       [&](auto& a) {
         a.partial = {counts, tensor(6, DType::int32, {4, 3, 5, 3})};
       }},
      {"cu_seqlens_q", "spec.varlen_q is false",
       [](auto& a) { a.cu_seqlens_q = tensor(6, DType::int32, {3}); }},
      {"seqused_k", "has size = 3; it must be 2",
       [](auto& a) { a.seqused_k = tensor(6, DType::int32, {3}); }},
      {"block_mask", "shares memory with seqused_q",
       [](auto& a) { a.seqused_q = tensor(1, DType::int32, {2}); }},
  };
  for (const Wrong& one : wrong) {
    BlockMaskArguments arguments = right;
    one.change(arguments);
    const Error error = error_of([&] { check_arguments(spec, arguments); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_TRUE(error.field() == one.field) << error.what() << ", not " << one.field;
    EXPECT_THAT(error.message(), HasSubstr(one.message));
  }
}

TEST(BlockMaskArgumentsTest, ScoresHaveABitAndBlocksAPlace) {
  const BlockMaskSpec spec{.mask = {}, .block_q = 64, .block_kv = 80, .scores = true};
  using Shape = std::array<std::int64_t, 4>;
  EXPECT_EQ(block_places_shape(spec, 2, 3, 65, 161), (Shape{2, 3, 2, 3}));
  EXPECT_EQ(block_scores_shape(spec, 2, 3, 9), (Shape{2, 3, 9, 64 * 128 / 32}));  // of keys rounded up to 64
}

TEST(BlockMaskArgumentsTest, RefusesScoresByName) {
  const BlockMaskSpec spec{.mask = {}, .block_q = 64, .block_kv = 128, .scores = true};
  const BlockMaskArguments right{.block_mask = tensor(1, DType::int32, {2, 3, 5, 3}),
                                 .block_places = tensor(2, DType::int32, {2, 3, 5, 3}),
                                 .block_scores = tensor(3, DType::int32, {2, 3, 7, 256}),
                                 .seqlen_q = 300,
                                 .seqlen_kv = 300};
  BlockMaskParams params;
  EXPECT_EQ(fill_params(spec, right, params), (BlockMaskGrids{.classes = 30, .order = 6, .scores = 30}));
  EXPECT_EQ(params.room, 7);
  EXPECT_EQ(params.score_strides[2], 256);
  struct Wrong {
    const char *field, *message;
    std::function<void(BlockMaskArguments&)> change;
    bool scores = true;
  };
  const std::vector<Wrong> wrong = {
      {"block_places", "is missing; spec.scores is true", [](auto& a) { a.block_places = {}; }},
      {"block_scores", "is missing; spec.scores is true", [](auto& a) { a.block_scores = {}; }},
      {"block_places", "was given; spec.scores is false", [](auto&) {}, false},
      {"block_places", "has heads = 1; it must be 3",
       [](auto& a) {
         a.block_places = tensor(2, DType::int32, {2, 1, 5, 3});
       }},
      {"block_places", "has block_columns = 4; it must be 3",
       [](auto& a) {
         a.block_places = tensor(2, DType::int32, {2, 3, 5, 4});
       }},
      {"block_scores", "has score_words = 128; it must be 256",
       [](auto& a) {
         a.block_scores = tensor(3, DType::int32, {2, 3, 7, 128});
       }},
      {"block_scores", "shares memory with block_places",
       [](auto& a) {
         a.block_scores = tensor(2, DType::int32, {2, 3, 7, 256});
       }},
      {"block_places", "shares memory with block_mask",
       [](auto& a) {
         a.block_places = tensor(1, DType::int32, {2, 3, 5, 3});
       }},
      {"block_scores", "shares memory with map", [](auto& a) {
         a.map = tensor(3, DType::uint8, {2, 3, 5, 3});
       }}};
  for (const Wrong& one : wrong) {
    BlockMaskArguments arguments = right;
    one.change(arguments);
    BlockMaskSpec other = spec;
    other.scores = one.scores;
    const Error error = error_of([&] { check_arguments(other, arguments); });
    EXPECT_EQ(error.field(), one.field) << error.what();
    EXPECT_THAT(error.message(), HasSubstr(one.message));
  }
}

TEST(BlockMaskArgumentsTest, VarlenSequencesNeedTheirBoundaries) {
  const BlockMaskSpec spec{.mask = {}, .block_q = 16, .block_kv = 16, .varlen_q = true};
  const Error error = error_of([&] {
    check_arguments(spec,
                    {.block_mask = tensor(1, DType::int32, {1, 1, 1, 2}), .seqlen_q = 9, .seqlen_kv = 9});
  });
  EXPECT_EQ(error.field(), "cu_seqlens_q");
  EXPECT_THAT(error.message(), HasSubstr("is missing; spec.varlen_q is true"));
}

}  // namespace
}  // namespace jit::testing
