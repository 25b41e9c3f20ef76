// jit-attention with --block-map: blocks of scores from a file, for run, and for what bench and tune are given.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/device.h>
#include <jit/workload.h>

#include "tests/support/attention_gradients.h"
#include "tests/support/cli_files.h"
#include "tools/jit_attention/device_choice.h"
#include "tools/jit_attention/problem.h"
#include "tools/jit_attention/useful_work.h"

namespace jit::testing {
namespace {

using tool::Array;

constexpr int batch = 2, heads = 2, dim = 16, block_q = 32, block_kv = 48;

class CliBlockMap : public CliFiles {
 protected:
  /// A map of random blocks, at least one in each row.
  Array random_map(const std::string& name, std::vector<std::int64_t> shape) {
    Array array = tool::zeros(DType::uint8, std::move(shape));
    for (std::int64_t i = 0; i < array.elements(); ++i)
      array.as<std::uint8_t>()[i] = i % array.shape.back() == 0 || random_() % 2 == 0 ? 1 : 0;
    return write(name, std::move(array));
  }

  void whole_file(const std::string& name, std::vector<std::int64_t> shape,
                  const std::vector<std::int64_t>& numbers) const {
    Array array = tool::zeros(DType::int64, std::move(shape));
    std::copy(numbers.begin(), numbers.end(), array.as<std::int64_t>());
    write(name, std::move(array));
  }

  ToolResult run(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"run",  "--q",      file("q"),        "--k",          file("k"),
                                          "--v",  file("v"),  "--out",          file("o"),      "--dtype",
                                          "fp16", "--device", "emulated:sm_80", "--block-size", "32,48"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool_.run(arguments);
  }

  static bool is_seen(const Array& map, int b, int h, int row, int column) {
    const std::vector<std::int64_t>& shape = map.shape;
    const std::int64_t slice = shape.size() == 2 ? 0 : b % shape[0] * shape[1] + h % shape[1];
    return map.as<std::uint8_t>()[(slice * shape.end()[-2] + row) * shape.end()[-1] + column] != 0;
  }

  /// Rows of a batch entry of o: attention over the blocks of `map` and what `causal` leaves.
  static void expect_entry(const Array& q, const Array& k, const Array& v, const Array& o, const Array& map,
                           int b, bool causal) {
    const int queries = static_cast<int>(q.shape[1]), keys = static_cast<int>(k.shape[1]);
    const auto rows = [&](const Array& array) {
      const std::int64_t size = array.elements() / array.shape[0];
      const float* const first = array.as<float>() + b * size;
      return std::vector<double>(first, first + size);
    };
    reference::GradientProblem problem{
        .heads_kv = heads,
        .gqa_ratio = 1,
        .seqlen_q = queries,
        .seqlen_kv = keys,
        .head_dim = dim,
        .head_dim_v = dim,
        .q = rows(q),
        .k = rows(k),
        .v = rows(v),
        .d_o = std::vector<double>(static_cast<std::size_t>(queries * heads * dim)),
        .softmax_scale = 1 / std::sqrt(double{dim})};
    problem.keep = [&, b, causal](int, int h, int i, int j) {
      return is_seen(map, b, h, i / block_q, j / block_kv) && (!causal || j <= i + keys - queries);
    };
    const std::vector<double> exact = reference::attention_forward(problem).o, found = rows(o);
    for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(found[i], exact[i], 5e-3) << b << ": " << i;
  }
};

TEST_F(CliBlockMap, RunSeesTheseBlocks) {
  const Array q = random_file("q", {batch, 70, heads, dim}), k = random_file("k", {batch, 100, heads, dim}),
              v = random_file("v", {batch, 100, heads, dim});
  for (const auto& [shape, mask] : {std::pair{std::vector<std::int64_t>{3, 3}, "none"},
                                    {{1, heads, 3, 3}, "causal"},
                                    {{batch, 1, 3, 3}, "none"}}) {
    const Array map = random_map("map", shape);
    const ToolResult result = run({"--block-map", file("map"), "--mask", mask});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find(fmt::format("block_mask(32, 48{}", *mask == 'c' ? ", causal)" : ")")),
              std::string::npos)
        << result.out;
    for (int b = 0; b < batch; ++b) expect_entry(q, k, v, tool::read_npy(file("o")), map, b, *mask == 'c');
  }
}

// One list for all heads, and a list for each head.
TEST_F(CliBlockMap, RunOfBlockSparseRows) {
  const Array q = random_file("q", {batch, 70, heads, dim}), k = random_file("k", {batch, 100, heads, dim}),
              v = random_file("v", {batch, 100, heads, dim});
  whole_file("indptr", {4}, {0, 2, 3, 5});
  whole_file("indices", {5}, {0, 2, 1, 0, 1});
  Array map = tool::zeros(DType::uint8, {3, 3});
  for (const int i : {0, 2, 4, 6, 7}) map.as<std::uint8_t>()[i] = 1;
  const std::string files = file("indptr") + "," + file("indices");
  const auto expect = [&] {
    const ToolResult result = run({"--block-map", files, "--mask", "causal"});
    ASSERT_EQ(result.status, 0) << result.err;
    for (int b = 0; b < batch; ++b) expect_entry(q, k, v, tool::read_npy(file("o")), map, b, true);
  };
  expect();
  whole_file("indptr", {1, heads, 4}, {0, 2, 3, 5, 6, 7, 7, 8});
  whole_file("indices", {8}, {0, 2, 1, 0, 1, 99, 0, 2});  // one is no row's
  map = tool::zeros(DType::uint8, {1, heads, 3, 3});
  for (const int i : {0, 2, 4, 6, 7, 9, 17}) map.as<std::uint8_t>()[i] = 1;
  expect();
}

TEST_F(CliBlockMap, BlockSparseRowsThatAreRefused) {
  random_file("q", {batch, 70, heads, dim});
  random_file("k", {batch, 100, heads, dim});
  random_file("v", {batch, 100, heads, dim});
  const std::string files = file("indptr") + "," + file("indices");
  using Numbers = std::vector<std::int64_t>;
  const auto refuse = [&](const Numbers& indptr, const Numbers& indices, const std::string& message) {
    whole_file("indptr", {static_cast<std::int64_t>(indptr.size())}, indptr);
    whole_file("indices", {static_cast<std::int64_t>(indices.size())}, indices);
    expect_bad_input(run({"--block-map", files}), message);
  };
  refuse({0, 1, 2}, {0, 1}, "70 queries and 100 keys have 3 by 3 blocks of 32 by 48");
  refuse({0, 1, 2, 4}, {0, 1, 0}, "indptr.npy has 4 at [3]; it must be from 0 to 3, the number of indices");
  refuse({-1, 1, 2, 3}, {0, 1, 0}, "indptr.npy has -1 at [0]");
  refuse({0, 2, 1, 3}, {0, 1, 0}, "indptr.npy falls from 2 to 1 at [2]");
  refuse({0, 1, 2, 3}, {0, 3, 0},
         "indices.npy has 3 at [1]; it must be from 0 to 2, as there are 3 blocks of keys");
  refuse({0, 1, 2, 3}, {0, -1, 0}, "indices.npy has -1 at [1]");
  refuse({0, 2, 2, 3}, {2, 0, 0}, "indices.npy has 0 at [1], after 2; blocks of a row must ascend");
  refuse({0, 0, 2, 3}, {1, 1, 0}, "indices.npy has 1 at [1], after 1");
  refuse({}, {}, "(rows + 1) or (batch or 1, heads or 1, rows + 1)");
  whole_file("indices", {1, 1}, {0});
  whole_file("indptr", {4}, {0, 1, 1, 1});
  expect_bad_input(run({"--block-map", files}), "indices.npy is int64 (1, 1); it must have one dimension");
  random_file("indptr", {4});
  expect_bad_input(run({"--block-map", files}), "indptr.npy is float32; it must be int64");
  expect_bad_input(run({"--block-map", files + "," + file("q")}), "--block-map");
}

// With bits for some of the blocks, and with more room than there are blocks.
TEST_F(CliBlockMap, RunByMaskBits) {
  const Array q = random_file("q", {batch, 70, heads, dim}), k = random_file("k", {batch, 100, heads, dim}),
              v = random_file("v", {batch, 100, heads, dim});
  const Array map = random_map("map", {1, heads, 3, 3});
  for (const char* room : {"2", "20"}) {
    const ToolResult result = run({"--block-map", file("map"), "--mask", "causal", "--block-scores", room});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("block_scores(32, 48, causal)"), std::string::npos) << result.out;
    for (int b = 0; b < batch; ++b) expect_entry(q, k, v, tool::read_npy(file("o")), map, b, true);
  }
}

TEST_F(CliBlockMap, RunOfVarlenSequences) {
  const Array q = random_file("q", {33 + 60, heads, dim}), k = random_file("k", {90 + 52, heads, dim}),
              v = random_file("v", {90 + 52, heads, dim});
  const Array map = random_map("map", {batch, heads, 2, 2});
  const ToolResult result =
      run({"--block-map", file("map"), "--mask", "causal", "--seqlens-q", "33,60", "--seqlens-kv", "90,52"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Array o = tool::read_npy(file("o"));
  const auto cut = [](const Array& array, std::int64_t begin, std::int64_t count) {
    Array entry = tool::zeros(DType::fp32, {1, count, heads, dim});
    std::copy_n(array.as<float>() + begin * heads * dim, count * heads * dim, entry.as<float>());
    return entry;
  };
  Array second = tool::zeros(DType::uint8, {1, heads, 2, 2});
  std::copy_n(map.as<std::uint8_t>() + heads * 4, heads * 4, second.as<std::uint8_t>());
  expect_entry(cut(q, 0, 33), cut(k, 0, 90), cut(v, 0, 90), cut(o, 0, 33), map, 0, true);
  expect_entry(cut(q, 33, 60), cut(k, 90, 52), cut(v, 90, 52), cut(o, 33, 60), second, 0, true);
}

// The tables that bench and tune time: a device makes them in place of the ones that are known without one.
TEST_F(CliBlockMap, TablesAreMadeOnTheDevice) {
  const Array map = random_map("map", {1, heads, 4, 3});
  tool::ProblemOptions options;
  options.spec.functors.mask = "document";
  options.batch = batch;
  options.heads = heads;
  options.seqlen_q = options.seqlen_kv = 128;
  options.block_map = {.paths = {file("map")}, .sides = {block_q, block_kv}, .scores = 5};
  tool::Problem problem = tool::build_problem(options);
  const double share = tool::mask_density(problem).value();
  const auto bit = [&](std::int64_t slice, int row, int column, int word) {
    const Array& table = problem.tensors.at("block_mask");
    const std::int64_t words = table.shape[3];
    return table.as<std::uint32_t>()[(slice * 4 + row) * words + word] >> column & 1;
  };
  for (const bool made : {false, true}) {
    if (made) {
      const DeviceInfo device = tool::choose_device("emulated:sm_80");
      const CurrentDevice current(device.ordinal);
      tool::DeviceTensors tensors(device.ordinal, problem.tensors);
      Settings settings;
      settings.cache_dir = tool_.cache();
      tensors.make_block_mask(problem, Context(settings));
      EXPECT_NE(tensors.addresses().at("block_mask"), nullptr);
    }
    const Array& places = problem.tensors.at("block_places");
    const std::int64_t known =
        std::count_if(places.as<std::int32_t>(), places.as<std::int32_t>() + places.elements(),
                      [](std::int32_t place) { return place >= 0; });
    EXPECT_EQ(known > 0, made);
    EXPECT_LE(known, batch * heads * 5);
    for (int slice = 0; slice < batch * heads; ++slice) {
      for (int row = 0; row < 4; ++row) {
        for (int column = 0; column < 3; ++column) {
          // Eight documents of 16.
          const bool meets = 32 * row < 48 * column + 48 && 48 * column < 32 * row + 32;
          const bool expected = is_seen(map, 0, slice % heads, row, column) && (meets || !made);
          EXPECT_EQ(bit(slice, row, column, 0), expected) << slice << " " << row << " " << column;
          EXPECT_EQ(bit(slice, row, column, 1), 0u);
        }
      }
    }
    EXPECT_EQ(tool::mask_density(problem).value(), share);
  }
}

TEST_F(CliBlockMap, ShowAndUsefulWorkCountThem) {
  Array map = tool::zeros(DType::uint8, {4, 3});
  for (const int i : {0, 3, 4, 8}) map.as<std::uint8_t>()[i] = 1;
  write("map", std::move(map));
  const std::vector<std::string> show = {
      "show",        "--block-map", file("map"), "--block-size", "32,48",     "--seqlen-q", "128",
      "--seqlen-kv", "144",         "--tile-q",  "32",           "--tile-kv", "48",         "--json"};
  const ToolResult shown = tool_.run(show);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(shown.json()["full"], 4);
  EXPECT_EQ(shown.json()["empty"], 8);
}

TEST_F(CliBlockMap, WhatDoesNotFitIsRefused) {
  random_file("q", {batch, 70, heads, dim});
  random_file("k", {batch, 100, heads, dim});
  random_file("v", {batch, 100, heads, dim});
  const auto refuse = [&](std::vector<std::int64_t> shape, const std::string& message,
                          std::vector<std::string> more = {}) {
    random_map("map", std::move(shape));
    more.insert(more.end(), {"--block-map", file("map")});
    expect_bad_input(run(more), message);
  };
  refuse({4, 3}, "map.npy is uint8 (4, 3); 70 queries and 100 keys have 3 by 3 blocks of 32 by 48");
  refuse({3, 1, 3, 3}, "batch entries must be 1 or 2");
  refuse({1, 3, 3, 3}, "heads must be 1 or 2");
  refuse({3}, "its shape (rows, columns) or (batch or 1, heads or 1, rows, columns)");
  refuse({3, 3}, "must have no block_mask in it", {"--mask", "block_mask(32, 48)"});
  random_file("map", {3, 3});
  expect_bad_input(run({"--block-map", file("map")}), "is float32 (3, 3); it must be of bool or uint8");
  expect_bad_input(run({"--block-map", file("none")}), "there is no such file");
  expect_bad_input(run({}), "--block-size requires --block-map");
  refuse({3, 3}, "--block-scores", {"--block-scores", "0"});
  random_map("map", {3, 3});
  write("table", tool::zeros(DType::int32, {1, 1, 3, 2}));
  expect_bad_input(run({"--block-map", file("map"), "--tensor", "block_mask=" + file("table")}),
                   "--tensor block_mask is given beside --block-map");
  const auto sized = [&](const char* sides) {
    return tool_.run({"show", "--block-map", file("map"), "--block-size", sides});
  };
  expect_bad_input(sized("100,48"), "100 must be a multiple of 16 from 16 to 4096");
  expect_bad_input(sized("32"), "--block-size");
}

}  // namespace
}  // namespace jit::testing
