// attention(spec) among up to 10,000 specs, and the table that finds them.
#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "bench/bench_support.h"
#include "generator/attention_state.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"

namespace jit::bench {
namespace {

constexpr std::size_t most_real_specs = 100;

Digest random_digest(std::mt19937_64& random) { return {.high = random(), .low = random()}; }

// A context that holds so many specs. A hundred of them at most are real, for each costs the loading of a
// module; the others fill the table.
class ManySpecs {
 public:
  explicit ManySpecs(std::size_t count)
      : context_(memory_only()), real_(std::min(count, most_real_specs), spec_of(128, true)) {
    for (std::size_t i = 0; i < real_.size(); ++i) {
      real_[i].softmax_scale = 0.1f + 0.001f * static_cast<float>(i);  // no part of the kernel: one compile
      attention(real_[i], {}, context_);
    }
    ContextState& shared = *Access::state(context_);
    std::mt19937_64 random(1);
    while (shared.attentions.size() < count) {
      shared.attentions.insert(random_digest(random),
                               std::make_unique<AttentionState>(shared, real_[0], std::nullopt));
    }
  }

  const Context& context() const { return context_; }
  const std::vector<AttentionSpec>& real() const { return real_; }

 private:
  Context context_;
  std::vector<AttentionSpec> real_;
};

// Asks for the real ones in turn.
void dispatch_among(benchmark::State& state) {
  static std::map<std::int64_t, ManySpecs> made;
  const ManySpecs& specs = made.try_emplace(state.range(0), state.range(0)).first->second;
  std::size_t place = 0;
  for (auto _ : state) {
    if (++place == specs.real().size()) place = 0;
    benchmark::DoNotOptimize(attention(specs.real()[place], {}, specs.context()));
  }
}
BENCHMARK(dispatch_among)->ArgName("specs")->Arg(1)->Arg(100)->Arg(10'000)->Unit(benchmark::kNanosecond);

// The look-up alone, for all keys in turn in another order than they were put in.
void dispatch_table_find(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::mt19937_64 random(1);
  std::vector<Digest> keys;
  DispatchTable<int> table;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(random_digest(random));
    table.insert(keys.back(), std::make_unique<const int>(0));
  }
  std::shuffle(keys.begin(), keys.end(), random);
  std::size_t place = 0;
  for (auto _ : state) {
    if (++place == count) place = 0;
    const int* found = table.find(keys[place]);
    if (found == nullptr) state.SkipWithError("a key is missing");
    benchmark::DoNotOptimize(found);
  }
}
BENCHMARK(dispatch_table_find)->ArgName("keys")->Arg(1)->Arg(100)->Arg(10'000)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace jit::bench
