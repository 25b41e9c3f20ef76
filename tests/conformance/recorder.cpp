// conformance_recorder: runs the micro-kernels on a GPU and writes down what they gave.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <jit/device.h>
#include <nlohmann/json.hpp>

#include "emulator/micro_kernels/micro_kernel.h"
#include "emulator/micro_kernels/recording.h"
#include "emulator/tests/conformance/families/families.h"
#include "recorder/micro_worker.h"

namespace {

using namespace jit::conformance;

constexpr const char* usage =
    "usage: conformance_recorder FOLDER [--only REGEX] [--skip REGEX] [--patience SECONDS]\n"
    "       conformance_recorder --list\n"
    "       conformance_recorder --write-ptx FOLDER\n"
    "Runs every micro-kernel on the first GPU and writes FOLDER/<family>.bin and FOLDER/about.json. What "
    "FOLDER\n"
    "holds of kernels that are left out stays, as long as they have not changed; the rest is dropped.\n";

struct Options {
  std::string folder;
  std::string ptx_folder;
  std::optional<std::regex> only, skip;
  std::chrono::seconds patience{30};
  bool list = false;
  std::string command;
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 0; i < count; ++i) options.command += std::string(i == 0 ? "" : " ") + arguments[i];
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const auto value = [&] {
      if (++i == count) throw std::invalid_argument(argument + " wants a value");
      return std::string(arguments[i]);
    };
    if (argument == "--list") {
      options.list = true;
    } else if (argument == "--write-ptx") {
      options.ptx_folder = value();
    } else if (argument == "--only") {
      options.only = std::regex(value());
    } else if (argument == "--skip") {
      options.skip = std::regex(value());
    } else if (argument == "--patience") {
      options.patience = std::chrono::seconds(std::stoi(value()));
    } else if (argument.starts_with("-") || !options.folder.empty()) {
      throw std::invalid_argument("unknown argument " + argument);
    } else {
      options.folder = argument;
    }
  }
  if (options.folder.empty() && options.ptx_folder.empty() && !options.list)
    throw std::invalid_argument("no folder");
  return options;
}

void list(const std::vector<Family>& families) {
  std::size_t kernels = 0, bytes = 0;
  for (const Family& family : families) {
    std::size_t family_bytes = 0;
    for (const MicroKernel& kernel : family.kernels) {
      fmt::print("{} {} ({} bytes)\n", family.name, kernel.name, kernel.output.bytes());
      family_bytes += kernel.output.bytes();
    }
    fmt::print("{}: {} kernels, {} bytes of output\n", family.name, family.kernels.size(), family_bytes);
    kernels += family.kernels.size();
    bytes += family_bytes;
  }
  fmt::print("{} kernels, {} bytes of output\n", kernels, bytes);
}

// A file for each kernel, for tools that read PTX.
void write_ptx(const std::vector<Family>& families, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const Family& family : families) {
    int number = 0;
    for (const MicroKernel& kernel : family.kernels) {
      std::ofstream(folder / fmt::format("{}.{:04}.ptx", family.name, number++))
          << "// " << kernel.name << "\n"
          << kernel.ptx;
    }
  }
}

void write_about(const std::filesystem::path& folder, const std::string& device, const std::string& command) {
  const nlohmann::ordered_json about = {{"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))},
                                        {"device", device},
                                        {"command", command}};
  std::ofstream(folder / "about.json") << about.dump(2) << "\n";
}

int open_gpu() {
  jit::use_device("cuda");
  return 0;
}

int record(const std::vector<Family>& families, const Options& options) {
  const std::filesystem::path folder = options.folder;
  std::filesystem::create_directories(folder);
  const auto is_wanted = [&](const std::string& name) {
    return (!options.only || std::regex_search(name, *options.only)) &&
           (!options.skip || !std::regex_search(name, *options.skip));
  };
  std::vector<std::string> failures;
  for (const Family& family : families) {
    const std::filesystem::path path = folder / (family.name + ".bin");
    const Recordings before = read_recordings(path);
    Recordings after;
    std::vector<const MicroKernel*> wanted;
    for (const MicroKernel& kernel : family.kernels) {
      const auto old = before.find(kernel.name);
      if (old != before.end() && is_of(old->second, kernel)) after.insert(*old);
      if (is_wanted(kernel.name)) wanted.push_back(&kernel);
    }
    const auto start = std::chrono::steady_clock::now();
    const auto done = [&](std::size_t index, MicroResult result) {
      const MicroKernel& kernel = *wanted[index];
      if (result.error.empty()) {
        after[kernel.name] = {hash(kernel.ptx), hash_of_contents(kernel), std::move(result.output)};
      } else {
        after.erase(kernel.name);
        failures.push_back(fmt::format("{} {}: {}", family.name, kernel.name, result.error));
        fmt::print(stderr, "FAILED {}\n", failures.back());
      }
    };
    const std::string device = wanted.empty() ? "" : run_in_worker(open_gpu, wanted, options.patience, done);
    write_recordings(path, after);
    if (!device.empty()) write_about(folder, device, options.command);
    fmt::print("{}: {} of {} recorded, {} in the file, {:.1f} s\n", family.name, wanted.size(),
               family.kernels.size(), after.size(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::fflush(stdout);
  }
  fmt::print(stderr, "{} failures\n", failures.size());
  return failures.empty() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) try {
  const Options options = parse(count, arguments);
  const std::vector<Family> families = all_families();
  if (options.list) list(families);
  if (!options.ptx_folder.empty()) write_ptx(families, options.ptx_folder);
  return options.folder.empty() ? 0 : record(families, options);
} catch (const std::invalid_argument& error) {
  fmt::print(stderr, "conformance_recorder: {}\n{}", error.what(), usage);
  return 2;
} catch (const std::exception& error) {
  fmt::print(stderr, "conformance_recorder: {}\n", error.what());
  return 1;
}
