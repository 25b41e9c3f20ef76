// The trace of an emulated device, written to files.
#pragma once

#include <string>
#include <vector>

#include <jit/emulation.h>

#include "output_files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

struct TraceFiles {
  std::string counts, listing;  ///< empty: not wanted

  bool any() const { return !counts.empty() || !listing.empty(); }
};
void add_trace_options(CLI::App& app, TraceFiles& files);
void add_outputs(const TraceFiles& files, OutputFiles& outputs);

/// Writes the files among `outputs`. Throws Error io_error.
void write_traces(const OutputFiles& outputs, const std::vector<LaunchTrace>& launches);

}  // namespace jit::tool
