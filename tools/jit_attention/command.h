// A subcommand of jit-attention: its options and its function.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

inline constexpr int status_ok = 0;
inline constexpr int status_failure = 1;
inline constexpr int status_bad_input = 2;

/// The user's input is invalid. `what()` is one sentence; the exit status is status_bad_input.
class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Command {
  CLI::App* app;             ///< owned by the application; whether the user named the command
  std::function<int()> run;  ///< returns the exit status; throws jit::Error or BadInput
};

using Commands = std::vector<Command>;

// Each is defined in the file of its name. It adds options to `app` and commands to `commands`.
void add_info(CLI::App& app, Commands& commands);
void add_compile(CLI::App& app, Commands& commands);
void add_dump(CLI::App& app, Commands& commands);
void add_run(CLI::App& app, Commands& commands);
void add_tune(CLI::App& app, Commands& commands);
void add_bench(CLI::App& app, Commands& commands);
void add_show(CLI::App& app, Commands& commands);
void add_emulate(CLI::App& app, Commands& commands);
void add_record(CLI::App& app, Commands& commands);
void add_cache(CLI::App& app, Commands& commands);
void add_warm(CLI::App& app, Commands& commands);

/// All commands, in the order of the help.
void add_all(CLI::App& app, Commands& commands);

/// Writes to standard output. main() reports a closed or full output once, at the end.
void print_to_stdout(std::string_view text);
template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_to_stdout(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// Prints to standard output; replaces invalid UTF-8.
void print_json(const nlohmann::ordered_json& json);

/// Writes to standard error. Errors are ignored.
void print_to_stderr(std::string_view text);

/// Checks of option values, for CLI11. They return the fault of `text`; empty: none.
std::string must_not_be_empty(const std::string& text);
std::string must_be_positive(const std::string& text);

/// The text with line breaks replaced.
std::string one_line(std::string text);

}  // namespace jit::tool
