#include "ptx/function_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "ptx/operands.h"

namespace jit::emulator::ptx {
namespace {

struct DirectiveForm {
  std::string_view name;
  int least;  ///< how many numbers follow
  int most;
};
// PTX ISA, "Performance-Tuning Directives" and "Cluster Dimension Directives".
constexpr std::array<DirectiveForm, 12> directive_forms = {{{"maxntid", 1, 3},
                                                            {"reqntid", 1, 3},
                                                            {"minnctapersm", 1, 1},
                                                            {"maxnctapersm", 1, 1},
                                                            {"maxnreg", 1, 1},
                                                            {"reqnctapercluster", 1, 3},
                                                            {"explicitcluster", 0, 0},
                                                            {"maxclusterrank", 1, 1},
                                                            {"blocksareclusters", 0, 0},
                                                            {"noreturn", 0, 0},
                                                            {"abi_preserve", 1, 1},
                                                            {"abi_preserve_control", 1, 1}}};

}  // namespace

FunctionParser::FunctionParser(Tokens& tokens, DeclarationParser& declarations,
                               std::vector<Variable>& statics)
    : tokens_(tokens), declarations_(declarations), statics_(statics) {}

std::optional<Function> FunctionParser::parse(bool is_entry) {
  function_ = {};
  function_.is_entry = is_entry;
  source_.reset();
  registers_ = 0;
  header();
  if (tokens_.accept(";")) return {};
  scopes_.emplace(tokens_.line());
  for (const auto* list : {&function_.results, &function_.parameters}) {
    for (const Variable& variable : *list) scopes_->declare(variable.name, variable.line);
  }
  tokens_.expect("{", fmt::format("before the body of {}, or ';'", function_.name));
  statements();
  return std::move(function_);
}

void FunctionParser::header() {
  if (!function_.is_entry) {
    if (tokens_.accept_dotted(".attribute")) declarations_.skip_parentheses();
    if (tokens_.peek().is("(")) function_.results = declarations_.parameters();
  }
  function_.line = tokens_.line();
  function_.name = tokens_.expect_word("the name of a function");
  if (tokens_.peek().is("(")) function_.parameters = declarations_.parameters();
  if (function_.is_entry) check_entry_parameters();
  while (tokens_.peek().kind == Token::Kind::dotted) directive(tokens_.take());
}

void FunctionParser::check_entry_parameters() const {
  for (const Variable& parameter : function_.parameters) {
    if (parameter.space != Space::param) {
      throw PtxError(parameter.line, fmt::format("parameter {} of the kernel {} must be .param, not .reg",
                                                 parameter.name, function_.name));
    }
    if (parameter.bytes == 0) {
      throw PtxError(parameter.line, fmt::format("parameter {}[] of the kernel {} has no length",
                                                 parameter.name, function_.name));
    }
  }
}

void FunctionParser::directive(const Token& token) {
  const std::string_view name = token.text.substr(1);
  if (name == "pragma") {
    do {
      tokens_.expect_string("a string after .pragma");
    } while (tokens_.accept(","));
    tokens_.expect(";", "after .pragma");
    return;
  }
  const DirectiveForm* form = nullptr;
  for (const DirectiveForm& each : directive_forms) {
    if (each.name == name) form = &each;
  }
  if (form == nullptr) {
    throw PtxError(token.line, fmt::format("'.{}' is no directive of a function that the emulator knows; "
                                           "expected one such as .maxntid, or '{{'",
                                           name));
  }
  std::vector<int> numbers;
  const std::string what = fmt::format("a number after .{}", name);
  while (static_cast<int>(numbers.size()) < form->most) {
    if (!numbers.empty() && !tokens_.accept(",")) break;
    numbers.push_back(tokens_.expect_integer(what, INT32_MAX));
  }
  if (form->most == 3) numbers.resize(3, 1);
  function_.directives[std::string(name)] = std::move(numbers);
}

void FunctionParser::statements() {
  for (;;) {
    const Token token = tokens_.peek();
    if (token.kind == Token::Kind::word) {
      tokens_.take();
      if (tokens_.peek().is(":")) {
        labeled(token);
      } else {
        instruction(token, {});
      }
    } else if (token.kind == Token::Kind::dotted) {
      statement_with_dot();
    } else if (token.is("@")) {
      std::optional<Guard> guard = this->guard();
      if (tokens_.peek().kind != Token::Kind::word) tokens_.fail_expected("an instruction after a guard");
      const Token opcode = tokens_.take();
      instruction(opcode, std::move(guard));
    } else if (tokens_.accept("{")) {
      scopes_->open(token.line, function_);
    } else if (tokens_.accept("}")) {
      if (!scopes_->close(function_)) return;
    } else if (token.kind == Token::Kind::end) {
      throw PtxError(token.line, fmt::format("the text ends within {}: no '}}' closes the '{{' of line {}",
                                             function_.name, scopes_->line()));
    } else {
      tokens_.fail_expected("an instruction, a label, a directive, '{' or '}'");
    }
  }
}

void FunctionParser::statement_with_dot() {
  const Token token = tokens_.take();
  if (token.text == ".reg") {
    declare_registers();
  } else if (token.text == ".loc") {
    location();
  } else if (token.text == ".pragma") {
    directive(token);
  } else if (const std::optional<Space> space = parse_space(token.text)) {
    declare_variables(*space);
  } else if (token.text == ".branchtargets" || token.text == ".calltargets" ||
             token.text == ".callprototype") {
    throw PtxError(token.line, fmt::format("expected a label with ':' before {}", token.text));
  } else {
    throw PtxError(token.line, fmt::format("{} is no directive that can stand in the body of a function",
                                           describe(token)));
  }
}

void FunctionParser::labeled(const Token& label) {
  tokens_.take();
  if (label.text == "_") throw PtxError(label.line, "'_' cannot be a label");
  if (tokens_.accept_dotted(".branchtargets")) {
    std::vector<std::string> targets;
    do {
      targets.emplace_back(tokens_.expect_word("a label"));
    } while (tokens_.accept(","));
    tokens_.expect(";", "or ',' after a label of .branchtargets");
    const std::string name = scopes_->declare_label(label.text, label.line);
    scopes_->add_targets(function_.branch_targets[name] = std::move(targets));
  } else if (tokens_.accept_dotted(".calltargets")) {
    do {
      tokens_.expect_word("the name of a function");
    } while (tokens_.accept(","));
    tokens_.expect(";", "or ',' after a function of .calltargets");
    scopes_->declare_label(label.text, label.line);
  } else if (tokens_.accept_dotted(".callprototype")) {
    if (tokens_.peek().is("(")) declarations_.parameters();
    tokens_.expect_word_of("_", "in the place of the name in .callprototype");
    if (tokens_.peek().is("(")) declarations_.parameters();
    while (tokens_.accept_dotted(".noreturn")) {
    }
    tokens_.expect(";", "after .callprototype");
    scopes_->declare_label(label.text, label.line);
  } else {
    function_.labels[scopes_->declare_label(label.text, label.line)] =
        static_cast<int>(function_.body.size());
  }
}

std::optional<Guard> FunctionParser::guard() {
  tokens_.take();
  Guard guard;
  guard.negated = tokens_.accept("!");
  guard.predicate = tokens_.expect_word("a predicate after '@'");
  scopes_->resolve(guard.predicate);
  return guard;
}

void FunctionParser::instruction(const Token& opcode, std::optional<Guard> guard) {
  if (opcode.text.front() == '%' || opcode.text.front() == '_' || opcode.text.front() == '$') {
    throw PtxError(opcode.line,
                   fmt::format("expected an instruction or a label with ':', found {}", describe(opcode)));
  }
  Instruction& result = function_.body.emplace_back();
  result.opcode = opcode.text;
  result.guard = std::move(guard);
  result.line = opcode.line;
  result.source = source_;
  while (tokens_.peek().kind == Token::Kind::dotted) {
    result.modifiers.emplace_back(tokens_.take().text.substr(1));
  }
  if (tokens_.accept(";")) return;
  do {
    const bool is_list = result.opcode == "call" && tokens_.peek().is("(");
    scopes_->resolve(
        result.operands.emplace_back(is_list ? parse_call_list(tokens_) : parse_operand(tokens_)));
  } while (tokens_.accept(","));
  if (!tokens_.peek().is(";")) {
    tokens_.fail_expected(fmt::format("',' or ';' after an operand of {}", result.full_name()));
  }
  tokens_.take();
}

void FunctionParser::declare_registers() {
  for (DeclaredRegisters& declared : declarations_.registers()) {
    RegisterRange& range = declared.range;
    registers_ += std::max(range.count, 1);
    if (registers_ > most_registers) {
      throw PtxError(declared.line, fmt::format("{} declares more than {} registers with {}", function_.name,
                                                most_registers, range.prefix));
    }
    range.prefix = range.count == 0 ? scopes_->declare(range.prefix, declared.line)
                                    : scopes_->declare_range(range.prefix, range.count, declared.line);
    function_.registers.push_back(std::move(range));
  }
}

void FunctionParser::declare_variables(Space space) {
  for (Variable& variable : declarations_.variables(space, false)) {
    if (space == Space::global || space == Space::constant) {
      variable.name = scopes_->declare_static(variable.name, variable.line, function_.name);
      statics_.push_back(std::move(variable));
    } else {
      variable.name = scopes_->declare(variable.name, variable.line);
      function_.variables.push_back(std::move(variable));
    }
  }
}

// .loc file line column [, function_name label [+ number], inlined_at file line column]
void FunctionParser::location() {
  SourceLine place;
  place.file = tokens_.expect_integer("the number of a file after .loc", INT32_MAX);
  place.line = tokens_.expect_integer("a line number", INT32_MAX);
  place.column = tokens_.expect_integer("a column", INT32_MAX);
  if (tokens_.accept(",")) {
    tokens_.expect_word_of("function_name", "after ','");
    tokens_.expect_word("a label of .debug_str");
    if (tokens_.accept("+")) tokens_.expect_integer("an offset", INT32_MAX);
    tokens_.expect(",", "before 'inlined_at'");
    tokens_.expect_word_of("inlined_at", "after ','");
    for (const char* what : {"the number of a file after inlined_at", "a line number", "a column"}) {
      tokens_.expect_integer(what, INT32_MAX);
    }
  }
  // Line 0 marks code without a source line.
  source_ = place.line == 0 ? std::nullopt : std::optional(place);
}

}  // namespace jit::emulator::ptx
