// jit-attention record: records a device's results for Blackwell's new instructions.
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <recorder/record.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "device_choice.h"
#include "input_file.h"
#include "output_files.h"

namespace jit::tool {
namespace {

using conformance::Complaint;

struct RecordOptions {
  std::string device, out, compare;
  bool as_json = false;
};

void print_complaints(const std::vector<Complaint>& complaints) {
  for (const Complaint& complaint : complaints) print("{}: {}\n", complaint.program, complaint.text);
}

nlohmann::ordered_json as_json(const std::vector<Complaint>& complaints) {
  auto list = nlohmann::ordered_json::array();
  for (const Complaint& complaint : complaints)
    list.push_back({{"program", complaint.program}, {"text", complaint.text}});
  return list;
}

void print_answers(const RecordOptions& options, const conformance::Answers& answers,
                   const conformance::Differences& differences, const OutputFiles& outputs) {
  if (options.as_json) {
    print_json({{"device", answers.device},
                {"target", answers.target},
                {"programs", answers.programs},
                {"failed", as_json(answers.failed)},
                {"recorded_on", differences.recorded_on},
                {"different", as_json(differences.programs)},
                {"written", outputs.paths()}});
    return;
  }
  print_complaints(answers.failed);
  print_complaints(differences.programs);
  print("{} programs on {}, {}: {} failed", answers.programs, answers.device, answers.target,
        answers.failed.size());
  if (!options.compare.empty())
    print(", {} differ from {}", differences.programs.size(), differences.recorded_on);
  print("\n");
}

// As ask_device expects it of a device that does not exist.
int ordinal_of(const std::string& device) {
  try {
    return choose_device(device == "cuda" ? "cuda:0" : device).ordinal;
  } catch (const BadInput& error) {
    throw std::invalid_argument(error.what());
  }
}

int run_record(const RecordOptions& options) {
  constexpr std::size_t longest = std::size_t{1} << 28;
  if (options.out.empty() && options.compare.empty())
    throw BadInput("record needs --out FILE, --compare FILE, or both");
  OutputFiles outputs;
  outputs.add("--out", options.out);
  if (!options.out.empty() && !options.compare.empty()) refuse_overwriting({options.out}, {options.compare});
  conformance::Answers answers;
  conformance::Differences differences;
  try {
    const std::string recorded = options.compare.empty() ? "" : read_input(options.compare, longest);
    if (!options.compare.empty()) conformance::check_answers(recorded, options.compare);
    answers = conformance::ask_device([&options] { return ordinal_of(options.device); });
    if (!options.compare.empty()) differences = conformance::differences(answers, recorded, options.compare);
  } catch (const std::invalid_argument& error) {
    throw BadInput(error.what());
  }
  if (const OutputFile* const file = outputs.find("--out"))
    file->write({std::as_bytes(std::span(answers.file))});
  print_answers(options, answers, differences, outputs);
  return answers.failed.empty() && differences.programs.empty() ? status_ok : status_failure;
}

}  // namespace

void add_record(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<RecordOptions>();
  CLI::App* command =
      app.add_subcommand("record",
                         "Run small programs of Blackwell's new instructions and record their results; exit "
                         "status 1 if a program fails or differs from a file");
  add_device_option(*command, options->device);
  command->add_option("--out", options->out, "File for the results")->check(must_not_be_empty);
  command
      ->add_option("--compare", options->compare,
                   "File of another run, such as a GPU's beside --device emulated:sm_100a")
      ->check(must_not_be_empty);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_record(*options); }});
}

}  // namespace jit::tool
