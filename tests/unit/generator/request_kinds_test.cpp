// Which requests kernels of one call share, when a call takes two, and how they share the multiprocessors.
#include "templates/scheduling/request_kinds.cuh"

#include <gtest/gtest.h>

#include "generator/problem/problem_shape.h"

namespace jit {
namespace {

TEST(RequestKinds, EachRequestIsOneKernels) {
  for (int queries = 0; queries < 4 * few_queries; ++queries) {
    EXPECT_TRUE(computes(Requests::all, queries));
    EXPECT_NE(computes(Requests::many_queries, queries), computes(Requests::few_queries, queries)) << queries;
  }
  EXPECT_TRUE(computes(Requests::few_queries, few_queries));
  EXPECT_TRUE(computes(Requests::many_queries, few_queries + 1));
}

TEST(SurplusQueries, OfCallsThatMayHaveBothKinds) {
  EXPECT_EQ(surplus_queries(128, 128), 0) << "all decode";
  EXPECT_EQ(surplus_queries(32, 32 * 4), 0) << "too few for a kernel of their own";
  EXPECT_EQ(surplus_queries(1, 5000), 0) << "one request";
  EXPECT_EQ(surplus_queries(4, 4 * 512), 0) << "many queries on average";
  EXPECT_EQ(surplus_queries(129, 512 + 128), 511);
  EXPECT_EQ(surplus_queries(33, 2048 + 32), 2047);
  EXPECT_EQ(surplus_queries(2, 258), 256);
  EXPECT_EQ(surplus_queries(2, 257), 0);
  EXPECT_EQ(surplus_queries(0, 0), 0);
}

TEST(SurplusQueries, DecideTheShapesOfBothKernels) {
  const ProblemShape shape = {
      .batch = 33, .heads_q = 8, .seqlen_q = 64, .seqlen_kv = 4096, .surplus_q = 2047};
  const ProblemShape few = shape_of_few(shape), many = shape_of_many(shape);
  EXPECT_EQ(few, (ProblemShape{.batch = 33, .heads_q = 8, .seqlen_q = 1, .seqlen_kv = 4096}));
  EXPECT_EQ(many, (ProblemShape{.batch = 1, .heads_q = 8, .seqlen_q = 2047, .seqlen_kv = 4096}));
  EXPECT_TRUE(size_class(shape).is_mixed);
  EXPECT_FALSE(size_class(few).is_mixed || size_class(many).is_mixed);
}

TEST(DecodingBlocks, AreInTheRatioOfWork) {
  EXPECT_EQ(decoding_blocks(132, 100, 0), 132) << "nothing beside it";
  EXPECT_EQ(decoding_blocks(132, 100, 10), 120);
  EXPECT_EQ(decoding_blocks(132, 100, 100), 66);
  EXPECT_EQ(decoding_blocks(132, 100, 300), 33);
  EXPECT_EQ(decoding_blocks(132, 100, 1e9f), 1);
  EXPECT_EQ(decoding_blocks(132, 0, 0), 1) << "nothing to decode";
}

TEST(DecodingBlocks, AreSomeOfAll) {
  for (int blocks = 1; blocks < 9; ++blocks) {
    for (const float others : {0.0f, 0.5f, 0.99f, 1.0f, 3.0f}) {
      EXPECT_GE(decoding_blocks(blocks, 1, others), 1);
      EXPECT_LE(decoding_blocks(blocks, 1, others), blocks);
    }
  }
}

}  // namespace
}  // namespace jit
