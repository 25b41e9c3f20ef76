// Arrays on the device that hold what they must not: checked calls say which element, others compute what is defined.
#include <jit/attention.h>

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/device_buffer.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

constexpr int head_dim = 64, heads = 2, page_size = 16, pages = 12;

DeviceBuffer on_device(const std::vector<int>& values) {
  DeviceBuffer buffer(0, values.size() * sizeof(int));
  buffer.upload(values.data(), buffer.size());
  return buffer;
}

// Two requests of 3 and 2 queries, and of 40 and 20 keys. Tensors hold zeros.
struct PagedCall {
  std::vector<int> cu_seqlens_q = {0, 3, 5};
  std::vector<int> seqused_k = {40, 20};
  std::vector<int> page_table = {4, 7, 2, 9, 1, -1};

  // A plain call sets `o` to 0, because all values are 0.
  void run(const Attention& kernel) const {
    constexpr int queries = 5;
    const DeviceBuffer cu_seqlens = on_device(cu_seqlens_q), used = on_device(seqused_k),
                       table = on_device(page_table);
    const DeviceBuffer q(0, queries * heads * head_dim * 2), k(0, pages * page_size * heads * head_dim * 2);
    const DeviceBuffer v(0, k.size()), o(0, q.size());
    for (const DeviceBuffer* buffer : {&q, &k, &v, &o}) buffer->fill(0, nullptr);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    const DType dtype = DType::bf16;
    kernel({.q = TensorView::dense(q.data(), dtype, {queries, heads, head_dim}),
            .k = TensorView::dense(k.data(), dtype, {pages, page_size, heads, head_dim}),
            .v = TensorView::dense(v.data(), dtype, {pages, page_size, heads, head_dim}),
            .o = TensorView::dense(o.data(), dtype, {queries, heads, head_dim}),
            .cu_seqlens_q = TensorView::dense(cu_seqlens.data(), DType::int32, {3}),
            .seqused_k = TensorView::dense(used.data(), DType::int32, {2}),
            .page_table = TensorView::dense(table.data(), DType::int32, {2, 3})});
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    std::vector<unsigned short> result(o.size() / 2);
    o.download(result.data(), o.size());
    for (const unsigned short value : result) ASSERT_EQ(value, 0);
  }
};

struct Wild {
  const char* name;
  std::function<void(PagedCall&)> change;
  const char* array;
  const char* text;
};

const std::vector<Wild>& wild_calls() {
  static const std::vector<Wild> calls = {
      {"APageThatDoesNotExist", [](PagedCall& call) { call.page_table[1] = 12; }, "page_table",
       "page_table: element [0, 1], of request 0, is 12; it must be from 0 to 11"},
      {"ANegativePage", [](PagedCall& call) { call.page_table[4] = -1; }, "page_table",
       "page_table: element [1, 1], of request 1, is -1; it must be from 0 to 11"},
      {"MoreKeysThanPages", [](PagedCall& call) { call.seqused_k[0] = 49; }, "seqused_k",
       "seqused_k: element [0], of request 0, is 49; it must be from 0 to 48"},
      {"ANegativeLength", [](PagedCall& call) { call.seqused_k[1] = -3; }, "seqused_k",
       "seqused_k: element [1], of request 1, is -3; it must be from 0 to 48"},
      {"BoundariesThatFall",
       [](PagedCall& call) {
         call.cu_seqlens_q = {0, 4, 3};
       },
       "cu_seqlens_q", "cu_seqlens_q: element [2], of request 1, is 3; it must be from 4 to 5"},
      {"BoundariesBeyondTheQueries", [](PagedCall& call) { call.cu_seqlens_q[2] = 1 << 30; }, "cu_seqlens_q",
       "cu_seqlens_q: element [2], of request 1, is 1073741824; it must be from 3 to 5"},
  };
  return calls;
}

class CheckedTest : public GpuTest {
 protected:
  static AttentionSpec spec(bool checked) {
    AttentionSpec spec;
    spec.head_dim = head_dim;
    spec.sequences_q = SequenceKind::varlen;
    spec.sequences_kv = SequenceKind::paged;
    spec.page_size = page_size;
    spec.mask = mask::causal();
    spec.checked = checked;
    return spec;
  }
  KernelConfig split_kv(const AttentionSpec& spec) const {
    return fitted(spec, parse_config("family=forward_split_kv"));
  }
  std::vector<Attention> kernels(bool checked) const {
    std::vector<Attention> kernels;
    for (const KernelConfig& config :
         {split_kv(spec(checked)), parse_config("family=forward_split_wgmma tile_rows=64 tile_kv=64")}) {
      if (config_rejection(spec(checked), config, device_).empty())
        kernels.push_back(attention(spec(checked), config, context()));
    }
    return kernels;
  }
};

TEST_F(CheckedTest, CallsNameTheElement) {
  const CurrentDevice current(0);
  for (const Attention& kernel : kernels(true)) {
    for (const Wild& wild : wild_calls()) {
      SCOPED_TRACE(wild.name);
      PagedCall call;
      call.run(kernel);  // nothing wrong
      wild.change(call);
      const Error error = error_of([&] { call.run(kernel); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.field(), wild.array);
      EXPECT_THAT(error.what(), ::testing::EndsWith(wild.text));
    }
    PagedCall().run(kernel);
  }
}

TEST_F(CheckedTest, PagesThatNoVisibleKeyNeedsMayBeAnything) {
  const CurrentDevice current(0);
  AttentionSpec windowed = spec(true);
  windowed.mask = mask::sliding_window(4, 0);
  const Attention kernel = attention(windowed, split_kv(windowed), context());
  PagedCall call;
  call.page_table = {-7, 1 << 30, 2, 9, 1, -1};  // the last 6 keys of request 0 are the third page's
  call.seqused_k = {40, 22};
  EXPECT_NO_FATAL_FAILURE(call.run(kernel));
}

TEST_F(CheckedTest, OtherCallsComputeWhatIsDefined) {
  const CurrentDevice current(0);
  for (const Attention& kernel : kernels(false)) {
    for (const Wild& wild : wild_calls()) {
      SCOPED_TRACE(wild.name);
      PagedCall call;
      wild.change(call);
      call.run(kernel);
    }
  }
}

// Ends of subtrees of 40 keys.
TEST_F(CheckedTest, EndsOfNoTreeAreNamed) {
  const CurrentDevice current(0);
  constexpr int keys = 40;
  const DeviceBuffer zeros(0, keys * heads * head_dim * 2), o(0, zeros.size());
  zeros.fill(0, nullptr);
  const auto view = [](const DeviceBuffer& buffer) {
    return TensorView::dense(buffer.data(), DType::bf16, {1, keys, heads, head_dim});
  };
  AttentionSpec checked = spec(true);
  checked.sequences_q = checked.sequences_kv = SequenceKind::dense;
  checked.page_size = 0;
  checked.mask = mask::tree() && !mask::prefix(2);
  AttentionSpec free = checked;
  free.checked = false;
  const auto call = [&](const AttentionSpec& of_call, const std::vector<int>& ends) {
    const DeviceBuffer buffer = on_device(ends);
    AttentionArguments arguments{.q = view(zeros), .k = view(zeros), .v = view(zeros), .o = view(o)};
    arguments.tensors.add({"tree_ends", TensorView::dense(buffer.data(), DType::int32, {1, keys})});
    attention_when_called(of_call, context())(arguments);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  };
  // A prompt of 10 keys with answers of 10 and of 5, and another sequence.
  std::vector<int> right(keys, keys);
  std::fill(right.begin(), right.begin() + 10, 25);
  std::fill(right.begin() + 10, right.begin() + 20, 20);
  std::fill(right.begin() + 20, right.begin() + 25, 25);
  call(checked, right);
  struct WrongEnd {
    int key;
    int end;
    const char* text;
  };
  for (const WrongEnd& wrong :
       {WrongEnd{12, 21, "element [0, 12], of request 0, is 21; it must be from 13 to 20"},
        WrongEnd{20, 20, "element [0, 20], of request 0, is 20; it must be from 21 to 25"},
        WrongEnd{39, 41, "element [0, 39], of request 0, is 41; it must be from 40 to 40"}}) {
    SCOPED_TRACE(wrong.key);
    std::vector<int> ends = right;
    ends[static_cast<std::size_t>(wrong.key)] = wrong.end;
    const Error error = error_of([&] { call(checked, ends); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.field(), "tree_ends");
    EXPECT_THAT(error.what(), ::testing::HasSubstr(wrong.text));
    call(free, ends);  // defined
  }
}

// An emulated device looks in any case, and tells.
TEST_F(CheckedTest, EmulatedDevicesTellOfWhatIsWrong) {
  if (!device_.emulated) GTEST_SKIP() << "a GPU looks where it is asked to";
  const CurrentDevice current(0);
  std::vector<std::string> warnings;
  Observer observer = [&](const Event& event) {
    if (event.kind == Event::Kind::warning) warnings.push_back(event.message);
  };
  const Context own(shared_cache_settings(), observer);
  const Attention kernel = attention(spec(false), split_kv(spec(false)), own);
  PagedCall().run(kernel);
  EXPECT_TRUE(warnings.empty());
  PagedCall call;
  wild_calls()[0].change(call);
  call.run(kernel);
  EXPECT_EQ(warnings, std::vector<std::string>{wild_calls()[0].text});
}

}  // namespace
}  // namespace jit::testing
