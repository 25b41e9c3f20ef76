#include "cache_binding.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <jit/cache.h>

#include "given.h"
#include "process.h"

namespace jit::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

Cache cache() { return Cache(context_for({})); }

nb::tuple as_tuple(const CachedKernel& kernel) {
  const double last_used = std::chrono::duration<double>(kernel.last_used.time_since_epoch()).count();
  return nb::make_tuple(kernel.key, kernel.bytes, last_used, kernel.facts, kernel.layer, kernel.path,
                        kernel.damaged, kernel.unreadable);
}

nb::list as_list(const std::vector<CachedKernel>& kernels) {
  nb::list result;
  for (const CachedKernel& kernel : kernels) result.append(as_tuple(kernel));
  return result;
}

// Returns work(cache), computed without the interpreter lock.
template <class Work>
auto unlocked(const Work& work) {
  return without_lock([&work, cache = cache()] { return work(cache); });
}

}  // namespace

void bind_cache(nb::module_& module) {
  module.def("cache_directory", [] {
    const Context& context = context_for({});
    return nb::make_tuple(context.cache_directory(), context.cache_reason());
  });
  module.def("cache_entries",
             [] { return as_list(unlocked([](const Cache& cache) { return cache.kernels(); })); });
  module.def("cache_verify",
             [] { return as_list(unlocked([](const Cache& cache) { return cache.damaged_kernels(); })); });
  define(
      module, "cache_prune",
      [](std::uint64_t max_bytes) {
        return unlocked([&](const Cache& cache) { return cache.prune(max_bytes); });
      },
      "max_bytes"_a);
  module.def("cache_clear",
             [] { return unlocked([](const Cache& cache) { return cache.clear().kernels; }); });
  define(
      module, "cache_export",
      [](const std::string& file) {
        return unlocked([&](const Cache& cache) { return cache.export_to(file); });
      },
      "file"_a);
  define(
      module, "cache_import",
      [](const std::string& file) {
        const CacheImport report = unlocked([&](const Cache& cache) { return cache.import_from(file); });
        nb::list damaged;
        for (const std::string& sentence : report.damaged) damaged.append(sentence);
        return nb::make_tuple(report.kernels, damaged);
      },
      "file"_a);
}

}  // namespace jit::python
