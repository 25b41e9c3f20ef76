#include "trace_files.h"

#include <span>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"

namespace jit::tool {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* counts_option = "--counts";
constexpr const char* listing_option = "--listing";

void write_text(const OutputFile& file, const std::string& text) {
  file.write({std::as_bytes(std::span(text))});
}

}  // namespace

void add_trace_options(CLI::App& app, TraceFiles& files) {
  app.add_option(counts_option, files.counts,
                 "File for what an emulated device counted and found: JSON, one object for each launch")
      ->check(must_not_be_empty);
  app.add_option(listing_option, files.listing,
                 "File for the kernel's PTX with the counts of each line, on an emulated device")
      ->check(must_not_be_empty);
}

void add_outputs(const TraceFiles& files, OutputFiles& outputs) {
  outputs.add(counts_option, files.counts);
  outputs.add(listing_option, files.listing);
}

void write_traces(const OutputFiles& outputs, const std::vector<LaunchTrace>& launches) {
  if (const OutputFile* counts = outputs.find(counts_option)) {
    Json json = Json::array();
    for (const LaunchTrace& launch : launches) {
      json.push_back({{"kernel", launch.kernel()},
                      {"findings", launch.findings()},
                      {"warp_instructions", launch.warp_instructions()},
                      {"seconds", launch.seconds()},
                      {"counts", Json::parse(launch.counts_json())}});
    }
    write_text(*counts, json.dump(2) + "\n");
  }
  if (const OutputFile* listing = outputs.find(listing_option)) {
    std::string text;
    for (const LaunchTrace& launch : launches) text += launch.listing();
    write_text(*listing, text);
  }
}

}  // namespace jit::tool
