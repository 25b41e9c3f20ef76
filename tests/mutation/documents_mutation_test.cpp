// Mutations of what finds documents: a graph that is replayed with other ids each time, beside a kernel that asks for them.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/mutation/template_mutation.h"
#include "tests/support/captured_graph.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::documents_mutations {
namespace {

constexpr int batch = 2, seqlen = 600, heads = 2,
              head_dim = 64;  // up to three documents of an entry are sequences

struct Ids {
  const char* name;
  int (*of_query)(int entry, int token);
  int (*of_key)(int entry, int token);
};
constexpr int least = std::numeric_limits<int>::min(), greatest = std::numeric_limits<int>::max();
int in_runs(int entry, int token) { return token < 290 + entry ? greatest : token < 457 ? least : 0; }
int that_come_back(int entry, int token) { return entry == 0 ? token / 250 : token / 250 % 2; }
int of_many(int entry, int token) { return entry == 0 ? token / 250 : token / 50; }
int of_others(int, int token) { return 2 - token / 250; }
constexpr std::array kinds = {Ids{"runs", in_runs, in_runs},
                              Ids{"an id comes back", that_come_back, that_come_back},
                              Ids{"runs again", in_runs, in_runs},
                              Ids{"more than the table holds", of_many, of_many},
                              Ids{"queries of other documents", of_others, of_others},
                              Ids{"keys of other documents", of_others, in_runs},
                              Ids{"runs at last", in_runs, in_runs}};

DeviceTensor numbers(int own_heads, int salt) {
  DeviceTensor tensor(DType::bf16, {batch, seqlen, own_heads, head_dim});
  tensor.fill(
      [&](std::int64_t i) { return static_cast<double>((i * 7919 + salt * 104729) % 257 - 128) / 64; });
  tensor.upload();
  return tensor;
}

std::string difference(const char* name, DeviceTensor& found, DeviceTensor& expected, double most) {
  found.download();
  expected.download();
  for (std::int64_t i = 0; i < found.count(); ++i) {
    const std::vector<std::int64_t> at = found.index(i);
    const double x = found.get(at), y = expected.get(at);
    if (x != y && !(std::abs(x - y) <= most))
      return fmt::format("{}: element {} is {}, expected {}", name, i, x, y);
  }
  return "";
}

std::string noticed_of_documents(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice current(0);
  const DeviceTensor q = numbers(heads, 1), k = numbers(1, 2), v = numbers(1, 3);
  DeviceTensor o(DType::bf16, {batch, seqlen, heads, head_dim}),
      expected(DType::bf16, {batch, seqlen, heads, head_dim});
  // Rows of LSE are innermost but one.
  DeviceTensor lse(DType::fp32, {batch, heads, seqlen}, {.order = {0, 2, 1}});
  DeviceTensor expected_lse(DType::fp32, {batch, heads, seqlen});
  DeviceTensor ids_q(DType::int32, {batch, seqlen}), ids_kv(DType::int32, {batch, seqlen});
  AttentionArguments arguments{.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()};
  arguments.tensors = {{"document_ids_q", ids_q.view()}, {"document_ids_kv", ids_kv.view()}};
  AttentionArguments of_expected = arguments;
  of_expected.o = expected.view();
  of_expected.lse = expected_lse.view();
  const AttentionSpec spec{
      .head_dim = head_dim, .gqa_ratio = heads, .mask = mask::causal() && mask::document()};
  try {
    const Attention kernel = attention(spec, {}, context);
    kernel.prepare(arguments);
    const Attention asks =
        attention(spec, parse_config("tile_q=64 tile_kv=64 warps=4 stages_k=2 stages_v=2"), context);
    asks.prepare(of_expected);
    const TestStream stream;
    const CapturedGraph graph(stream, [&] { kernel(arguments, stream.get()); });
    for (const Ids& ids : kinds) {
      const auto place = [](const auto& of) {
        return [of](std::int64_t i) {
          return static_cast<double>(of(static_cast<int>(i / seqlen), static_cast<int>(i % seqlen)));
        };
      };
      ids_q.fill(place(ids.of_query));
      ids_kv.fill(place(ids.of_key));
      ids_q.upload();
      ids_kv.upload();
      std::vector<std::uint8_t> before;
      asks(of_expected, stream.get());
      for (int replay = 0; replay < 2; ++replay) {
        o.poison();
        lse.poison();
        o.upload();
        lse.upload();
        graph.run(stream);
        std::string wrong = difference(ids.name, o, expected, 0.03);
        if (wrong.empty()) wrong = difference(ids.name, lse, expected_lse, 1e-3);
        if (!wrong.empty()) return wrong;
        if (replay > 0 && before != o.bytes())
          return fmt::format("{}: another o at the second run", ids.name);
        before = o.bytes();
      }
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return disorder(context, nullptr);
}

UNMUTATED_TEST(FoundDocuments, AreRightUnmutated) { EXPECT_EQ(noticed_of_documents(nullptr), ""); }

class DocumentsMutationTest : public MutationTest {};
TEST_P(DocumentsMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_documents(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    FoundDocuments, DocumentsMutationTest,
    ::testing::Values(TemplateMutation{"TheDenseKernelComputes_WhatWasFound", {"= dense;", "= !dense;"}},
                      TemplateMutation{"TheDenseKernelComputes_Never", {"= dense;", "= 0;"}},
                      TemplateMutation{"LseOfDocumentsIsCopied", {"!= 0", "== 0"}},
                      TemplateMutation{"IdsOfQueriesAreThoseOfKeys", removed},
                      TemplateMutation{"AnIdComesBack", removed},
                      TemplateMutation{"DocumentsFitTheTable", {"count <= most && ", ""}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::documents_mutations
