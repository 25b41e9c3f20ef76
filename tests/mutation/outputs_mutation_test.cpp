// Mutations of outputs beside o and LSE, and of key masses: each must be noticed.
#include <bit>
#include <cmath>
#include <limits>

#include <jit/key_mass.h>
#include <jit/outputs.h>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::outputs_mutations {
namespace {

constexpr int head_dim = 64, heads = 2, seqlen_q = 70, seqlen_kv = 150;
constexpr double infinity = std::numeric_limits<double>::infinity();

// Rows of which one element is not 0: q · k = query · key, exact, and negative but for rows behind the last query.
double query(std::int64_t i) { return 1 + static_cast<double>(i % 70 / 8); }
double key(std::int64_t j) { return -(300 - static_cast<double>(j)) / 4; }

DeviceTensor rows(int seqlen, double (*value)(std::int64_t)) {
  DeviceTensor tensor(DType::bf16, {1, seqlen, heads, head_dim});
  for (std::int64_t flat = 0; flat < tensor.count(); ++flat) {
    const auto at = tensor.index(flat);
    tensor.set(at, at[3] == 5 ? value(at[1]) : 0);
  }
  tensor.upload();
  return tensor;
}

int last_key(int i) { return i + seqlen_kv - seqlen_q; }  // of a causal mask

struct Problem {
  const char* config;
  const char* score = nullptr;  ///< a text
  bool has_rows = true;         ///< whether those of rows are wanted, too
  double most = 0;              ///< of a text
};

std::string noticed_of(const TemplateMutation* mutation, const Problem& problem) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const DeviceTensor q = rows(seqlen_q, query), k = rows(seqlen_kv, key), v = rows(seqlen_kv, key);
  const DeviceTensor o(DType::bf16, {1, seqlen_q, heads, head_dim});
  DeviceTensor max_logit(DType::fp32, {heads}), row_max(DType::fp32, {1, heads, seqlen_q});
  for (DeviceTensor* output : {&max_logit, &row_max}) {
    output->fill([](std::int64_t) { return -infinity; });
    output->upload();
  }
  AttentionSpec spec{
      .head_dim = head_dim, .max_logit = true, .row_max = problem.has_rows, .mask = mask::causal()};
  if (problem.score != nullptr) spec.score = score::text({.name = "given", .body = problem.score});
  try {
    attention(spec, parse_config(problem.config),
              context)({.q = q.view(),
                        .k = k.view(),
                        .v = v.view(),
                        .o = o.view(),
                        .max_logit = max_logit.view(),
                        .row_max = problem.has_rows ? row_max.view() : TensorView()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  max_logit.download();
  row_max.download();
  for (int h = 0; h < heads; ++h) {
    double of_head = -infinity;
    for (int i = 0; i < seqlen_q; ++i) {
      const double score = problem.score != nullptr ? problem.most : query(i) * key(last_key(i)) / 8;
      if (const double got = row_max.get({0, h, i}); problem.has_rows && got != score)
        return fmt::format("row {} of head {} has {}, not {}", i, h, got, score);
      of_head = std::max(of_head, score);
    }
    if (const double got = max_logit.get({h}); got != of_head)
      return fmt::format("head {} has {}, not {}", h, got, of_head);
  }
  return "";
}

// Equal scores, and more queries than keys, so that the first ones see none. TMA copies rows that are aligned to 16 bytes.
std::string noticed_of_mass(const TemplateMutation* mutation, int alignment) {
  constexpr int seqlen_q = 430, seqlen_kv = 470;  // of keys, and of queries
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const auto none = [](std::int64_t) { return 0.0; };
  const DeviceTensor q = rows(seqlen_kv, none), k = rows(seqlen_q, none);
  DeviceTensor lse(DType::fp32, {1, heads, seqlen_kv}), mass(DType::fp32, {1, heads, seqlen_q});
  const auto seen = [](std::int64_t i) { return std::max<std::int64_t>(0, i - (seqlen_kv - seqlen_q) + 1); };
  lse.fill([&](std::int64_t flat) { return std::log(static_cast<double>(seen(flat % seqlen_kv))); });
  lse.upload();
  try {
    key_mass({.attention = {.head_dim = head_dim, .alignment = alignment, .mask = mask::causal()}},
             context)({.q = q.view(), .k = k.view(), .lse = lse.view(), .mass = mass.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  mass.download();
  for (int j = 0; j < seqlen_q; ++j) {
    double sum = 0;
    for (int i = 0; i < seqlen_kv; ++i) sum += seen(i) > j ? 1 / static_cast<double>(seen(i)) : 0;
    if (const double got = mass.get({0, 1, j}); !(std::abs(got - sum) < 1e-5))
      return fmt::format("key {} has {}, not {}", j, got, sum);
  }
  return "";
}

// Keys in pages in reverse order, one of which does not exist, and room for twice as many. Pages of 16 rows come by TMA.
std::string noticed_of_paged_mass(const TemplateMutation* mutation, int page_size) {
  constexpr int seqlen_q = 64, keys = 270, no_page = 2;
  const int pages = 600 / page_size;
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const auto key = [=](int j) { return j / page_size == no_page ? 0 : j % 7 - 3; };
  const DeviceTensor q = rows(seqlen_q, [](std::int64_t) { return 1.0; });
  DeviceTensor k(DType::bf16, {pages, page_size, heads, head_dim}), table(DType::int32, {1, pages});
  DeviceTensor used(DType::int32, {1}), lse(DType::fp32, {1, heads, seqlen_q});
  DeviceTensor mass(DType::fp32, {1, heads, pages * page_size});
  k.fill([&](std::int64_t flat) {
    const auto at = k.index(flat);
    return at[3] == 5 ? key(static_cast<int>((pages - 1 - at[0]) * page_size + at[1])) : 0;
  });
  table.fill([&](std::int64_t i) { return i == no_page ? -1 : static_cast<double>(pages - 1 - i); });
  used.fill([](std::int64_t) { return keys; });
  lse.fill([](std::int64_t) { return 2; });
  mass.fill([](std::int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
  for (DeviceTensor* tensor : {&k, &table, &used, &lse, &mass}) tensor->upload();
  try {
    key_mass(
        {.attention = {.head_dim = head_dim, .sequences_kv = SequenceKind::paged, .page_size = page_size}},
        context)({.q = q.view(),
                  .k = k.view(),
                  .lse = lse.view(),
                  .mass = mass.view(),
                  .page_table = table.view(),
                  .seqused_k = used.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  mass.download();
  for (int j = 0; j < pages * page_size; ++j) {
    const double sum = j < keys ? seqlen_q * std::exp(key(j) / 8.0 - 2) : 0;
    if (const double got = mass.get({0, 1, j}); !(std::abs(got - sum) < 1e-5))
      return fmt::format("key {} has {}, not {}", j, got, sum);
  }
  return "";
}

constexpr const char* no_wait = "has no griddepcontrol.wait";

constexpr Problem by_wgmma{"family=forward_wgmma tile_q=64 tile_kv=64 rescale=lazy"};
constexpr Problem looked_at_later{"family=forward_wgmma tile_q=64 tile_kv=64 rescale=on_overflow"};
constexpr Problem of_heads{"family=forward_wgmma tile_q=64 tile_kv=64 rescale=on_overflow", nullptr, false};
// In tiles of 64 keys: the head's largest score of first tiles is another row's, and one behind the next ones is larger by
// 2 %.
constexpr Problem of_near{
    "family=forward_wgmma tile_q=64 tile_kv=64 rescale=on_overflow",
    "return k == 0 && q == 53 ? 0.305f : k == 130 && q == 51 ? 0.33f : k < 64 ? 0.0f : -30.0f;", false,
    0.33f};
// A row's maximum moves in the second tile, and is rounded; in the third one a score is larger by the last bit.
constexpr float rounded_score = 6.53f;
constexpr Problem of_rounded{
    "family=forward_wgmma tile_q=64 tile_kv=64 rescale=on_overflow",
    "return k == 70 ? 6.53f : k == 130 ? __int_as_float(__float_as_int(6.53f) + 1) : 0.0f;", false,
    std::bit_cast<float>(std::bit_cast<int>(rounded_score) + 1)};
constexpr Problem by_splits{"family=forward_split_kv row_warps=2"};
constexpr Problem of_zeros{"family=forward_mma_sync tile_q=64 tile_kv=32 warps=4", "return -0.0f;"};

struct OutputsMutation {
  TemplateMutation mutation;
  const Problem* problem = nullptr;  ///< none: key masses
  int alignment = 16;                ///< of these
  int page_size = 0;                 ///< the same, in pages
};
std::ostream& operator<<(std::ostream& out, const OutputsMutation& subject) {
  return out << subject.mutation;
}

class OutputsMutationTest : public MutationTestOf<OutputsMutation> {};

TEST_P(OutputsMutationTest, IsCaught) {
  const auto& [mutation, problem, alignment, page_size] = GetParam();
  const std::string text = problem != nullptr ? noticed_of(&mutation, *problem)
                           : page_size != 0   ? noticed_of_paged_mass(&mutation, page_size)
                                              : noticed_of_mass(&mutation, alignment);
  // A kernel without its only wait is not even launched.
  if (mutation.caught_by == std::vector{no_wait}) {
    EXPECT_THAT(text, ::testing::HasSubstr(no_wait));
  } else {
    expect_caught(mutation, text);
  }
}

UNMUTATED_TEST(Outputs, AreRightUnmutated) {
  for (const Problem* problem :
       {&by_wgmma, &looked_at_later, &of_heads, &of_near, &of_rounded, &by_splits, &of_zeros})
    EXPECT_EQ(noticed_of(nullptr, *problem), "");
  for (const int alignment : {8, 16}) EXPECT_EQ(noticed_of_mass(nullptr, alignment), "");
  for (const int page_size : {3, 16}) EXPECT_EQ(noticed_of_paged_mass(nullptr, page_size), "");
}

INSTANTIATE_TEST_SUITE_P(
    Outputs, OutputsMutationTest,
    ::testing::Values(
        OutputsMutation{{"NegativeZeroIsLeast", {"+= 0.0f", "+= -0.0f"}}, &of_zeros},
        OutputsMutation{{"LargestScoresOfTheFirstTile", removed}, &by_wgmma},
        OutputsMutation{{"LargestScoresOfTheLastTile", {"fmaxf(state.largest[r], of_lane)", "of_lane"}},
                        &looked_at_later},
        OutputsMutation{{"LargestScoresAreNotLookedFor", {"!repeated &&", "false &&"}}, &of_near},
        OutputsMutation{{"KnownRowsOfNobody", {"if (first_row + 8 * r < seqlen_q)", ""}}, &of_heads},
        OutputsMutation{{"KnownOfOneLane", {"largest, distance", "largest, 0"}}, &of_heads},
        OutputsMutation{{"LargestOfAnotherHead", {"-0x1p127f", "1000.0f"}}, &of_near},
        OutputsMutation{{"RoundedMaximaCountAsScores", removed}, &of_rounded},
        OutputsMutation{{"BoundsAboveExponentials", {" - chord", ""}}, &of_near},
        OutputsMutation{{"RowsOfNobodyCount", removed, {"out of bounds"}}, &by_wgmma},
        OutputsMutation{{"HeadOfOneLane", removed}, &by_wgmma},
        OutputsMutation{{"PackedRowsOfNobodyCount", removed, {"out of bounds"}}, &by_splits},
        OutputsMutation{{"QueriesWithoutKeysHaveMass", {"lse_exponent(own)", "(own * log2_e)"}}, nullptr, 8},
        OutputsMutation{{"MassOfMaskedKeys", {"tiles.is_partial()", "false"}}, nullptr, 8},
        OutputsMutation{{"MassOfLseThatIsNotThere", removed, {no_wait}}, nullptr, 8},
        OutputsMutation{{"MassBehindTheLastKey", {"key < keys ? mass : 0", "mass"}}, nullptr, 0, 3},
        OutputsMutation{{"NoMassOfTilesWithoutKeys", {"$", "if (false) $"}}, nullptr, 0, 3},
        OutputsMutation{{"MassOfPagesThatDoNotExist",
                         {"pages.exists(page) ? k + offset : nullptr", "k + offset"},
                         {"out of bounds"}},
                        nullptr,
                        0,
                        3}),
    ::testing::PrintToStringParamName());

// Mutations of the kernel by wgmma.
class KeyMassMutationTest : public MutationTestOf<OutputsMutation> {
 protected:
  void SetUp() override {
    if (device_info(0).arch.major != 9) GTEST_SKIP() << "the template is Hopper's";
    MutationTestOf<OutputsMutation>::SetUp();
  }
};

TEST_P(KeyMassMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam().mutation;
  expect_caught(mutation, GetParam().page_size != 0 ? noticed_of_paged_mass(&mutation, GetParam().page_size)
                                                    : noticed_of_mass(&mutation, GetParam().alignment));
}

INSTANTIATE_TEST_SUITE_P(
    Outputs, KeyMassMutationTest,
    ::testing::Values(
        OutputsMutation{{"ScoreTilesLoadedEarly", removed, {"access in flight", "data race"}}},
        OutputsMutation{{"ScoresReadEarly", removed, {"wgmma"}}},
        OutputsMutation{{"EarlierTileNeverReleased", removed, {"deadlock"}}},
        OutputsMutation{{"MassLseReadEarly", removed, {"deadlock"}}},
        OutputsMutation{{"MassStepsWithoutEnd", removed, {"deadlock", "uninitialized"}}},
        OutputsMutation{{"MassOfKeysThatAreMasked", removed}}, OutputsMutation{{"MassOfOneRow", removed}},
        OutputsMutation{{"MassOfTheFirstPage", {"pages.page(keys.batch, key)", "0"}}, nullptr, 16, 16},
        OutputsMutation{{"SumsOfOtherWarpsReadEarly", removed, {"data race", "uninitialized"}}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::outputs_mutations
