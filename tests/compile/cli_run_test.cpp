// jit-attention run on an emulated device: varlen and paged sequences, and fp8, against double precision.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <jit/float16.h>

#include "tests/support/cli_run.h"

namespace jit::testing {
namespace {

TEST_F(CliRun, VarlenSequences) {
  const Lengths queries = {5, 1, 33, 0, 4}, keys = {70, 9, 33, 4, 0};
  const int spare = 3;
  const Array q = random_file("q", {sum(queries) + spare, heads, dim});
  const Array k = random_file("k", {sum(keys), heads_kv, dim}),
              v = random_file("v", {sum(keys), heads_kv, dim});
  const ToolResult result = run(
      {"--seqlens-q", text(queries), "--seqlens-kv", text(keys), "--mask", "causal", "--num-splits", "3"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Array o = tool::read_npy(file("o")), lse = tool::read_npy(file("lse"));
  ASSERT_EQ(o.shape, q.shape);
  ASSERT_EQ(lse.shape, (std::vector<std::int64_t>{heads, q.shape[0]}));
  int begin_q = 0, begin_k = 0;
  for (std::size_t b = 0; b < queries.size(); ++b) {
    expect_request(request(q, begin_q, queries[b], rows(k, begin_k, keys[b]), rows(v, begin_k, keys[b])), o,
                   lse, begin_q, no_sinks);
    begin_q += queries[b];
    begin_k += keys[b];
  }
  for (const double padding : rows(o, begin_q, spare)) EXPECT_EQ(padding, 0);
}

TEST_F(CliRun, QueriesSayWhatToComputeIn) {
  for (const auto& [dtype, words] :
       {std::pair{DType::fp16, "computed as fp16"}, {DType::fp32, "computed as bf16"}}) {
    for (const char* name : {"q", "k", "v"})
      write(name, tool::convert(random_file(name, {1, 4, heads, dim}), dtype, name));
    const ToolResult result = run_plainly({});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, ::testing::HasSubstr(words));
    EXPECT_EQ(tool::read_npy(file("o")).dtype, dtype);
  }
}

TEST_F(CliRun, PagesAndSinks) {
  constexpr int page_size = 8, max_pages = 5, pages = 16;
  const Lengths queries = {1, 6, 2}, keys = {40, 19, 7};
  const Array q = random_file("q", {sum(queries), heads, dim});
  const Array k = random_file("k", {pages, page_size, heads_kv, dim}),
              v = random_file("v", {pages, page_size, heads_kv, dim});
  Lengths order(pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  Array table = tool::zeros(DType::int64, {3, max_pages});
  for (int i = 0; i < 3 * max_pages; ++i) table.as<std::int64_t>()[i] = order[static_cast<std::size_t>(i)];
  write("table", table);
  const Array sinks = random_file("sinks", {heads});
  const auto run_over_pages = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--seqlens-q", text(queries), "--seqlens-kv", text(keys), "--mask", "causal",
                             "--page-table", file("table"), "--sinks", file("sinks")});
    return run(more);
  };
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--split-keys", "64", "--checked"}}) {
    const ToolResult result = run_over_pages(more);
    ASSERT_EQ(result.status, 0) << result.err;
    const Array o = tool::read_npy(file("o")), lse = tool::read_npy(file("lse"));
    int begin = 0;
    for (std::size_t b = 0; b < queries.size(); ++b) {
      std::vector<double> own_k, own_v;
      for (int row = 0; row < keys[b]; ++row) {
        const std::int64_t page = order[b * max_pages + static_cast<std::size_t>(row / page_size)];
        for (const auto& [own, pool] : {std::pair{&own_k, &k}, {&own_v, &v}}) {
          const std::int64_t width = heads_kv * dim;
          const float* const first = pool->as<float>() + (page * page_size + row % page_size) * width;
          own->insert(own->end(), first, first + width);
        }
      }
      expect_request(request(q, begin, queries[b], own_k, own_v), o, lse, begin, rows(sinks, 0, heads));
      begin += queries[b];
    }
  }
  table.as<std::int64_t>()[max_pages + 1] = pages;
  write("table", table);
  EXPECT_EQ(run_over_pages({}).status, 0);
  expect_bad_input(run_over_pages({"--checked"}), "page_table: element [1, 1], of request 1, is 16");
  expect_bad_input(run_over_pages({"--split-keys", "65"}), "split_keys");
}

// Bytes of e4m3, with a scale for each head or for each key and head.
TEST_F(CliRun, KeysOfFp8) {
  const Lengths queries = {5, 1}, keys = {30, 9};
  const Array q = random_file("q", {sum(queries), heads, dim});
  const auto bytes_file = [&](const std::string& name) {
    Array array = tool::zeros(DType::uint8, {sum(keys), heads_kv, dim});
    for (std::byte& code : array.bytes) code = static_cast<std::byte>(random_() & 0xbf);  // of at most 1.875
    return write(name, std::move(array));
  };
  const Array k = bytes_file("k"), v = bytes_file("v");
  for (const bool is_token : {false, true}) {
    const std::vector<std::int64_t> shape =
        is_token ? std::vector<std::int64_t>{sum(keys), heads_kv} : std::vector<std::int64_t>{heads_kv};
    const Array scales = random_file("scales", shape);
    std::vector<std::string> more = {"--seqlens-q", text(queries), "--seqlens-kv", text(keys),
                                     "--mask",      "causal",      "--kv-dtype",   "fp8_e4m3",
                                     "--k-descale", file("scales")};
    if (is_token) more.insert(more.end(), {"--descale-per", "token", "--v-descale", file("scales")});
    const ToolResult result = run(more);
    ASSERT_EQ(result.status, 0) << result.err;
    const Array o = tool::read_npy(file("o")), lse = tool::read_npy(file("lse"));
    const auto numbers = [&](const Array& codes, int begin, int count, bool has_scale) {
      std::vector<double> values;
      for (int i = begin * heads_kv * dim; i < (begin + count) * heads_kv * dim; ++i) {
        const int row = i / dim, scale = is_token ? row : row % heads_kv;
        const auto code = static_cast<std::uint8_t>(codes.bytes[static_cast<std::size_t>(i)]);
        values.push_back(float_from_bits(DType::fp8_e4m3, code) *
                         (has_scale ? scales.as<float>()[scale] : 1.0));
      }
      return values;
    };
    int begin_q = 0, begin_k = 0;
    for (std::size_t b = 0; b < queries.size(); ++b) {
      expect_request(request(q, begin_q, queries[b], numbers(k, begin_k, keys[b], true),
                             numbers(v, begin_k, keys[b], is_token)),
                     o, lse, begin_q, no_sinks);
      begin_q += queries[b];
      begin_k += keys[b];
    }
  }
  const std::vector<std::string> lengths = {"--seqlens-q", "5,1", "--seqlens-kv", "30,9"};
  const auto refused = [&](std::vector<std::string> more, const char* words) {
    more.insert(more.end(), lengths.begin(), lengths.end());
    expect_bad_input(run(more), words);
  };
  refused({}, "k.npy is uint8");
  refused({"--kv-dtype", "fp4"}, "--kv-dtype");
  refused({"--kv-dtype", "fp32"}, "kv_dtype = fp32 must be that of q, fp16 or fp8_e4m3 or fp8_e5m2");
  refused({"--kv-dtype", "fp8_e4m3", "--descale-per", "token"}, "k_descale");
  refused({"--kv-dtype", "fp8_e4m3", "--descale-per", "tensor"}, "--descale-per");
  random_file("k", {39, heads_kv, dim});
  refused({"--kv-dtype", "fp8_e4m3"}, "with --kv-dtype it must be uint8, the bytes of fp8_e4m3");
}

// Numbers that are made of fp8 on the device, with means that are given back: of dense sequences, and of varlen ones.
TEST_F(CliRun, Quantizes) {
  const Lengths queries = {5, 1}, keys = {80, 9};
  const Array q = random_file("q", {sum(queries), heads, dim});
  const auto biased = [&](const std::string& name) {
    Array array = random_file(name, {sum(keys), heads_kv, dim});
    for (std::int64_t i = 0; i < array.elements(); ++i) array.as<float>()[i] += static_cast<float>(i % dim);
    return write(name, std::move(array));
  };
  const Array k = biased("k"), v = biased("v");
  // Errors of o and LSE.
  const auto errors = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--seqlens-q", text(queries), "--seqlens-kv", text(keys),
                                    "--mask",      "causal",      "--dtype",      "fp8_e4m3"};
    all.insert(all.end(), more.begin(), more.end());
    const ToolResult result = run_plainly(all);
    EXPECT_EQ(result.status, 0) << result.err;
    const Array o = tool::read_npy(file("o")), lse = tool::read_npy(file("lse"));
    std::pair<double, double> worst;
    int begin_q = 0, begin_k = 0;
    for (std::size_t b = 0; b < queries.size(); ++b) {
      const reference::ForwardResult exact = reference::attention_forward(
          request(q, begin_q, queries[b], rows(k, begin_k, keys[b]), rows(v, begin_k, keys[b])));
      for (int i = 0; i < queries[b]; ++i) {
        for (int h = 0; h < heads; ++h) {
          worst.second = std::max(
              worst.second, std::abs(exact.lse[static_cast<std::size_t>(h * queries[b] + i)] -
                                     static_cast<double>(lse.as<float>()[h * o.shape[0] + begin_q + i])));
          for (int d = 0; d < dim; ++d)
            worst.first =
                std::max(worst.first,
                         std::abs(exact.o[static_cast<std::size_t>((i * heads + h) * dim + d)] -
                                  static_cast<double>(o.as<float>()[((begin_q + i) * heads + h) * dim + d])));
        }
      }
      begin_q += queries[b], begin_k += keys[b];
    }
    return worst;
  };
  const auto plain = errors({"--quantize", "head"});
  for (const char* scales : reference::some_of<const char*>({"head", "token", "block"}, 3)) {
    const auto centered = errors({"--quantize", scales, "--value-scales", "channel", "--center-keys",
                                  "--center-values", "--rotation-seed", "3"});
    EXPECT_LT(centered.first, 0.25) << scales;
    EXPECT_LT(centered.second, 0.25) << scales;
    EXPECT_LT(centered.first, plain.first);
    EXPECT_LT(centered.second, plain.second);
  }
}

// Rows behind a sequence are not read.
TEST_F(CliRun, QuantizesSequencesOfLengths) {
  const Lengths keys = {30, 7};
  random_file("q", {2, 3, heads, dim});
  const Array k = random_file("k", {2, 40, heads_kv, dim}), v = random_file("v", {2, 40, heads_kv, dim});
  const auto with_padding = [&](Array array, float padding) {
    const std::int64_t row = heads_kv * dim;
    for (std::int64_t b = 0; b < 2; ++b)
      std::fill(array.as<float>() + (b * 40 + keys[static_cast<std::size_t>(b)]) * row,
                array.as<float>() + (b + 1) * 40 * row, padding);
    return array;
  };
  std::vector<std::vector<std::byte>> made;
  for (const float padding : {0.0f, 1000.0f, std::nanf("")}) {
    write("k", with_padding(k, padding)), write("v", with_padding(v, padding));
    const ToolResult result = run_plainly({"--quantize", "head", "--center-keys", "--center-values",
                                           "--seqlens-q", "3,2", "--seqlens-kv", text(keys)});
    ASSERT_EQ(result.status, 0) << result.err;
    const Array o = tool::read_npy(file("o"));
    for (std::int64_t i = 0; i < o.elements(); ++i) ASSERT_TRUE(std::isfinite(o.as<float>()[i])) << i;
    made.push_back(o.bytes);
  }
  EXPECT_EQ(made[1], made[0]);
  EXPECT_EQ(made[2], made[0]);
  expect_bad_input(run_plainly({"--quantize", "head", "--cache-leftpad", "1,1"}), "--cache-leftpad");
}

// Bytes and scales equal those of a quantizer.
TEST_F(CliRun, QueriesOfFp8) {
  const auto codes = [&](const std::string& name, std::vector<std::int64_t> shape) {
    Array array = tool::zeros(DType::uint8, std::move(shape));
    for (std::byte& code : array.bytes) code = static_cast<std::byte>(random_() & 0xbf);  // of at most 1.875
    return write(name, std::move(array));
  };
  constexpr int queries = 3, keys = 20;
  const Array q = codes("q", {1, queries, heads, dim}), k = codes("k", {1, keys, heads_kv, dim}),
              v = codes("v", {1, keys, heads_kv, dim});
  const Array scales = random_file("scales", {heads_kv}), mean = random_file("mean", {1, heads_kv, dim});
  for (const auto& [scale, interpolated_exponentials] : {std::pair(0.5f, false), {0.25f, true}}) {
    Array positive = scales;
    for (int h = 0; h < heads_kv; ++h) positive.as<float>()[h] = scale * static_cast<float>(h + 1);
    write("scales", positive);
    std::vector<std::string> options = {"--dtype",     "fp8_e4m3",     "--q-descale", file("scales"),
                                        "--k-descale", file("scales"), "--v-descale", file("scales"),
                                        "--v-mean",    file("mean"),   "--mask",      "causal"};
    if (interpolated_exponentials) options.push_back("--interpolated-exponentials");
    const ToolResult result = run_plainly(options);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.find("interpolated_exponentials=true") != std::string::npos,
              interpolated_exponentials)
        << result.out;
    const auto numbers = [&](const Array& bytes, int own_heads, bool has_mean) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < bytes.elements(); ++i) {
        const auto code = static_cast<std::uint8_t>(bytes.bytes[static_cast<std::size_t>(i)]);
        const int h = static_cast<int>(i / dim) % own_heads * heads_kv / own_heads;
        values.push_back(float_from_bits(DType::fp8_e4m3, code) * positive.as<float>()[h] +
                         (has_mean ? mean.as<float>()[h * dim + i % dim] : 0.0f));
      }
      return values;
    };
    const Array o = tool::read_npy(file("o")), lse = tool::read_npy(file("lse"));
    reference::GradientProblem problem =
        request(scales, 0, 0, numbers(k, heads_kv, false), numbers(v, heads_kv, true));
    problem.seqlen_q = queries;
    problem.q = numbers(q, heads, false);
    problem.d_o.resize(problem.q.size());
    problem.keep = [](int, int, int i, int j) { return j <= i + keys - queries; };
    const reference::ForwardResult exact = reference::attention_forward(problem);
    ASSERT_EQ(o.dtype, DType::fp32);
    for (std::size_t i = 0; i < exact.o.size(); ++i) ASSERT_NEAR(o.as<float>()[i], exact.o[i], 5e-3) << i;
    for (std::size_t i = 0; i < exact.lse.size(); ++i)
      ASSERT_NEAR(lse.as<float>()[i], exact.lse[i], 5e-3) << i;
  }
  const auto refused = [&](std::vector<std::string> more, const char* words) {
    expect_bad_input(run_plainly(std::move(more)), words);
  };
  refused({"--quantize", "head"}, "q.npy is uint8");
  refused({"--quantize", "head", "--dtype", "fp16"}, "--quantize makes fp8; --dtype is fp16");
  refused({"--quantize", "row"}, "\"row\" is none of given, head");
  refused({"--center-keys"}, "--quantize");
  refused({"--quantize", "head", "--descale-per", "token"}, "--descale-per");
  refused({"--dtype", "fp8_e4m3", "--lse-shift", file("scales")}, "lse_shift");
  refused({"--dtype", "fp16", "--interpolated-exponentials"},
          "interpolated_exponentials = true is for q, k and v of fp8");
  write("q", random_file("q", {1, queries, heads, dim}));
  refused({"--dtype", "fp8_e4m3"}, "with --dtype of fp8 and without --quantize it must be uint8");
  for (const char* name : {"k", "v"}) random_file(name, {1, keys, heads_kv, dim});
  refused({"--quantize", "given"}, "--quantize is given, and scales are found here");
  refused({"--quantize", "head", "--q-descale", file("scales")}, "holds what --quantize finds by itself");
  refused({"--quantize", "head", "--center-keys", "--score", "softcap(3)"}, "lse_shift = true must be false");
  random_file("table", {1, 1});
  refused({"--quantize", "head", "--page-table", file("table"), "--seqlens-kv", "3"},
          "of --page-table are of a cache");
}

TEST_F(CliRun, ValuesThatAreColumnsOfKeys) {
  constexpr int columns = 8;
  random_file("q", {1, 3, heads, dim});
  const Array k = random_file("k", {1, 20, heads_kv, dim});
  Array v = tool::zeros(DType::fp32, {1, 20, heads_kv, columns});
  for (int row = 0; row < 20 * heads_kv; ++row)
    std::copy_n(k.as<float>() + row * dim, columns, v.as<float>() + row * columns);
  write("v", v);
  ASSERT_EQ(run({}).status, 0);
  const Array expected = tool::read_npy(file("o"));
  const std::vector<std::string> without = {"run",     "--q",      file("q"),       "--k",
                                            file("k"), "--out",    file("o"),       "--dtype",
                                            "fp16",    "--device", "emulated:sm_80"};
  const auto run_with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), without.begin(), without.end());
    return tool_.run(more);
  };
  const ToolResult result = run_with({"--head-dim-v", std::to_string(columns)});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("values_in_keys=true"));
  const Array o = tool::read_npy(file("o"));
  ASSERT_EQ(o.shape, expected.shape);
  EXPECT_EQ(o.bytes, expected.bytes);
  expect_bad_input(run_with({}), "--v is required, or --head-dim-v");
  expect_bad_input(run({"--head-dim-v", "8"}), "--head-dim-v");
  expect_bad_input(run_with({"--head-dim-v", "24"}), "head_dim_v = 24");
}

TEST_F(CliRun, LengthsOfDenseSequences) {
  const Lengths queries = {7, 12}, keys = {30, 3};
  const Array q = random_file("q", {2, 12, heads, dim});
  const Array k = random_file("k", {2, 30, heads_kv, dim}), v = random_file("v", {2, 30, heads_kv, dim});
  const ToolResult result =
      run({"--seqlens-q", text(queries), "--seqlens-kv", text(keys), "--mask", "causal"});
  ASSERT_EQ(result.status, 0) << result.err;
  // As rows of all sequences, one behind another.
  const auto flat = [](Array array) {
    array.shape = {array.shape[0] * array.shape[1], array.shape[2], array.shape[3]};
    return array;
  };
  const Array o = flat(tool::read_npy(file("o"))), lse = tool::read_npy(file("lse"));
  Array flat_lse = tool::zeros(DType::fp32, {heads, 24});
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < 12; ++i)
        flat_lse.as<float>()[h * 24 + b * 12 + i] = lse.as<float>()[(b * heads + h) * 12 + i];
    }
    expect_request(request(flat(q), 12 * b, queries[static_cast<std::size_t>(b)],
                           rows(flat(k), 30 * b, keys[static_cast<std::size_t>(b)]),
                           rows(flat(v), 30 * b, keys[static_cast<std::size_t>(b)])),
                   o, flat_lse, 12 * b, no_sinks);
  }
}

TEST_F(CliRun, WhatDoesNotFitIsRefused) {
  random_file("q", {9, heads, dim});
  random_file("k", {20, heads_kv, dim});
  random_file("v", {20, heads_kv, dim});
  expect_bad_input(run({"--seqlens-kv", "20"}), "--seqlens-q must say how many each has, 9 at most together");
  expect_bad_input(run({"--seqlens-q", "5,5", "--seqlens-kv", "20"}), "these are 10");
  expect_bad_input(run({"--seqlens-q", "5,4"}), "--seqlens-kv must say how many each has");
  expect_bad_input(run({"--seqlens-q", "5,4", "--seqlens-kv", "20"}), "cu_seqlens_k");
  expect_bad_input(run({"--seqlens-q", "-5,4", "--seqlens-kv", "10,10"}), "--seqlens-q");
  expect_bad_input(run({"--seqlens-q", "5;4", "--seqlens-kv", "10,10"}), "--seqlens-q");
  const std::vector<std::string> lengths = {"--seqlens-q", "5,4", "--seqlens-kv", "10,10"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), lengths.begin(), lengths.end());
    return run(more);
  };
  expect_bad_input(with({"--num-splits", "-1"}), "--num-splits");
  expect_bad_input(with({"--page-table", file("q")}),
                   "its shape must be (pages, page_size, heads, head_dim)");
  expect_bad_input(with({"--sinks", file("q")}), "its shape must be (heads)");
  expect_bad_input(with({"--cache-leftpad", "1"}), "cache_leftpad");
  random_file("k", {4, 8, heads_kv, dim});
  random_file("v", {4, 8, heads_kv, dim});
  write("table", tool::zeros(DType::int32, {2, 2}));
  expect_bad_input(run({"--seqlens-q", "5,4", "--page-table", file("table")}),
                   "--page-table needs --seqlens-kv");
  expect_bad_input(run({"--seqlens-q", "5,4", "--page-table", file("table"), "--seqlens-kv", "10,17"}),
                   "a sequence of 17 is longer than");
}

}  // namespace
}  // namespace jit::testing
