#include "trace_files.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"

namespace jit::tool {

using Json = nlohmann::ordered_json;

std::vector<std::string> TraceFiles::paths() const {
  std::vector<std::string> paths;
  for (const std::string& path : {counts, listing}) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

void add_trace_options(CLI::App& app, TraceFiles& files) {
  app.add_option("--counts", files.counts,
                 "File for what an emulated device counted and found: JSON, one object for each launch");
  app.add_option("--listing", files.listing,
                 "File for the kernel's PTX with the counts of each line, on an emulated device");
}

void write_traces(const TraceFiles& files, const std::vector<LaunchTrace>& launches) {
  if (!files.counts.empty()) {
    Json json = Json::array();
    for (const LaunchTrace& launch : launches) {
      json.push_back({{"kernel", launch.kernel()},
                      {"findings", launch.findings()},
                      {"warp_instructions", launch.warp_instructions()},
                      {"seconds", launch.seconds()},
                      {"counts", Json::parse(launch.counts_json())}});
    }
    write_file(files.counts, json.dump(2) + "\n");
  }
  if (!files.listing.empty()) {
    std::string text;
    for (const LaunchTrace& launch : launches) text += launch.listing();
    write_file(files.listing, text);
  }
}

}  // namespace jit::tool
