#include "generator/functors/functor_names.h"

#include <algorithm>
#include <cctype>
#include <span>

namespace jit {
namespace {

constexpr std::string_view keywords[] = {
    "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
    "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq"};

// Macros of NVRTC without a leading underscore, and the templates' own.
constexpr std::string_view macros[] = {"CUDART_VERSION", "JIT_HOST_DEVICE", "NULL",   "assert",
                                       "va_arg",         "va_copy",         "va_end", "va_start"};

// Names that include/jit/functor_text.h provides in texts.
constexpr std::string_view promised[] = {"q",         "k",       "b",     "h",         "seqlen_q",
                                         "seqlen_kv", "heads_q", "score", "q_begin",   "q_end",
                                         "k_begin",   "k_end",   "tile",  "TileClass", "to_float"};

struct Group {
  std::string_view kind;
  std::span<const std::string_view> names;
};
constexpr Group groups[] = {{"a keyword of C++", keywords},
                            {"a macro of the compiler or of the templates", macros},
                            {"a name that texts already have", promised}};

}  // namespace

std::string_view taken_as(std::string_view name) {
  for (const Group& group : groups) {
    if (std::find(group.names.begin(), group.names.end(), name) != group.names.end()) return group.kind;
  }
  const bool has_capital =
      name.size() > 1 && name[0] == '_' && std::isupper(static_cast<unsigned char>(name[1]));
  if (has_capital || name.find("__") != std::string_view::npos) return "a form that C++ keeps for compilers";
  return {};
}

}  // namespace jit
