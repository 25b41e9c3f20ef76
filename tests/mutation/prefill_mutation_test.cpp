// Mutations of forward_wgmma where lengths are read on the device: each must be noticed.
#include <optional>
#include <vector>

#include "tests/mutation/template_mutation.h"

namespace jit::testing::prefill_mutations {
namespace {

/// Requests of one length, which the kernel does not know: varlen queries over varlen keys or over pages.
struct Requests {
  Subject subject;
  int page_size = 0;  ///< 0: keys are varlen, too
};

// More work tiles than an H100 has multiprocessors: blocks look for several. Tiles reach over several requests.
const Requests varlen = {{.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2",
                          .batch = 40,
                          .heads = 4,
                          .seqlen_q = 20,
                          .seqlen_kv = 40,
                          .launches = 2}};
// Symptoms that need blocks to meet show in one of many launches.
const Requests varlen_often = [] {
  Requests requests = varlen;
  requests.subject.launches = 12;
  return requests;
}();
// The first queries see no key: their tiles are of the second part of the list.
const Requests keyless = {{.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2",
                           .batch = 2,
                           .heads = 2,
                           .seqlen_q = 200,
                           .seqlen_kv = 60}};
// Behind the last key of the only request lie two rows of poison, in a page that is its own.
const Requests pages = {{.config = "family=forward_wgmma tile_q=64 tile_kv=64 stages_q=2 stages_v=2",
                         .mask = "none",
                         .heads = 1,
                         .seqlen_q = 70,
                         .seqlen_kv = 110,
                         .rows_behind = 2},
                        16};

/// The call of a run by lengths, which lie in `numbers`.
class LengthArguments {
 public:
  LengthArguments(const Requests& requests, const AttentionArguments& dense) : arguments(dense) {
    const Subject& subject = requests.subject;
    for (int i = 0; i <= subject.batch; ++i) numbers_.push_back(i * subject.seqlen_q);
    for (int i = 0; i <= subject.batch; ++i) numbers_.push_back(i * subject.seqlen_kv);
    for (int i = 0; i < subject.batch; ++i) numbers_.push_back(subject.seqlen_kv);
    const int room = subject.seqlen_kv + subject.rows_behind;
    const int pages = requests.page_size == 0 ? 0 : room / requests.page_size;
    for (int i = 0; i < subject.batch * pages; ++i) numbers_.push_back(i);
    memory_.emplace(0, numbers_.size() * sizeof(int));
    memory_->upload(numbers_.data(), numbers_.size() * sizeof(int));

    arguments.cu_seqlens_q = take(subject.batch + 1);
    make_varlen(arguments.q);
    make_varlen(arguments.o);
    const TensorView boundaries = take(subject.batch + 1), lengths = take(subject.batch);
    if (pages == 0) {
      arguments.cu_seqlens_k = boundaries;
      make_varlen(arguments.k);
      make_varlen(arguments.v);
    } else {
      arguments.seqused_k = lengths;
      arguments.page_table =
          TensorView::dense(take(subject.batch * pages).data, DType::int32, {subject.batch, pages});
      for (TensorView* view : {&arguments.k, &arguments.v}) {
        view->shape[0] = subject.batch * pages;
        view->shape[1] = requests.page_size;
        view->strides[0] = requests.page_size * view->strides[1];
      }
    }
  }

  AttentionArguments arguments;

 private:
  TensorView take(int count) {
    int* const first = static_cast<int*>(memory_->data()) + taken_;
    taken_ += count;
    return TensorView::dense(first, DType::int32, {count});
  }

  // (batch, seqlen, heads, head_dim) without gaps to (batch · seqlen, heads, head_dim).
  static void make_varlen(TensorView& view) {
    view.shape[1] *= view.shape[0];
    for (int i = 0; i + 1 < view.rank; ++i) {
      view.shape[i] = view.shape[i + 1];
      view.strides[i] = view.strides[i + 1];
    }
    --view.rank;
  }

  std::vector<int> numbers_;
  std::optional<DeviceBuffer> memory_;
  int taken_ = 0;
};

std::string noticed(const TemplateMutation* mutation, const Requests& requests) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  AttentionCase problem = case_of(requests.subject);
  problem.with_lse = false;
  AttentionRun run(problem);
  AttentionSpec spec = problem.spec;
  spec.sequences_q = SequenceKind::varlen;
  spec.sequences_kv = requests.page_size == 0 ? SequenceKind::varlen : SequenceKind::paged;
  spec.page_size = requests.page_size;
  const LengthArguments lengths(requests, run.arguments());
  try {
    const Attention kernel = attention(spec, parse_config(requests.subject.config), context);
    for (int launch = 0; launch < requests.subject.launches; ++launch) {
      run.poison_outputs();
      kernel(lengths.arguments);
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check().failure;
}

UNMUTATED_TEST(Prefill, IsRightUnmutated) {
  for (const Requests& requests : {varlen, keyless, pages})
    EXPECT_EQ(noticed(nullptr, requests), "") << requests.subject.config;
}

struct PrefillMutation {
  TemplateMutation mutation;
  Requests requests;
};
std::ostream& operator<<(std::ostream& out, const PrefillMutation& mutation) {
  return out << mutation.mutation;
}

class PrefillMutationTest : public MutationTestOf<PrefillMutation> {};

TEST_P(PrefillMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam().mutation;
  expect_caught(mutation, noticed(&mutation, GetParam().requests));
}

INSTANTIATE_TEST_SUITE_P(
    Prefill, PrefillMutationTest,
    ::testing::Values(
        PrefillMutation{
            {"BoxesOfQueriesDoNotEnd", {"work.q.length $,", "rows_per_warpgroup,"}, {"data race"}, {}, true},
            varlen},
        PrefillMutation{{"BoxesOfKeysDoNotEnd",
                         {"? $ :", "? Traits::box_rows :"},
                         {"uninitialized", "not a number"},
                         {},
                         true},
                        pages},
        PrefillMutation{{"KeyOfLane_FirstPage", {" + lane_id$,", ","}}, pages},
        PrefillMutation{{"BoxesBesideTheirPlaces", {"index", "(index ^ 1)"}}, pages},
        PrefillMutation{{"OneSequenceOf32Less", {");", " + 1);"}}, varlen},
        PrefillMutation{{"NoSecondPart", {"= 2;", "= 1;"}}, keyless},
        PrefillMutation{{"SecondPartFromTheBeginning", {" + $,", ","}, {"data race"}, {}, true}, keyless},
        PrefillMutation{{"SchedulerSetsCounterBack_Never", removed}, varlen},
        PrefillMutation{{"SchedulerSetsCounterBack_TooEarly", {"- 1", "- 2"}, {"data race"}, {}, true},
                        varlen_often},
        PrefillMutation{{"LengthsAreNotPassedOn", removed, {"uninitialized"}}, varlen}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::prefill_mutations
