#include "tests/bench/real_entry.h"

#include <stdexcept>

#include "bench/bench_support.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"

namespace jit::bench {

const RealEntry& real_entry() {
  static const RealEntry real = [] {
    const TemporaryFolder folder;
    const Context context(cached_in(folder.path()));
    const CompiledKernel kernel = compile(spec_of(128, false), arch, {}, context);
    std::optional<Entry> entry = Access::state(context)->disk.load_by_digest(kernel.key());
    if (!entry) throw std::runtime_error("the kernel that was compiled is not in the cache");
    std::optional<std::vector<KeyField>> fields = parse_canonical_text(entry->key_text);
    if (!fields) throw std::runtime_error("the entry's key is not in canonical form");
    fields->erase(fields->begin());  // the schema version
    return RealEntry{std::move(*fields), std::move(*entry)};
  }();
  return real;
}

}  // namespace jit::bench
