// Mutations of lists of keys: an entry that counts too much, or too little, must be noticed.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include <jit/key_union.h>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::key_lists_mutations {
namespace {

constexpr int entries = 12;
constexpr std::array<int, 3> begins_q = {0, 4, 7}, begins_k = {0, 90, 130};
constexpr int rows_q = 8;  // the last one is no sequence's

struct Problem {
  const char* config;
  int block;
  int heads_kv = 1;
  int queries = 1;
  bool is_latent = false;
  bool is_causal = false;
  bool are_keys = false;   ///< whether all entries name keys
  bool is_stored = false;  ///< whether latents are rows of latent_528
  int ratio = 4;           ///< query heads of a KV head

  int head_dim() const { return is_stored ? 512 : 128; }
};

// Entries of all kinds, by a rule.
std::int32_t entry(const Problem& problem, int list, int head, int i) {
  const int row = list * problem.queries, keys = row < begins_q[1] ? 90 : 40;
  const int blocks = (keys + problem.block - 1) / problem.block;
  const int value = (list * 7 + head * 5 + i * 11) % (problem.are_keys ? keys / problem.block : blocks + 3);
  if (problem.are_keys) return value;
  if (i == 4) return std::numeric_limits<std::int32_t>::min();
  if (i == 5)  // of which the first key is 2^32
    return problem.block > 1 ? static_cast<std::int32_t>((std::int64_t{1} << 32) / problem.block)
                             : std::numeric_limits<std::int32_t>::max();
  return i % 4 == 3 ? -1 : value;
}
int count(const Problem& problem, int list, int head) {
  return problem.are_keys ? entries : list == 1 ? entries + 3 : (list * 5 + head * 4) % entries + 1;
}
// The bits of the queries that share a list.
unsigned members(int list, int i) { return static_cast<unsigned>(list * 3 + i * 5 + 1); }

// A power of two where scales alone tell 8-bit rows apart.
double value_of(const Problem& problem, int key) { return problem.is_stored ? 1 << key % 8 : 1 + key; }

// Keys that a row of q sees of a KV head, and the sum of their values.
struct Seen {
  int keys = 0;
  double sum = 0;
};
Seen seen(const Problem& problem, int row, int head) {
  Seen result;
  const int list = row / problem.queries, first = list * problem.queries;
  const int sequence = first < begins_q[1] ? 0 : 1;
  if (first >= begins_q[2] || row >= begins_q[sequence + 1]) return result;
  const int length = begins_k[sequence + 1] - begins_k[sequence],
            queries = begins_q[sequence + 1] - begins_q[sequence];
  const int last = row - begins_q[sequence] + length - queries;
  for (int i = 0; i < std::min(entries, count(problem, list, head)); ++i) {
    const std::int64_t listed = entry(problem, list, head, i);
    if (problem.queries > 1 && (members(list, i) >> (row - first) & 1) == 0) continue;
    for (std::int64_t key = listed * problem.block; key < (listed + 1) * problem.block; ++key) {
      if (listed < 0 || key >= length || (problem.is_causal && key > last)) continue;
      ++result.keys;
      result.sum += value_of(problem, begins_k[sequence] + static_cast<int>(key));
    }
  }
  return result;
}

DeviceTensor ints(std::vector<std::int64_t> shape, const std::function<std::int64_t(std::int64_t)>& value) {
  DeviceTensor tensor(DType::int32, std::move(shape));
  tensor.fill([&](std::int64_t i) { return static_cast<double>(value(i)); });
  tensor.upload();
  return tensor;
}

// Keys, all columns of a row alike: ones of e4m3 in latent_528, behind which their scales are.
DeviceTensor keys_of(const Problem& problem) {
  constexpr int row_bytes = 528, one = 0x38, exponent_bias = 127;
  const int columns = problem.is_stored ? row_bytes : problem.head_dim();
  DeviceTensor k(problem.is_stored ? DType::uint8 : DType::bf16, {begins_k[2], problem.heads_kv, columns});
  k.fill([&](std::int64_t i) {
    const double value = value_of(problem, static_cast<int>(i / columns / problem.heads_kv));
    if (!problem.is_stored) return value;
    return i % columns < problem.head_dim() ? one : exponent_bias + std::log2(value);
  });
  k.upload();
  return k;
}

// Queries are 0: a row of o is the mean of the values that are seen, LSE the logarithm of their number.
std::string noticed_of(const TemplateMutation* mutation, const Problem& problem) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const int ratio = problem.ratio, heads = problem.heads_kv * ratio,
            lists = (rows_q + problem.queries - 1) / problem.queries;
  const int head_dim = problem.head_dim();
  DeviceTensor q(DType::bf16, {rows_q, heads, head_dim});
  q.fill([](std::int64_t) { return 0.0; });
  q.upload();
  const DeviceTensor k = keys_of(problem);
  DeviceTensor o(DType::bf16, {rows_q, heads, head_dim}), lse(DType::fp32, {heads, rows_q});
  const DeviceTensor key_lists = ints({lists, problem.heads_kv, entries}, [&](std::int64_t i) {
    const auto at = static_cast<int>(i);
    return entry(problem, at / entries / problem.heads_kv, at / entries % problem.heads_kv, at % entries);
  });
  const DeviceTensor key_counts = ints({lists, problem.heads_kv}, [&](std::int64_t i) {
    return count(problem, static_cast<int>(i) / problem.heads_kv, static_cast<int>(i) % problem.heads_kv);
  });
  const DeviceTensor key_members = ints({lists, problem.heads_kv, entries}, [&](std::int64_t i) {
    return members(static_cast<int>(i) / entries / problem.heads_kv, static_cast<int>(i) % entries);
  });
  const DeviceTensor cu_seqlens_q =
                         ints({3}, [](std::int64_t i) { return begins_q[static_cast<std::size_t>(i)]; }),
                     cu_seqlens_k =
                         ints({3}, [](std::int64_t i) { return begins_k[static_cast<std::size_t>(i)]; });
  AttentionSpec spec{.head_dim = head_dim,
                     .gqa_ratio = ratio,
                     .sequences_q = SequenceKind::varlen,
                     .sequences_kv = SequenceKind::varlen,
                     .values_in_keys = problem.is_latent,
                     .list_block = problem.block,
                     .list_queries = problem.queries};
  if (problem.is_causal) spec.mask = mask::causal();
  if (problem.is_stored) spec.kv_dtype = DType::latent_528;
  AttentionArguments arguments{.q = q.view(), .k = k.view(), .o = o.view(), .lse = lse.view()};
  if (!problem.is_latent) arguments.v = k.view();
  if (problem.is_stored) arguments.k.dtype = DType::latent_528;
  arguments.tensors = {{"key_lists", key_lists.view()}, {"key_counts", key_counts.view()}};
  if (problem.queries > 1) arguments.tensors.add({"key_members", key_members.view()});
  arguments.cu_seqlens_q = cu_seqlens_q.view();
  arguments.cu_seqlens_k = cu_seqlens_k.view();
  arguments.num_splits = 1;  // so that a block has several tiles
  try {
    attention(spec, parse_config(problem.config), context)(arguments);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  o.download();
  lse.download();
  for (int row = 0; row < rows_q; ++row) {
    for (int head = 0; head < heads; ++head) {
      const Seen expected = seen(problem, row, head / ratio);
      const double got_lse = lse.get({head, row}), got = o.get({row, head, 77});
      const double mean = expected.keys > 0 ? expected.sum / expected.keys : 0;
      if (!(std::exp(got_lse) - expected.keys < 1e-3 && std::exp(got_lse) - expected.keys > -1e-3))
        return fmt::format("row {} of head {} sees {} keys, not {}", row, head, std::exp(got_lse),
                           expected.keys);
      if (!(std::abs(got - mean) <= mean / 128))
        return fmt::format("row {} of head {} has {}, not {}", row, head, got, mean);
    }
  }
  return "";
}

// A problem of rows that list entries of two windows, some of them alike.
std::string noticed_of_union(const TemplateMutation* mutation) {
  constexpr int rows = 3, queries = 2, limit = 66000, room = 2 * entries;
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const auto listed = [](int row, int i) { return (i % 3 == 0 ? 65900 : 0) + i * 7 - row % 2 * (i % 2); };
  const DeviceTensor indices = ints({rows, 1, entries}, [&](std::int64_t i) {
    return listed(static_cast<int>(i) / entries, static_cast<int>(i) % entries);
  });
  DeviceTensor lists(DType::int32, {2, 1, room}), bits(DType::int32, {2, 1, room}),
      counts(DType::int32, {2, 1});
  try {
    key_union({.queries = queries}, context)({.indices = indices.view(),
                                              .lists = lists.view(),
                                              .members = bits.view(),
                                              .list_counts = counts.view(),
                                              .limit = limit});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  for (DeviceTensor* output : {&lists, &bits, &counts}) output->download();
  for (int list = 0; list < 2; ++list) {
    std::map<int, int> expected;
    for (int row = list * queries; row < std::min(rows, (list + 1) * queries); ++row)
      for (int i = 0; i < entries; ++i) expected[listed(row, i)] |= 1 << row % queries;
    if (counts.get({list, 0}) != static_cast<double>(expected.size()))
      return fmt::format("list {} has {} entries, not {}", list, counts.get({list, 0}), expected.size());
    int place = 0;
    for (const auto& [entry, own] : expected) {
      if (lists.get({list, 0, place}) != entry || bits.get({list, 0, place}) != own)
        return fmt::format("list {} has {} at {}, not {}", list, lists.get({list, 0, place}), place, entry);
      ++place;
    }
  }
  return "";
}

constexpr const char* no_wait = "has no griddepcontrol.wait";
constexpr const char* by_rows = "family=forward_mla_wgmma stages=2 copies=cp_async";
constexpr const char* by_pairs = "family=forward_mla_wgmma stages=2 copies=cp_async pair=true";
constexpr const char* by_splits = "family=forward_split_kv key_warps=1 tile_kv=32 stages=2";
constexpr Problem tokens{.config = by_rows, .block = 1, .is_latent = true};
constexpr Problem shared{.config = by_rows, .block = 8, .queries = 2, .is_latent = true, .are_keys = true};
constexpr Problem long_lists{.config = by_rows, .block = 48, .is_latent = true};  // of several tiles
constexpr Problem stored{.config = by_rows, .block = 48, .is_latent = true, .is_stored = true};
constexpr Problem stored_in_pairs{
    .config = by_pairs, .block = 16, .is_latent = true, .is_stored = true, .ratio = 128};
constexpr Problem blocks{.config = by_splits, .block = 16, .heads_kv = 2};
constexpr Problem causal{.config = by_splits, .block = 16, .heads_kv = 2, .is_causal = true};
constexpr Problem wide_blocks{.config = by_splits,
                              .block = 64,
                              .heads_kv = 2,
                              .queries = 2,
                              .is_causal = true};  // a tile is of one entry
constexpr Problem cut_blocks{.config = by_splits, .block = 64};

struct ListMutation {
  TemplateMutation mutation;
  std::optional<Problem> problem = {};  ///< none: a union
};
std::ostream& operator<<(std::ostream& out, const ListMutation& subject) { return out << subject.mutation; }

class KeyListsMutationTest : public MutationTestOf<ListMutation> {};

TEST_P(KeyListsMutationTest, IsCaught) {
  const auto& [mutation, problem] = GetParam();
  const std::string text = problem ? noticed_of(&mutation, *problem) : noticed_of_union(&mutation);
  // A kernel without its only wait is not even launched.
  if (mutation.caught_by == std::vector{no_wait}) {
    EXPECT_THAT(text, ::testing::HasSubstr(no_wait));
  } else {
    expect_caught(mutation, text);
  }
}

UNMUTATED_TEST(KeyLists, AreRightUnmutated) {
  for (const Problem& problem :
       {tokens, shared, long_lists, stored, stored_in_pairs, blocks, causal, wide_blocks, cut_blocks})
    EXPECT_EQ(noticed_of(nullptr, problem), "") << problem.config << " " << problem.block;
  EXPECT_EQ(noticed_of_union(nullptr), "");
}

INSTANTIATE_TEST_SUITE_P(
    KeyLists, KeyListsMutationTest,
    ::testing::Values(
        ListMutation{{"ListLongerThanItIs", {"minimum(count, tensors[slot].last_size)", "count"}}, blocks},
        ListMutation{{"EntriesOfOtherHeads", removed}, blocks},
        ListMutation{{"NegativeEntries", {"entry < 0 || ", ""}}, blocks},
        ListMutation{{"NegativeEntries_LargeOnes", {" || entry >= most_entries", ""}}, blocks},
        ListMutation{{"EntriesBehindTheSequence",
                      {"position < keys<Config>(params, owner) ? position : -1", "position"},
                      {"out of bounds", "data race"},
                      {},
                      true},
                     tokens},
        ListMutation{{"TilesOfListsAreFull", removed}, blocks},
        ListMutation{{"TilesWithoutMembersAreFull", removed}, shared},
        ListMutation{{"KeysThatAreNone", removed}, blocks},
        ListMutation{{"KeysOfOtherMembers", removed}, shared},
        ListMutation{{"KeysOfRowsBehindTheSequence", {"place.query < owner.queries", "true"}}, shared},
        ListMutation{{"MasksOfPlacesInLists", {"mask.keeps(position)", "mask.keeps(position / 2)"}}, causal},
        ListMutation{{"EntriesOfOtherMembers", {"(seen_by >> query & 1) != 0", "true"}}, wide_blocks},
        ListMutation{{"MasksOfEntries", {"if constexpr (!is_same<Mask, NoMask>)", "if (false)"}},
                     wide_blocks},
        ListMutation{{"EntriesOfRowsBehindTheSequence", {"place.query < owner.queries &&", ""}}, wide_blocks},
        ListMutation{{"CutEntriesAreFull", removed}, cut_blocks},
        ListMutation{{"CutEntriesAreSeen", {"minimum(list.end, kept.end) - first", "Config::tile_kv"}},
                     cut_blocks},
        ListMutation{
            {"ListWordsOfOneStage", {"stage * Traits::list_words", "0 * Traits::list_words"}, {"data race"}},
            long_lists},
        ListMutation{{"LatentsOverThoseThatAreMultiplied", removed, {"data race", "access in flight"}},
                     stored},
        ListMutation{{"LatentsWithoutProxyFence", removed, {"proxy"}}, stored},
        ListMutation{{"OwnQueriesWithoutProxyFence", removed, {"proxy"}}, stored},
        ListMutation{{"LatentsReadBeforeTheyCame",
                      {"stages - 1", "stages"},
                      {"access in flight", "uninitialized", "data race"}},
                     stored},
        ListMutation{{"LatentsOfOtherLanesReadEarly", removed, {"data race", "access in flight"}}, stored},
        ListMutation{{"StoredRowsOverThoseThatAreRead", removed, {"data race", "access in flight"}}, stored},
        ListMutation{{"RowsOverThoseOfThePeer",
                      {"cluster_rank() ^ 1", "cluster_rank()"},
                      {"data race", "access in flight", "mbarrier", "deadlock"},
                      {},
                      true},
                     stored_in_pairs},
        ListMutation{{"ScoresDoNotWaitForThePeersLatents",
                      removed,
                      {"data race", "access in flight", "uninitialized", "mbarrier"},
                      {},
                      true},
                     stored_in_pairs},
        ListMutation{{"RowsOfThePeerWithoutProxyFence", removed, {"proxy"}}, stored_in_pairs},
        ListMutation{{"BarriersOfThePeerAreNotThereYet",
                      {"cluster_sync()", "__syncthreads()"},
                      {"data race", "barrier", "uninitialized"},
                      {},
                      true},
                     stored_in_pairs},
        ListMutation{{"BlocksEndBeforeTheirPeers", removed, {"ended", "exited", "mbarrier"}, {}, true},
                     stored_in_pairs},
        ListMutation{{"BitsSetBeforeTheyAreCleared", removed, {"data race"}}},
        ListMutation{{"EntriesCountedBeforeTheirBits", removed, {"data race"}}},
        ListMutation{{"PlacesBeforeCounts", removed, {"data race"}}},
        ListMutation{{"NextWindowClearedUnderThisOne", removed, {"data race"}}},
        ListMutation{{"UnionOfListsThatAreNotThere", removed, {no_wait}}},
        ListMutation{{"RowsOfKeysThatAreNone", {" && at >= 0", ""}, {"out of bounds"}}, blocks}));

}  // namespace
}  // namespace jit::testing::key_lists_mutations
