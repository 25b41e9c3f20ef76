// Names that a function declares, and their scopes: names of a block { … } are renamed so that each is unique
// in the function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/syntax.h"

namespace jit::emulator::ptx {

class Scopes {
 public:
  /// `line`: the function's. Only names of its outermost scope stay unchanged.
  explicit Scopes(int line);

  /// Enters a block. Throws PtxError when too many are open.
  void open(int line, const Function& function);
  /// Leaves the innermost block: branches to its labels get their final names. Returns false when it was the
  /// function itself.
  bool close(Function& function);
  /// Line of the '{' of the innermost block.
  int line() const { return scopes_.back().line; }

  // Each declares a name in the innermost block and returns the final one. Throws PtxError for a duplicate.
  std::string declare(std::string_view name, int line);
  std::string declare_label(std::string_view name, int line);
  /// The registers prefix0 … prefix(count - 1).
  std::string declare_range(std::string_view prefix, int count, int line);
  /// Declares a variable that is placed outside the function.
  std::string declare_static(std::string_view name, int line, std::string_view function);
  /// Adds a list of labels; close() gives their final names. Its address must stay valid.
  void add_targets(std::vector<std::string>& targets) { targets_.push_back(&targets); }

  /// Replaces names of registers and variables by their final ones. close() replaces labels.
  void resolve(Operand& operand) const;
  void resolve(std::string& name) const;

 private:
  struct Name {
    std::string final_name;
    int line;
    bool is_label;
  };
  struct Range {
    std::string final_prefix;
    int count;
    int line;
  };
  // Lookups use std::string_view.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  template <class T>
  using Table = std::unordered_map<std::string, T, Hash, std::equal_to<>>;
  struct Single {
    std::uint64_t number;
    std::string name;
    int line;
  };
  struct Scope {
    int line = 0;  ///< of its '{'
    int number = 0;
    std::size_t first_instruction = 0;
    std::size_t first_targets = 0;
    bool renames = false;  ///< whether a register or variable has another final name
    bool has_labels = false;
    Table<Name> names = {};
    Table<Range> ranges = {};
    /// The least number of a single declared name, by its prefix before trailing digits.
    Table<Single> least_singles = {};
  };

  std::string unique(std::string_view name) const;
  void add(std::string_view name, Name entry);
  void mark_renaming();

  std::vector<Scope> scopes_;
  std::vector<std::vector<std::string>*> targets_;  ///< lists of labels, in the order of the text
  int opened_ = 0;
  int renaming_ = 0;  ///< number of open scopes that rename
};

}  // namespace jit::emulator::ptx
