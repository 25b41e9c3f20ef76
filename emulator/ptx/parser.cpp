#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "ptx/declarations.h"
#include "ptx/function_parser.h"
#include "ptx/syntax.h"
#include "ptx/tokens.h"

namespace jit::emulator::ptx {
namespace {

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text)
      : tokens_(text), declarations_(tokens_), functions_(tokens_, declarations_, statics_) {}

  Module parse() {
    header();
    while (tokens_.peek().kind != Token::Kind::end) item();
    for (Variable& variable : statics_) module_.variables.push_back(std::move(variable));
    return std::move(module_);
  }

 private:
  struct Defined {
    int line;
    bool is_function;
    std::size_t index;  // in Module::variables
  };

  void header() {
    if (!tokens_.accept_dotted(".version"))
      tokens_.fail_expected("'.version' at the beginning of a PTX text");
    version();
    if (!tokens_.accept_dotted(".target")) tokens_.fail_expected("'.target' after '.version'");
    target();
  }

  void version() {
    const Token token = tokens_.peek();
    const std::size_t dot = token.text.find('.');
    const bool has_form = token.kind == Token::Kind::real && dot != std::string_view::npos && dot <= 3 &&
                          token.text.size() - dot - 1 >= 1 && token.text.size() - dot - 1 <= 3 &&
                          token.text.find_first_not_of("0123456789.") == std::string_view::npos;
    if (!has_form) tokens_.fail_expected("a version such as 8.7 after '.version'");
    tokens_.take();
    module_.version_line = token.line;
    module_.version_major = std::stoi(std::string(token.text.substr(0, dot)));
    module_.version_minor = std::stoi(std::string(token.text.substr(dot + 1)));
  }

  void target() {
    do {
      const Token token = tokens_.peek();
      const std::string_view name = tokens_.expect_word("a target such as sm_90a after '.target'");
      if (!name.starts_with("sm_")) continue;  // "debug" and the like
      if (!module_.target.empty()) {
        throw PtxError(token.line, fmt::format("a second target {} beside {}", name, module_.target));
      }
      module_.target = name;
      module_.target_line = token.line;
    } while (tokens_.accept(","));
    if (module_.target.empty()) tokens_.fail_expected("a target such as sm_90a in '.target'");
  }

  void item() {
    bool is_extern = false;
    Token token = tokens_.peek();
    if (token.kind != Token::Kind::dotted) tokens_.fail_expected("a directive, which begins with '.'");
    tokens_.take();
    const bool is_linked = token.text == ".extern" || token.text == ".visible" || token.text == ".weak" ||
                           token.text == ".common";
    if (is_linked) {
      is_extern = token.text == ".extern";
      if (tokens_.peek().kind != Token::Kind::dotted) {
        tokens_.fail_expected(fmt::format("a variable, '.func' or '.entry' after '{}'", token.text));
      }
      token = tokens_.take();
    }
    if (token.text == ".entry" || token.text == ".func") {
      function(token.text == ".entry");
    } else if (token.text == ".global" || token.text == ".const" || token.text == ".shared") {
      for (Variable& variable : declarations_.variables(*parse_space(token.text), is_extern)) {
        add_variable(std::move(variable));
      }
    } else if (token.text == ".local" || token.text == ".reg" || token.text == ".param") {
      throw PtxError(token.line, fmt::format("{} variables can only be declared in functions", token.text));
    } else if (is_linked) {
      throw PtxError(token.line,
                     fmt::format("expected a variable, '.func' or '.entry', found {}", describe(token)));
    } else {
      other(token);
    }
  }

  void other(const Token& token) {
    if (token.text == ".address_size") {
      address_size();
    } else if (token.text == ".file") {
      file();
    } else if (token.text == ".section") {
      section();
    } else if (token.text == ".pragma") {
      do {
        tokens_.expect_string("a string after .pragma");
      } while (tokens_.accept(","));
      tokens_.expect(";", "after .pragma");
    } else if (token.text == ".alias") {
      // Another name for a .func, which can only be called.
      tokens_.expect_word("the name of a function");
      tokens_.expect(",", "between the two names of '.alias'");
      tokens_.expect_word("the name of a function");
      tokens_.expect(";", "after '.alias'");
    } else {
      throw PtxError(token.line,
                     fmt::format("{} is no directive of a module that the emulator knows", describe(token)));
    }
  }

  void address_size() {
    const int line = tokens_.line();
    const int size = tokens_.expect_integer("32 or 64 after '.address_size'", 64);
    if (size != 64) {
      throw PtxError(line,
                     fmt::format("addresses of {} bits; the emulator runs '.address_size 64' only", size));
    }
  }

  // .file number "name" [, time, size]
  void file() {
    const int line = tokens_.line();
    const int number = tokens_.expect_integer("a number after '.file'", INT32_MAX);
    const auto [place, is_new] =
        module_.files.try_emplace(number, tokens_.expect_string("the name of a file"));
    if (!is_new) throw PtxError(line, fmt::format("file {} is named a second time", number));
    while (tokens_.accept(",")) {
      if (tokens_.peek().kind != Token::Kind::integer) tokens_.fail_expected("a number");
      tokens_.take();
    }
  }

  // A section for debuggers, without effect on the kernel.
  void section() {
    const int line = tokens_.line();
    while (!tokens_.peek().is("{")) {
      if (tokens_.peek().kind != Token::Kind::dotted && tokens_.peek().kind != Token::Kind::word) {
        tokens_.fail_expected("the name of a section, then '{'");
      }
      tokens_.take();
    }
    for (int depth = 0;;) {
      if (tokens_.peek().kind == Token::Kind::end) {
        throw PtxError(tokens_.line(), fmt::format("the section of line {} is not closed by '}}'", line));
      }
      const Token token = tokens_.take();
      depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
      if (depth == 0) return;
    }
  }

  void function(bool is_entry) {
    std::optional<Function> function = functions_.parse(is_entry);
    if (!function) return;
    define(function->name, {function->line, true, 0});
    module_.functions.push_back(std::move(*function));
  }

  void add_variable(Variable variable) {
    const auto found = defined_.find(variable.name);
    if (found != defined_.end() && !found->second.is_function) {
      Variable& first = module_.variables[found->second.index];
      if (variable.is_extern || first.is_extern) {
        if (variable.space != first.space) {
          throw PtxError(variable.line, fmt::format("{} is declared in another space than on line {}",
                                                    variable.name, first.line));
        }
        if (first.is_extern) first = std::move(variable);
        return;
      }
    }
    define(variable.name, {variable.line, false, module_.variables.size()});
    module_.variables.push_back(std::move(variable));
  }

  void define(const std::string& name, Defined defined) {
    const auto [place, is_new] = defined_.try_emplace(name, defined);
    if (is_new) return;
    throw PtxError(defined.line, fmt::format("{} is defined a second time; the first is on line {}", name,
                                             place->second.line));
  }

  Tokens tokens_;
  Module module_;
  std::vector<Variable> statics_;
  std::unordered_map<std::string, Defined> defined_;
  DeclarationParser declarations_;
  FunctionParser functions_;
};

}  // namespace

Module parse(std::string_view text) { return ModuleParser(text).parse(); }

}  // namespace jit::emulator::ptx
