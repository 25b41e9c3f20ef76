// The disk cache with 10 to 10,000 kernels in it: what a process asks for, and the upkeep of the folder. The
// files are in the page cache, as far as it holds them.
#include "bench/bench_support.h"
#include "bench/warm_child.h"
#include "cache/disk_cache.h"
#include "cache/eviction.h"
#include "tests/bench/filled_cache.h"
#include "tests/bench/real_entry.h"

namespace jit::bench {
namespace {

const FilledCache& filled(const benchmark::State& state) {
  return FilledCache::of(static_cast<std::size_t>(state.range(0)));
}

void scaling(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("entries")->RangeMultiplier(10)->Range(10, 10'000);
}

// Walks through all keys, so that no file is the one that was just read.
class Rotation {
 public:
  explicit Rotation(const std::vector<Key>& keys) : keys_(keys) {}
  const Key& next() { return keys_[place_ = (place_ + step) % keys_.size()]; }

 private:
  static constexpr std::size_t step = 7919;  // a prime that divides no power of ten
  const std::vector<Key>& keys_;
  std::size_t place_ = 0;
};

// One validated load of a real kernel's entry, the only one there.
void disk_hit(benchmark::State& state) {
  const TemporaryFolder folder;
  const RealEntry& real = real_entry();
  const Key key(real.fields);
  DiskCache disk({.directory = folder.path()});
  disk.store(key, real.entry);
  for (auto _ : state) {
    const std::optional<Entry> hit = disk.load(key);
    if (!hit) state.SkipWithError("miss");
    benchmark::DoNotOptimize(hit);
  }
  state.counters["cubin_bytes"] = static_cast<double>(real.entry.code.size());
  state.counters["key_bytes"] = static_cast<double>(key.text().size());
}
BENCHMARK(disk_hit)->Unit(benchmark::kMicrosecond);

void cache_hit(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  const DiskCache disk({.directory = cache.path()});
  Rotation keys(cache.keys());
  for (auto _ : state) {
    const std::optional<Entry> hit = disk.load(keys.next());
    if (!hit) state.SkipWithError("miss");
    benchmark::DoNotOptimize(hit);
  }
}
BENCHMARK(cache_hit)->Apply(scaling)->Unit(benchmark::kMicrosecond);

void cache_miss(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  const DiskCache disk({.directory = cache.path()});
  std::vector<Key> absent;
  for (std::size_t i = 0; i < 1000; ++i) absent.push_back(numbered_key(cache.keys().size() + i));
  Rotation keys(absent);
  for (auto _ : state) {
    const std::optional<Entry> hit = disk.load(keys.next());
    if (hit) state.SkipWithError("hit");
    benchmark::DoNotOptimize(hit);
  }
}
BENCHMARK(cache_miss)->Apply(scaling)->Unit(benchmark::kMicrosecond);

// Stores one more entry each time and removes it again, untimed. `fresh`: by a new DiskCache each time, as
// the first compile of a process does it, which looks at the whole folder.
void store_one_more(benchmark::State& state, bool fresh) {
  const FilledCache& cache = filled(state);
  const Key key = numbered_key(cache.keys().size());
  const std::string path = entry_path(cache.path(), key.digest().hex());
  std::optional<DiskCache> disk(std::in_place, DiskCacheOptions{.directory = cache.path()});
  disk->store(key, real_entry().entry);
  for (auto _ : state) {
    state.PauseTiming();
    if (!std::filesystem::remove(path)) state.SkipWithError("the entry was not stored");
    if (fresh) disk.emplace(DiskCacheOptions{.directory = cache.path()});
    state.ResumeTiming();
    disk->store(key, real_entry().entry);
  }
  std::filesystem::remove(path);
}

void cache_store(benchmark::State& state) { store_one_more(state, false); }
BENCHMARK(cache_store)->Apply(scaling)->Unit(benchmark::kMicrosecond)->UseRealTime();

void cache_first_store(benchmark::State& state) { store_one_more(state, true); }
BENCHMARK(cache_first_store)->Apply(scaling)->Unit(benchmark::kMicrosecond)->UseRealTime();

// Opens the folder and loads one entry.
void cache_open(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  Rotation keys(cache.keys());
  for (auto _ : state) {
    const DiskCache disk({.directory = cache.path()});
    const std::optional<Entry> hit = disk.load(keys.next());
    if (!hit) state.SkipWithError("miss");
    benchmark::DoNotOptimize(hit);
  }
}
BENCHMARK(cache_open)->Apply(scaling)->Unit(benchmark::kMicrosecond);

void cache_list(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  const DiskCache disk({.directory = cache.path()});
  for (auto _ : state) {
    if (disk.list().size() != cache.keys().size()) state.SkipWithError("not all entries are listed");
  }
}
BENCHMARK(cache_list)->Apply(scaling)->Unit(benchmark::kMillisecond);

void cache_verify(benchmark::State& state) {
  const DiskCache disk({.directory = filled(state).path()});
  for (auto _ : state) {
    if (!disk.verify().empty()) state.SkipWithError("an entry is damaged");
  }
}
BENCHMARK(cache_verify)->Apply(scaling)->Unit(benchmark::kMillisecond);

// One entry by the first digits of its key, as a person gives them.
void cache_load_by_digest(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  const DiskCache disk({.directory = cache.path()});
  const std::string digits = cache.keys().front().digest().hex().substr(0, 12);
  for (auto _ : state) {
    const std::optional<Entry> hit = disk.load_by_digest(digits);
    if (!hit) state.SkipWithError("miss");
    benchmark::DoNotOptimize(hit);
  }
}
BENCHMARK(cache_load_by_digest)->Apply(scaling)->Unit(benchmark::kMillisecond);

// Nothing has to go.
void cache_prune_nothing(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  DiskCache disk({.directory = cache.path()});
  for (auto _ : state) {
    if (disk.prune(std::uint64_t{1} << 40) != 0) state.SkipWithError("an entry went");
  }
}
BENCHMARK(cache_prune_nothing)->Apply(scaling)->Unit(benchmark::kMillisecond);

// The older half goes.
void cache_prune_half(benchmark::State& state) {
  const FilledCache& cache = filled(state);
  DiskCache disk({.directory = cache.path()});
  std::uint64_t bytes = 0;
  for (const EntryInfo& info : disk.list()) bytes += charged_bytes(info.bytes);
  for (auto _ : state) {
    if (disk.prune(bytes / 2) != cache.keys().size() / 2) state.SkipWithError("not half of the entries went");
    state.PauseTiming();
    cache.fill();
    state.ResumeTiming();
  }
}
BENCHMARK(cache_prune_half)->Apply(scaling)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);

// warm_process with as many other kernels in the folder.
void warm_process_among(benchmark::State& state) {
  const FilledCache& cache = FilledCache::of(static_cast<std::size_t>(state.range(0)));
  const CompiledKernel kernel = compile(child_spec(), arch, {}, Context(cached_in(cache.path())));
  start_processes(state, cache.path());
  std::filesystem::remove(entry_path(cache.path(), kernel.key()));
}
BENCHMARK(warm_process_among)->Apply(scaling)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace jit::bench
