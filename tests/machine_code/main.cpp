// machine_code: compiles the kernels whose machine code is kept, and says what moved, or keeps what there is now.
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/machine_code/frozen_kernels.h"

namespace {

using namespace jit;
using namespace jit::machine_code;

constexpr const char* usage = R"(usage: machine_code [--renew] [WORD...]
Compiles the kernels of tests/machine_code whose names hold one of the words, or all, and says how their machine code
differs from what is kept for this NVRTC; with words also how to dump it. --renew then keeps what there is now. Exits
with 1 where a kernel differs or does not compile. JIT_ATTENTION_TEMPLATES and JIT_ATTENTION_NVRTC are looked at.
)";

struct Options {
  bool renew = false;
  std::vector<std::string> words;

  bool wants(const std::string& name) const {
    if (words.empty()) return true;
    for (const std::string& word : words) {
      if (name.find(word) != std::string::npos) return true;
    }
    return false;
  }
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--renew") {
      options.renew = true;
    } else if (argument.starts_with("-")) {
      throw std::invalid_argument("unknown argument " + argument);
    } else {
      options.words.push_back(argument);
    }
  }
  return options;
}

// Records of kernels that were not asked for stay, as long as these are in the list.
Records kept(const Records& before, const std::vector<FrozenKernel>& kernels, const Options& options) {
  Records after;
  for (const FrozenKernel& kernel : kernels) {
    const auto old = before.kernels.find(kernel.name);
    if (!options.wants(kernel.name) && old != before.kernels.end()) after.kernels.insert(*old);
  }
  return after;
}

int run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const Context context = machine_code_context();
  const NvrtcLocation compiler = compiler_of(context);
  const std::filesystem::path path = records_path(compiler.version);
  Records before = read_records(path);
  if (before.compiler != compiler.identity) {
    if (!before.compiler.empty())
      fmt::print("{} is of another build of NVRTC: nothing is compared\n", path.string());
    before = {};
  }
  const std::vector<FrozenKernel> all = frozen_kernels();
  std::vector<FrozenKernel> kernels;
  for (const FrozenKernel& kernel : all) {
    if (options.wants(kernel.name)) kernels.push_back(kernel);
  }
  if (kernels.empty()) throw std::invalid_argument("no kernel has such a name");
  const std::vector<Outcome> outcomes = make_all(kernels, context);

  Records after = kept(before, all, options);
  after.compiler = compiler.identity;
  int moved = 0, failed = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto& [record, origin, error] = outcomes[i];
    const std::string& name = kernels[i].name;
    const auto old = before.kernels.find(name);
    if (!error.empty()) {
      ++failed;
      fmt::print("{}: {}\n", name, error);
      if (old != before.kernels.end()) after.kernels.insert(*old);
      continue;
    }
    after.kernels[name] = record;
    const std::string change = old == before.kernels.end() ? "new" : difference(old->second, record);
    if (change.empty()) continue;
    ++moved;
    fmt::print("{}: {}\n", name, change);
    if (!options.words.empty()) fmt::print("  {}\n", origin);
  }
  if (options.renew) write_records(path, after);
  fmt::print("machine_code: {} kernels by NVRTC {}.{}, {} moved, {} failed, {:.1f} s{}\n", kernels.size(),
             compiler.version.major, compiler.version.minor, moved, failed,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
             options.renew ? ", written to " + path.string() : "");
  return failed > 0 || (moved > 0 && !options.renew) ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) try {
  return run(parse(count, arguments));
} catch (const std::invalid_argument& error) {
  fmt::print(stderr, "machine_code: {}\n{}", error.what(), usage);
  return 2;
} catch (const std::exception& error) {
  fmt::print(stderr, "machine_code: {}\n", error.what());
  return 1;
}
