// A PTX module after parsing: its text, checked for syntax but not for semantics (PTX ISA, "Syntax" to
// "Directives"). Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <emulator/ptx_error.h>

namespace jit::emulator::ptx {

using emulator::PtxError;

enum class Space { reg, global, constant, shared, local, param };

struct Operand {
  enum class Kind {
    name,     ///< register "%r1", special register "%tid.x", variable, label, function
    integer,  ///< literal; `bits` is its 64-bit two's complement
    real,     ///< literal; `bits` is the IEEE double, or the single's when `is_single`
    vector,   ///< {a, b, …}
    address,  ///< [base + offset]; `elements` holds what follows a comma: a tensor's coordinates {c0, c1}
    discard,  ///< _
    pair,     ///< a|b: the two destinations of setp, or the value and the predicate of shfl
  };
  Kind kind = Kind::name;
  std::string name = {};    ///< of `name`; of an `address`, its base, empty when that is a number
  bool negated = false;     ///< "!%p1" or "-%r1"
  std::uint64_t bits = 0;   ///< of `integer` and `real`; of an `address` without base, the number
  bool is_single = false;   ///< a `real` written as 0f…
  std::int64_t offset = 0;  ///< of an `address`; of a `name` written as variable+4
  std::vector<Operand> elements = {};
};

/// The source of a PTX line: a `.loc` directive, the innermost place for inlined code.
struct SourceLine {
  int file = 0;  ///< index in Module::files
  int line = 0;
  int column = 0;

  auto operator<=>(const SourceLine&) const = default;
};

struct Guard {
  std::string predicate;
  bool negated = false;
};

struct Instruction {
  std::string opcode = {};                  ///< "mma"
  std::vector<std::string> modifiers = {};  ///< "sync", "aligned", …, in order; "::" stays inside one of them
  std::optional<Guard> guard = {};
  std::vector<Operand> operands = {};
  int line = 0;  ///< of the PTX text
  std::optional<SourceLine> source = {};

  /// "mma.sync.aligned.…"
  std::string full_name() const;
};

/// A variable or a kernel parameter.
struct Variable {
  Space space = Space::global;
  std::string name;
  std::string type;  ///< of an element: "u32", "b8", …
  std::uint64_t alignment = 0;
  std::uint64_t bytes = 0;  ///< whole size; 0 for an extern array without length
  bool is_extern = false;
  std::vector<std::uint8_t> initial = {};  ///< may be shorter than `bytes`: zeros follow
  /// Addresses in `initial`: the 64-bit word at `offset` is the generic address of `symbol` plus `addend`.
  struct Relocation {
    std::uint64_t offset;
    std::string symbol;
    std::int64_t addend;
    bool generic;
  };
  std::vector<Relocation> relocations = {};
  int line = 0;
};

/// A register, declared alone or as one of a range.
struct RegisterRange {
  std::string prefix;  ///< "%r" of "%r<10>", or the whole name when `count` is 0
  std::string type;    ///< "b32", "pred", …
  int count = 0;
};

struct Function {
  std::string name;
  bool is_entry = false;
  std::vector<Variable> results;  ///< of a .func
  std::vector<Variable> parameters;
  /// Performance directives with their numbers: "maxntid" → {128, 1, 1}, "minnctapersm", "maxnreg",
  /// "reqnctapercluster", "explicitcluster" → {}, …
  std::map<std::string, std::vector<int>> directives;
  std::vector<RegisterRange> registers;  ///< names of inner scopes are made unique by the parser
  std::vector<Variable> variables;       ///< .local and .shared
  std::vector<Instruction> body;
  std::map<std::string, int> labels;  ///< index in `body` of the next statement; may be body.size()
  /// Lists of labels that `.branchtargets` declares, by the name of the list.
  std::map<std::string, std::vector<std::string>> branch_targets;
  int line = 0;
};

struct Module {
  int version_major = 0;
  int version_minor = 0;
  int version_line = 0;
  std::string target;  ///< "sm_90a"
  int target_line = 0;
  std::map<int, std::string> files;  ///< of `.file`
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

/// Parses a whole PTX text. Throws PtxError. Accepts any bytes: time and memory are proportional to the text
/// and its arrays, of which none may exceed 1 GiB.
Module parse(std::string_view text);

}  // namespace jit::emulator::ptx
