// What an emulated device did, as files.
#pragma once

#include <string>
#include <vector>

#include <jit/emulation.h>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct TraceFiles {
  std::string counts, listing;  ///< empty: not wanted

  std::vector<std::string> paths() const;
};
void add_trace_options(CLI::App& app, TraceFiles& files);

/// Throws Error io_error.
void write_traces(const TraceFiles& files, const std::vector<LaunchTrace>& launches);

}  // namespace jit::tool
