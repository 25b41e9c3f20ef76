// jit-attention: the library from the command line.
#include <cstdio>
#include <new>

#include <fmt/format.h>
#include <jit/error.h>
#include <CLI/CLI.hpp>

#include "command.h"

namespace jit::tool {
namespace {

int status_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::invalid_spec:
    case ErrorCode::invalid_argument:
    case ErrorCode::no_valid_config:
      return status_bad_input;
    default:
      return status_failure;
  }
}

int complain(int status, const std::string& message) {
  fmt::print(stderr, "jit-attention: {}\n", one_line(message));
  return status;
}

int run_command(const Commands& commands) {
  try {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
  } catch (const BadInput& error) {
    return complain(status_bad_input, error.what());
  } catch (const Error& error) {
    complain(status_of(error), error.message());
    if (error.code() == ErrorCode::compile_failed) fmt::print(stderr, "{}\n", error.log());
    return status_of(error);
  } catch (const std::bad_alloc&) {
    return complain(status_failure, "there is not enough memory for this");
  } catch (const std::exception& error) {
    return complain(status_failure, error.what());
  }
  return status_ok;
}

int main_function(int argc, char** argv) {
  CLI::App app("Attention kernels written, compiled, tuned and kept: a look at each step.", "jit-attention");
  app.set_version_flag("--version", JIT_ATTENTION_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 wrong usage or input. The settings that `info` lists are environment "
      "variables.");
  Commands commands;
  add_info(app, commands);
  add_compile(app, commands);
  add_dump(app, commands);
  add_run(app, commands);
  add_tune(app, commands);
  add_bench(app, commands);
  add_cache(app, commands);
  add_warm(app, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::RequiredError& error) {
    // A misspelt command is no command: say which word it was.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    return complain(status_bad_input,
                    unknown.empty()
                        ? fmt::format("{}; see jit-attention --help", error.what())
                        : fmt::format("there is no command '{}'; see jit-attention --help", unknown[0]));
  } catch (const CLI::ParseError& error) {
    return complain(status_bad_input, fmt::format("{}; see jit-attention --help", error.what()));
  }
  const int status = run_command(commands);
  if (std::fflush(stdout) != 0 && status == status_ok) {
    return complain(status_failure, "standard output cannot be written");
  }
  return status;
}

}  // namespace
}  // namespace jit::tool

int main(int argc, char** argv) { return jit::tool::main_function(argc, argv); }
