// A KV cache through jit/c.h: append, decoding from pages, and the other operations, beside double precision.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/capi/c_tensors.h"
#include "tests/support/device_tensor.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

constexpr int head_dim = 64, heads_kv = 2, ratio = 2, heads_q = heads_kv * ratio;
constexpr double tolerance = 0.03;  // bf16 keeps 8 bits

class CCache : public ::testing::Test {
 protected:
  DeviceTensor random_tensor(const std::vector<std::int64_t>& shape) {
    DeviceTensor tensor(DType::bf16, shape);
    tensor.fill([&](auto) { return normal_(random_); });
    tensor.upload();
    return tensor;
  }

  // Attention of one query, given by its place in q, over rows of keys and values: each is the first indices.
  using Place = std::vector<std::int64_t>;
  static std::vector<double> exact(const DeviceTensor& q, Place query, const DeviceTensor& k,
                                   const DeviceTensor& v, const std::vector<Place>& keys) {
    const auto at = [](const DeviceTensor& tensor, Place place, std::int64_t head, std::int64_t column) {
      place.push_back(head);
      place.push_back(column);
      return tensor.get(place);
    };
    const std::int64_t head = query.back();
    query.pop_back();
    double sum = 0;
    std::vector<double> o(head_dim);
    for (const Place& key : keys) {
      double dot = 0;
      for (int i = 0; i < head_dim; ++i) dot += at(q, query, head, i) * at(k, key, head / ratio, i);
      const double weight = std::exp(dot / std::sqrt(head_dim));
      sum += weight;
      for (int i = 0; i < head_dim; ++i) o[i] += weight * at(v, key, head / ratio, i);
    }
    for (double& value : o) value /= sum;
    return o;
  }

  CContext context_ = make_context();
  std::mt19937_64 random_{reference::test_seed()};
  std::normal_distribution<double> normal_;
};

TEST_F(CCache, AppendedTokensAreDecodedFromPages) {
  constexpr int page_size = 16, pages = 5;
  const std::vector<int> lengths = {37, 6};
  const std::vector<std::vector<int>> table = {{3, 0, 4}, {1, -1, -1}};
  int tokens = 0;
  for (const int length : lengths) tokens += length;
  const DeviceTensor k = random_tensor({tokens, heads_kv, head_dim}),
                     v = random_tensor({tokens, heads_kv, head_dim});
  const DeviceTensor q = random_tensor({2, 1, heads_q, head_dim});
  const DeviceTensor k_cache = random_tensor({pages, page_size, heads_kv, head_dim}),
                     v_cache = random_tensor({pages, page_size, heads_kv, head_dim});
  DeviceTensor o(DType::bf16, {2, 1, heads_q, head_dim}), slots(DType::int64, {tokens}),
      page_table(DType::int32, {2, 3}), seqused_k(DType::int32, {2});
  int token = 0;
  for (std::size_t request = 0; request < lengths.size(); ++request) {
    for (int i = 0; i < lengths[request]; ++i)
      slots.set({token++}, table[request][i / page_size] * page_size + i % page_size);
    for (int page = 0; page < 3; ++page)
      page_table.set({static_cast<std::int64_t>(request), page}, table[request][page]);
    seqused_k.set({static_cast<std::int64_t>(request)}, lengths[request]);
  }
  for (const DeviceTensor* tensor : {&o, &slots, &page_table, &seqused_k}) tensor->upload();

  CTensors tensors;
  const COperation append = make_operation(context_, JIT_APPEND, "--head-dim 64");
  const jit_append_arguments new_tokens = {.size = sizeof(new_tokens),
                                           .k = tensors(k.view()),
                                           .v = tensors(v.view()),
                                           .k_cache = tensors(k_cache.view()),
                                           .v_cache = tensors(v_cache.view()),
                                           .slot_mapping = tensors(slots.view())};
  expect_ok([&](jit_error** error) { return jit_prepare(append.get(), nullptr, nullptr, error); });
  expect_ok([&](jit_error** error) { return jit_append(append.get(), &new_tokens, nullptr, error); });
  const COperation attention =
      make_operation(context_, JIT_ATTENTION,
                     "--head-dim 64 --gqa-ratio 2 --mask causal --sequences-kv paged --page-size=16");
  jit_forward_arguments decode = {.size = sizeof(decode),
                                  .q = tensors(q.view()),
                                  .k = tensors(k_cache.view()),
                                  .v = tensors(v_cache.view()),
                                  .o = tensors(o.view())};
  decode.page_table = tensors(page_table.view());
  decode.seqused_k = tensors(seqused_k.view());
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &decode, nullptr, error); });

  o.download();
  std::int64_t first = 0;
  for (std::int64_t request = 0; request < 2; ++request) {
    std::vector<Place> keys;
    for (int i = 0; i < lengths[request]; ++i) keys.push_back({first + i});
    first += lengths[request];
    for (std::int64_t head = 0; head < heads_q; ++head) {
      const std::vector<double> expected = exact(q, {request, 0, head}, k, v, keys);
      for (int i = 0; i < head_dim; ++i)
        ASSERT_NEAR(o.get({request, 0, head, i}), expected[i], tolerance)
            << request << " " << head << " " << i;
    }
  }
}

TEST_F(CCache, PartialResultsAreMerged) {
  constexpr int queries = 5, keys = 40, first = 23;
  const DeviceTensor q = random_tensor({1, queries, heads_q, head_dim}),
                     k = random_tensor({1, keys, heads_kv, head_dim}),
                     v = random_tensor({1, keys, heads_kv, head_dim});
  DeviceTensor o(DType::bf16, {1, queries, heads_q, head_dim}), lse(DType::fp32, {1, heads_q, queries});
  CTensors tensors;
  const COperation attention = make_operation(context_, JIT_ATTENTION, "--head-dim 64 --gqa-ratio 2");
  std::vector<DeviceTensor> partial_o, partial_lse;
  std::vector<jit_partial_state> parts;
  for (const auto& [begin, end] : {std::pair{0, first}, {first, keys}}) {
    const auto share = [&, begin = begin, end = end](const DeviceTensor& all) {
      TensorView view = all.view();
      view.data = static_cast<std::uint16_t*>(view.data) + begin * view.strides[1];
      view.shape[1] = end - begin;
      return tensors(view);
    };
    const DeviceTensor& part_o =
        partial_o.emplace_back(DType::bf16, std::vector<std::int64_t>{1, queries, heads_q, head_dim});
    const DeviceTensor& part_lse =
        partial_lse.emplace_back(DType::fp32, std::vector<std::int64_t>{1, heads_q, queries});
    parts.push_back({tensors(part_o.view()), tensors(part_lse.view())});
    const jit_forward_arguments call = {.size = sizeof(call),
                                        .q = tensors(q.view()),
                                        .k = share(k),
                                        .v = share(v),
                                        .o = parts.back().o,
                                        .lse = parts.back().lse};
    expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &call, nullptr, error); });
  }
  const COperation merge = make_operation(context_, JIT_MERGE, "--dtype bf16 --head-dim-v 64");
  const jit_merge_arguments call = {.size = sizeof(call),
                                    .parts = parts.data(),
                                    .part_count = parts.size(),
                                    .o = tensors(o.view()),
                                    .lse = tensors(lse.view())};
  expect_ok([&](jit_error** error) { return jit_merge(merge.get(), &call, nullptr, error); });
  EXPECT_NE(c_text([&](char** text, jit_error** error) {
              return jit_kernel_text(merge.get(), nullptr, nullptr, JIT_KERNEL_SOURCE, text, error);
            }).find("merge"),
            std::string::npos);

  o.download();
  std::vector<Place> all;
  for (int key = 0; key < keys; ++key) all.push_back({0, key});
  for (std::int64_t query = 0; query < queries; ++query) {
    const std::vector<double> expected = exact(q, {0, query, 3}, k, v, all);
    for (int i = 0; i < head_dim; ++i) ASSERT_NEAR(o.get({0, query, 3, i}), expected[i], tolerance) << query;
  }
  jit_merge_arguments wrong = call;
  parts[1].lse = nullptr;
  EXPECT_EQ(
      failure_of([&](jit_error** error) { return jit_merge(merge.get(), &wrong, nullptr, error); }).field,
      "parts[1].lse");
}

TEST_F(CCache, MassesOfKeysAreWhatQueriesGaveThem) {
  constexpr int rows = 20;
  const std::vector<std::int64_t> queries = {1, rows, heads_q, head_dim},
                                  shape = {1, rows, heads_kv, head_dim};
  const DeviceTensor q = random_tensor(queries), k = random_tensor(shape), v = random_tensor(shape);
  const DeviceTensor o(DType::bf16, queries);
  DeviceTensor lse(DType::fp32, {1, heads_q, rows}), mass(DType::fp32, {1, heads_q, rows});
  CTensors tensors;
  const std::string text =
      fmt::format("--head-dim {} --gqa-ratio {} --mask causal", head_dim, heads_q / heads_kv);
  const COperation attention = make_operation(context_, JIT_ATTENTION, text.c_str());
  const jit_forward_arguments call = {.size = sizeof(call),
                                      .q = tensors(q.view()),
                                      .k = tensors(k.view()),
                                      .v = tensors(v.view()),
                                      .o = tensors(o.view()),
                                      .lse = tensors(lse.view())};
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &call, nullptr, error); });
  const COperation of_keys = make_operation(context_, JIT_KEY_MASS, (text + " --per-query-head").c_str());
  jit_key_mass_arguments sum = {.size = sizeof(sum),
                                .q = tensors(q.view()),
                                .k = tensors(k.view()),
                                .lse = tensors(lse.view()),
                                .mass = tensors(mass.view())};
  expect_ok([&](jit_error** error) { return jit_key_mass(of_keys.get(), &sum, nullptr, error); });
  mass.download();
  for (int h = 0; h < heads_q; ++h) {  // each query gives 1; only the last one sees the last key
    double all = 0;
    for (int key = 0; key < rows; ++key) all += mass.get({0, h, key});
    EXPECT_NEAR(all, rows, 1e-3) << h;
    EXPECT_LT(mass.get({0, h, rows - 1}), 1) << h;
  }
  sum.mass = nullptr;
  EXPECT_EQ(
      failure_of([&](jit_error** error) { return jit_key_mass(of_keys.get(), &sum, nullptr, error); }).field,
      "mass");
}

TEST_F(CCache, QuantizedRowsTimesTheirScalesAreWhatTheyWere) {
  constexpr int tokens = 12;
  const std::vector<std::int64_t> shape = {1, tokens, heads_kv, head_dim};
  const DeviceTensor q = random_tensor(shape), k = random_tensor(shape), v = random_tensor(shape);
  DeviceTensor q8(DType::fp8_e4m3, shape), k8(DType::fp8_e4m3, shape), v8(DType::fp8_e4m3, shape);
  DeviceTensor q_scale(DType::fp32, {1, tokens, heads_kv}), k_scale(DType::fp32, {1, tokens, heads_kv}),
      v_scale(DType::fp32, {1, heads_kv});
  CTensors tensors;
  const COperation quantize =
      make_operation(context_, JIT_QUANTIZE, "--head-dim 64 --scales token --value-scales head");
  const jit_quantize_arguments call = {.size = sizeof(call),
                                       .q = tensors(q.view()),
                                       .k = tensors(k.view()),
                                       .v = tensors(v.view()),
                                       .q_out = tensors(q8.view()),
                                       .k_out = tensors(k8.view()),
                                       .v_out = tensors(v8.view()),
                                       .q_descale = tensors(q_scale.view()),
                                       .k_descale = tensors(k_scale.view()),
                                       .v_descale = tensors(v_scale.view())};
  expect_ok([&](jit_error** error) { return jit_quantize(quantize.get(), &call, nullptr, error); });
  for (DeviceTensor* written : {&k8, &k_scale}) written->download();
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (int i = 0; i < head_dim; ++i) {
      const double is = k8.get({0, token, 1, i}) * k_scale.get({0, token, 1}), was = k.get({0, token, 1, i});
      ASSERT_NEAR(is, was, 0.07 * std::abs(was) + 0.01) << token << " " << i;
    }
  }
}

TEST_F(CCache, AttentionReadsATableOfBlocks) {
  constexpr int seqlen = 100;
  const std::vector<std::int64_t> shape = {1, seqlen, 2, head_dim};
  const DeviceTensor q = random_tensor(shape), k = random_tensor(shape), v = random_tensor(shape);
  DeviceTensor plain(DType::bf16, shape), by_table(DType::bf16, shape), table(DType::int32, {1, 1, 4, 3});
  CTensors tensors;
  const COperation blocks =
      make_operation(context_, JIT_BLOCK_MASK, "--mask causal --block-q 32 --block-kv 32");
  jit_block_mask_arguments call = {.size = sizeof(call), .block_mask = tensors(table.view())};
  call.seqlen_q = call.seqlen_kv = seqlen;
  expect_ok([&](jit_error** error) { return jit_block_mask(blocks.get(), &call, nullptr, error); });
  const jit_named_tensor named = {"block_mask", tensors(table.view())};
  for (const DeviceTensor* o : {&plain, &by_table}) {
    const COperation attention = make_operation(
        context_, JIT_ATTENTION,
        o == &plain ? "--head-dim 64 --mask causal" : "--head-dim 64 --mask 'block_mask(32, 32, causal)'");
    const jit_forward_arguments forward = {.size = sizeof(forward),
                                           .q = tensors(q.view()),
                                           .k = tensors(k.view()),
                                           .v = tensors(v.view()),
                                           .o = tensors(o->view()),
                                           .lse = nullptr,
                                           .tensors = &named,
                                           .tensor_count = o == &plain ? 0u : 1u};
    expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &forward, nullptr, error); });
  }
  plain.download();
  by_table.download();
  for (std::int64_t token = 0; token < seqlen; ++token)
    ASSERT_NEAR(plain.get({0, token, 1, 5}), by_table.get({0, token, 1, 5}), 0.02) << token;
}

}  // namespace
}  // namespace jit::testing
