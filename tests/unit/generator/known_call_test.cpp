#include "generator/problem/known_call.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "generator/operations/append/arguments.h"
#include "generator/problem/arguments.h"
#include "generator/problem/known_attention.h"

namespace jit {
namespace {

// Addresses only: nothing here is ever dereferenced.
void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
void move(TensorView& view, std::int64_t bytes) { view.data = static_cast<char*>(view.data) + bytes; }

constexpr std::uintptr_t base = 0x7f0000000000, apart = 0x10000000;
constexpr int pages = 64, page_size = 16, heads_q = 8, heads_kv = 2, head_dim = 64;

// K beside V in a row of an engine's cache.
TensorView cache_half(int half) {
  TensorView view = TensorView::dense(at(base), DType::bf16, {pages, page_size, heads_kv, 2 * head_dim});
  view.shape[3] = head_dim;
  move(view, half * head_dim * 2);
  return view;
}

template <class Arguments>
using Changes = std::vector<std::pair<const char*, std::function<void(Arguments&)>>>;

// A spec of decoding over pages.
AttentionSpec attention_spec() {
  return {.head_dim = head_dim,
          .gqa_ratio = heads_q / heads_kv,
          .sequences_q = SequenceKind::varlen,
          .sequences_kv = SequenceKind::paged,
          .page_size = page_size};
}

AttentionArguments attention_arguments() {
  AttentionArguments arguments{
      .q = TensorView::dense(at(base + apart), DType::bf16, {3, heads_q, head_dim}),
      .k = cache_half(0),
      .v = cache_half(1),
      .o = TensorView::dense(at(base + 2 * apart), DType::bf16, {3, heads_q, head_dim})};
  arguments.cu_seqlens_q = TensorView::dense(at(base + 3 * apart), DType::int32, {4});
  arguments.seqused_k = TensorView::dense(at(base + 4 * apart), DType::int32, {3});
  arguments.page_table = TensorView::dense(at(base + 5 * apart), DType::int32, {3, 8});
  return arguments;
}

struct Attended {
  AttentionSpec spec = attention_spec();
  ArgumentRules rules{spec};
  AttentionParams params = {};

  KnownAttention known() {
    const AttentionArguments arguments = attention_arguments();
    EXPECT_TRUE(fill_params(spec, {}, arguments, params));
    return {rules, arguments, params};
  }
  bool fill(const KnownAttention& known, const AttentionArguments& arguments) {
    return known.fill(spec, arguments, params);
  }
};

TEST(KnownAttention, FillsWhatTheChecksFillWhereTensorsMoved) {
  Attended call;
  const KnownAttention known = call.known();
  AttentionArguments arguments = attention_arguments();
  std::int64_t bytes = 1024;
  for (TensorView* view :
       {&arguments.q, &arguments.o, &arguments.cu_seqlens_q, &arguments.seqused_k, &arguments.page_table})
    move(*view, bytes += 4096);
  for (TensorView* view : {&arguments.k, &arguments.v}) move(*view, -4096);  // of another layer
  ASSERT_TRUE(call.fill(known, arguments));
  AttentionParams checked;
  ASSERT_TRUE(fill_params(call.spec, {}, arguments, checked));
  const AttentionParams& filled = call.params;
  EXPECT_EQ(filled.q, checked.q);
  EXPECT_EQ(filled.k, checked.k);
  EXPECT_EQ(filled.v, checked.v);
  EXPECT_EQ(filled.o, checked.o);
  EXPECT_EQ(filled.k_strides.seq, checked.k_strides.seq);
  EXPECT_EQ(filled.v_strides.batch, checked.v_strides.batch);
  EXPECT_EQ(filled.o_strides.head, checked.o_strides.head);
  EXPECT_EQ(filled.sequences.cu_seqlens_q, checked.sequences.cu_seqlens_q);
  EXPECT_EQ(filled.sequences.seqused_k, checked.sequences.seqused_k);
  EXPECT_EQ(filled.sequences.page_table, checked.sequences.page_table);
  EXPECT_EQ(filled.sequences.page_table_stride, checked.sequences.page_table_stride);
  EXPECT_EQ(filled.batch, checked.batch);
  EXPECT_EQ(filled.seqlen_kv, checked.seqlen_kv);
}

TEST(KnownAttention, DoesNotVouchForWhatMayBeWrong) {
  Attended call;
  const KnownAttention known = call.known();
  const Changes<AttentionArguments> changes = {
      {"misaligned", [](auto& a) { move(a.q, 8); }},
      {"null", [](auto& a) { a.q.data = nullptr; }},
      {"o over q", [](auto& a) { a.o.data = a.q.data; }},
      {"o over pages", [](auto& a) { a.o.data = static_cast<char*>(a.v.data) + 32; }},
      {"o over lengths", [](auto& a) { a.seqused_k.data = a.o.data; }},
      {"fewer rows", [](auto& a) { a.q.shape[0] = a.o.shape[0] = 2; }},
      {"stride", [](auto& a) { a.page_table.strides[0] = 9; }},
      {"type", [](auto& a) { a.page_table.dtype = DType::fp32; }},
      {"rank", [](auto& a) { a.cu_seqlens_q.rank = 2; }},
      {"lse",
       [](auto& a) {
         a.lse = TensorView::dense(at(base + 6 * apart), DType::fp32, {heads_q, 3});
       }},
      {"no lengths", [](auto& a) { a.seqused_k = {}; }},
      {"num_splits", [](auto& a) { a.num_splits = -1; }},
      {"zero_padding", [](auto& a) { a.zero_padding = true; }},
      {"dropout_p", [](auto& a) { a.dropout_p = 0.5f; }},
  };
  ASSERT_TRUE(call.fill(known, attention_arguments()));
  for (const auto& [what, change] : changes) {
    AttentionArguments arguments = attention_arguments();
    change(arguments);
    EXPECT_FALSE(call.fill(known, arguments)) << what;
  }
}

TEST(KnownAttention, IsNoneWithTensorsOfFunctors) {
  AttentionArguments arguments = attention_arguments();
  EXPECT_TRUE(KnownAttention::is_possible(arguments));
  arguments.tensors.add({"alibi_slopes", TensorView::dense(at(base), DType::fp32, {heads_q})});
  EXPECT_FALSE(KnownAttention::is_possible(arguments));
}

AppendArguments append_arguments() {
  return {.k = TensorView::dense(at(base + apart), DType::bf16, {3, heads_kv, head_dim}),
          .v = TensorView::dense(at(base + 2 * apart), DType::bf16, {3, heads_kv, head_dim}),
          .k_cache = cache_half(0),
          .v_cache = cache_half(1),
          .slot_mapping = TensorView::dense(at(base + 3 * apart), DType::int64, {3})};
}

TEST(KnownAppend, VouchesForTensorsThatMovedAndForNoOthers) {
  const AppendSpec spec{.head_dim = head_dim, .head_dim_v = head_dim};
  BlockAppendParams params;
  ASSERT_TRUE(fill_params(spec, append_arguments(), params));
  const KnownAppend known(spec, append_arguments(), params);
  AppendArguments moved = append_arguments();
  move(moved.k, 4096);
  move(moved.slot_mapping, 64);
  for (TensorView* view : {&moved.k_cache, &moved.v_cache}) move(*view, -4096);
  EXPECT_TRUE(known.tensors.vouch_for(moved));
  set_pointers(spec, moved, params);
  EXPECT_EQ(params.k, moved.k.data);
  EXPECT_EQ(params.v_cache, moved.v_cache.data);
  const Changes<AppendArguments> changes = {
      {"k in the cache", [](auto& a) { a.k.data = a.k_cache.data; }},
      {"caches over one another", [](auto& a) { a.v_cache.data = a.k_cache.data; }},
      {"slots in the cache", [](auto& a) { a.slot_mapping.data = a.k_cache.data; }},
      {"misaligned", [](auto& a) { move(a.v, 2); }},
      {"more slots", [](auto& a) { a.slot_mapping.shape[0] = 4; }},
      {"q", [](auto& a) { a.q = a.k; }},
  };
  for (const auto& [what, change] : changes) {
    AppendArguments arguments = append_arguments();
    change(arguments);
    EXPECT_FALSE(known.tensors.vouch_for(arguments)) << what;
  }
}

TEST(Shared, IsUsedByOneAtATime) {
  Shared<int> number;
  EXPECT_TRUE(number.use([&](std::optional<int>& outer) {
    outer = 3;
    EXPECT_FALSE(number.use([](std::optional<int>&) { ADD_FAILURE(); }));
  }));
  EXPECT_TRUE(number.use([](const std::optional<int>& value) { EXPECT_EQ(value, 3); }));
}

TEST(Shared, LosesNothingThatThreadsLeave) {
  Shared<int> number;
  std::atomic<int> uses = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int use = 0; use < 20000; ++use)
        uses += number.use([](std::optional<int>& value) { value = value.value_or(0) + 1; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(number.use([&](const std::optional<int>& value) { EXPECT_EQ(value, uses.load()); }));
  EXPECT_GE(uses, 1);
}

}  // namespace
}  // namespace jit
