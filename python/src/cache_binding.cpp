#include "cache_binding.h"

#include <chrono>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <jit/error.h>
#include <nanobind/stl/string.h>

#include "generator/context_state.h"
#include "process.h"

namespace jit::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

ContextState& state() { return *context_for({}).state(); }

ContextState& writable_state() {
  ContextState& context = state();
  if (!context.disk.writable()) {
    const std::string& refusal = context.disk.refusal();
    throw Error(
        ErrorCode::io_error, "cache", "directory",
        fmt::format("there is no cache folder: {}", refusal.empty() ? context.directory.reason : refusal));
  }
  return context;
}

nb::tuple as_tuple(const EntryInfo& entry) {
  const double last_used = std::chrono::duration<double>(entry.last_used.time_since_epoch()).count();
  return nb::make_tuple(entry.digest, entry.bytes, last_used, entry.metadata, entry.layer, entry.path,
                        entry.damaged);
}

nb::list as_list(const std::vector<EntryInfo>& entries) {
  nb::list result;
  for (const EntryInfo& entry : entries) result.append(as_tuple(entry));
  return result;
}

// Runs `work` on the context's state without the interpreter lock.
template <class Work>
auto unlocked(ContextState& context, const Work& work) {
  return without_lock([&] { return work(context); });
}

}  // namespace

void bind_cache(nb::module_& module) {
  module.def("cache_directory", [] {
    const Context& context = context_for({});
    return nb::make_tuple(context.cache_directory(), context.cache_reason());
  });
  module.def("cache_entries", [] {
    return as_list(unlocked(state(), [](ContextState& context) { return context.disk.list(); }));
  });
  module.def("cache_verify", [] {
    return as_list(unlocked(state(), [](ContextState& context) { return context.disk.verify(); }));
  });
  module.def(
      "cache_prune",
      [](std::uint64_t max_bytes) {
        return unlocked(writable_state(),
                        [&](ContextState& context) { return context.disk.prune(max_bytes); });
      },
      "max_bytes"_a);
  module.def("cache_clear", [] {
    return unlocked(writable_state(), [](ContextState& context) {
      const std::size_t kernels = context.disk.clear();
      context.tuning.clear();
      return kernels;
    });
  });
  module.def(
      "cache_export",
      [](const std::string& file) {
        return unlocked(state(), [&](ContextState& context) { return context.disk.export_to(file); });
      },
      "file"_a);
  module.def(
      "cache_import",
      [](const std::string& file) {
        const ImportReport report =
            unlocked(writable_state(), [&](ContextState& context) { return context.disk.import_from(file); });
        nb::list damaged;
        for (const std::string& sentence : report.damaged) damaged.append(sentence);
        return nb::make_tuple(report.imported, damaged);
      },
      "file"_a);
}

}  // namespace jit::python
