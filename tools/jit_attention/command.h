// A subcommand of jit-attention: options on the command line and a function that runs.
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

/// The user asked for something that makes no sense; `what()` is one sentence, the exit status is
/// status_bad_input.
class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Command {
  CLI::App* app;             ///< owned by the application; tells whether the user named it
  std::function<int()> run;  ///< returns the exit status; throws jit::Error or BadInput
};

using Commands = std::vector<Command>;

// One per file of that name. Each adds its options to `app` and its commands to `commands`.
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

/// Writes to standard output. When that is closed or full, main() says so once, at the end.
void print_to_stdout(std::string_view text);
template <class... Arguments>
void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  print_to_stdout(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// Prints to standard output; bytes that are no UTF-8 are replaced.
void print_json(const nlohmann::ordered_json& json);

/// Writes to standard error. When that is closed or full, the text is lost and nothing else changes.
void print_to_stderr(std::string_view text);

/// Checks of options' values, for CLI11: what is wrong with `text`, empty when nothing is.
std::string must_not_be_empty(const std::string& text);
std::string must_be_positive(const std::string& text);

/// The text without line breaks.
std::string one_line(std::string text);

}  // namespace jit::tool
