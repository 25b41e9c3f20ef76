// Rows that see no key, beside rows that see keys whose values are no numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <jit/attention.h>
#include <jit/device_buffer.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/device_tensor.h"
#include "tests/support/float16.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

class KeylessRowsTest : public GpuTest {
 protected:
  /// One for each way in which rows are written.
  std::vector<const char*> configs() const {
    std::vector<const char*> configs = {"family=forward_mma_sync"};
    if (native_arch(device_) == Arch{9, 0, 'a'}) {
      for (const char* text : {"family=forward_wgmma", "family=forward_wgmma stages_q=2 tile_q=64",
                               "family=forward_wgmma output=direct", "family=forward_wgmma output=separate",
                               "family=forward_wgmma rescale=on_overflow"})
        configs.push_back(text);
    }
    return configs;
  }
};

TEST_F(KeylessRowsTest, AreZeroWhateverValuesHold) {
  // Causal from the end: queries 0 … 39 see no key, 40 sees the first one.
  constexpr int seqlen_q = 100, seqlen_kv = 60, head_dim = 64, keyless = seqlen_q - seqlen_kv;
  std::mt19937_64 random(reference::test_seed());
  std::normal_distribution<float> normal;
  const auto upload = [&](int seqlen, bool with_nan) {
    std::vector<std::uint16_t> bits(std::size_t{head_dim} * seqlen);
    for (std::uint16_t& x : bits) x = reference::from_float(DType::bf16, normal(random));
    for (int d = 0; with_nan && d < head_dim; ++d)
      bits[d] = reference::from_float(DType::bf16, d % 2 == 0 ? std::nanf("") : INFINITY);
    DeviceBuffer buffer(0, bits.size() * 2);
    buffer.upload(bits.data(), buffer.size());
    return buffer;
  };
  const DeviceBuffer q = upload(seqlen_q, false), k = upload(seqlen_kv, false), v = upload(seqlen_kv, true);
  const auto view = [](const DeviceBuffer& buffer, int seqlen) {
    return TensorView::bshd(buffer.data(), DType::bf16, {.seqlen = seqlen, .head_dim = head_dim});
  };
  AttentionSpec spec{.head_dim = head_dim};
  spec.mask = mask::causal();
  for (const char* config : configs()) {
    SCOPED_TRACE(config);
    std::vector<std::uint16_t> o(std::size_t{head_dim} * seqlen_q, 0x7fc0);
    std::vector<float> lse(seqlen_q, 1);
    const DeviceBuffer o_memory(0, o.size() * 2), lse_memory(0, lse.size() * 4);
    o_memory.upload(o.data(), o_memory.size());
    attention(spec, parse_config(config),
              context())({.q = view(q, seqlen_q),
                          .k = view(k, seqlen_kv),
                          .v = view(v, seqlen_kv),
                          .o = view(o_memory, seqlen_q),
                          .lse = TensorView::bhs(lse_memory.data(), 1, 1, seqlen_q)});
    o_memory.download(o.data(), o_memory.size());
    lse_memory.download(lse.data(), lse_memory.size());
    for (int row = 0; row < seqlen_q; ++row) {
      const float first = reference::to_float(DType::bf16, o[std::size_t{head_dim} * row]);
      if (row < keyless) {
        for (int d = 0; d < head_dim; ++d)
          ASSERT_EQ(o[std::size_t{head_dim} * row + d], 0) << row << ' ' << d;
        EXPECT_EQ(lse[row], -std::numeric_limits<float>::infinity()) << row;
      } else {
        EXPECT_TRUE(std::isnan(first)) << row;  // it sees the key
      }
    }
  }
}

// Numbers that stand for −inf in masks of other libraries do so here, in the same rows of all; large numbers
// do not.
TEST_F(KeylessRowsTest, ScoresOfMinus1e30DropKeys) {
  constexpr int seqlen = 70;
  AttentionSpec spec{.head_dim = 64};
  spec.score =
      score::text({.name = "least", .body = "return q % 3 == 0 ? -1e30f : q % 3 == 1 ? -6e5f : score;"});
  for (const char* config : configs()) {
    SCOPED_TRACE(config);
    DeviceTensor q(DType::bf16, {1, seqlen, 1, 64}), k(DType::bf16, {1, seqlen, 1, 64}),
        v(DType::bf16, {1, seqlen, 1, 64}), o(DType::bf16, {1, seqlen, 1, 64}),
        lse(DType::fp32, {1, 1, seqlen});
    for (DeviceTensor* tensor : {&q, &k}) tensor->fill([](std::int64_t) { return 0; });
    v.fill([](std::int64_t) { return 2; });
    for (const DeviceTensor* tensor : {&q, &k, &v, &o, &lse}) tensor->upload();
    attention(spec, parse_config(config),
              context())({.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()});
    o.download();
    lse.download();
    for (int row = 0; row < seqlen; ++row) {
      EXPECT_EQ(o.get({0, row, 0, 5}), row % 3 == 0 ? 0 : 2) << row;
      const double expected = row % 3 == 0   ? -std::numeric_limits<double>::infinity()
                              : row % 3 == 1 ? -6e5 + std::log(seqlen)
                                             : std::log(seqlen);
      EXPECT_FLOAT_EQ(lse.get({0, 0, row}), expected) << row;
    }
  }
}

// A row's sum is what rounding leaves of 1, which is far from it where scores are huge.
TEST_F(KeylessRowsTest, HugeScoresAreNotTakenForMissingKeys) {
  constexpr int seqlen_q = 70, head_dim = 64;
  std::mt19937_64 random(reference::test_seed());
  std::uniform_real_distribution<float> large(2000, 3500), value(1, 2);
  const auto upload = [&](int seqlen, auto& distribution) {
    std::vector<std::uint16_t> bits(std::size_t{head_dim} * seqlen);
    for (std::uint16_t& x : bits) x = reference::from_float(DType::bf16, distribution(random));
    return bits;
  };
  const auto q = upload(seqlen_q, large), k = upload(1, large), v = upload(1, value);
  std::vector<DeviceBuffer> memory;
  for (const auto* bits : {&q, &k, &v}) {
    memory.emplace_back(0, bits->size() * 2);
    memory.back().upload(bits->data(), memory.back().size());
  }
  const auto view = [](const DeviceBuffer& buffer, int seqlen) {
    return TensorView::bshd(buffer.data(), DType::bf16, {.seqlen = seqlen, .head_dim = head_dim});
  };
  AttentionSpec spec{.head_dim = head_dim};
  spec.mask = mask::sliding_window(1000, 1000);
  for (const char* config : configs()) {
    SCOPED_TRACE(config);
    std::vector<std::uint16_t> o(q.size(), 0x7fc0);
    const DeviceBuffer o_memory(0, o.size() * 2);
    attention(spec, parse_config(config), context())({.q = view(memory[0], seqlen_q),
                                                      .k = view(memory[1], 1),
                                                      .v = view(memory[2], 1),
                                                      .o = view(o_memory, seqlen_q)});
    o_memory.download(o.data(), o_memory.size());
    for (std::size_t i = 0; i < o.size(); ++i) {
      const float expected = reference::to_float(DType::bf16, v[i % head_dim]);
      ASSERT_NEAR(reference::to_float(DType::bf16, o[i]), expected, 0.02 * expected) << i;
    }
  }
}

// A bias that stands for a mask: the least number drops a key as −inf does, also where a row's first tiles have
// nothing else, and a row of such keys alone is 0 whatever values hold.
TEST_F(KeylessRowsTest, TheLeastBiasDropsKeys) {
  constexpr int seqlen_q = 40, seqlen_kv = 330, first = 280, head_dim = 64;
  constexpr std::uint16_t least = 0xff7f, minus_infinity = 0xff80, one = 0x3f80, nan = 0x7fc0;
  std::mt19937_64 random(reference::test_seed());
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> q(std::size_t{head_dim} * seqlen_q), k(std::size_t{head_dim} * seqlen_kv);
  for (auto* bits : {&q, &k}) {
    for (std::uint16_t& x : *bits) x = reference::from_float(DType::bf16, normal(random));
  }
  AttentionSpec spec{.head_dim = head_dim};
  spec.score = score::bias(DType::bf16);
  for (const std::uint16_t dropped : {least, minus_infinity}) {
    for (const bool is_blind : {false, true}) {  // the last row
      std::vector<std::uint16_t> v(k.size(), one), bias(std::size_t{seqlen_q} * seqlen_kv, 0);
      if (is_blind) std::fill_n(v.end() - head_dim, head_dim, nan);
      for (int row = 0; row < seqlen_q; ++row) {
        const bool drops_all = is_blind && row == seqlen_q - 1;
        std::fill_n(bias.begin() + std::ptrdiff_t{row} * seqlen_kv, drops_all ? seqlen_kv : first, dropped);
      }
      std::vector<DeviceBuffer> memory;
      for (const auto* bits : {&q, &k, &v, &bias}) {
        memory.emplace_back(0, bits->size() * 2);
        memory.back().upload(bits->data(), memory.back().size());
      }
      const auto view = [&](const DeviceBuffer& buffer, int seqlen) {
        return TensorView::bshd(buffer.data(), DType::bf16, {.seqlen = seqlen, .head_dim = head_dim});
      };
      for (const char* config : configs()) {
        SCOPED_TRACE(config);
        std::vector<std::uint16_t> o(q.size(), nan);
        const DeviceBuffer o_memory(0, o.size() * 2);
        attention(spec, parse_config(config), context())(
            {.q = view(memory[0], seqlen_q),
             .k = view(memory[1], seqlen_kv),
             .v = view(memory[2], seqlen_kv),
             .o = view(o_memory, seqlen_q),
             .tensors = {
                 {"bias", TensorView::dense(memory[3].data(), DType::bf16, {1, 1, seqlen_q, seqlen_kv})}}});
        o_memory.download(o.data(), o_memory.size());
        if (is_blind) {
          for (int d = 0; d < head_dim; ++d) ASSERT_EQ(o[o.size() - 1 - d], 0) << dropped;
        } else {
          for (const std::uint16_t x : o) ASSERT_EQ(x, one) << dropped;
        }
      }
    }
  }
}

}  // namespace
}  // namespace jit::testing
