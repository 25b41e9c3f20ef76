// Include closures: the templates that a program includes, which keys, the compiler and dumps use.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/digest.h"
#include "generator/program/program.h"
#include "generator/program/templates.h"

namespace jit {

/// The templates that the program and its headers include by `#include "…"`, directly or indirectly, by name.
/// Throws Error io_error, naming a missing template and its includer.
std::vector<SourceFile> closure(const Program& program, const Templates& templates);

/// The closure of the templates `entries`, including them.
std::vector<SourceFile> closure(const std::vector<std::string>& entries, const Templates& templates);

/// The digest of names and texts, in this order.
Digest digest_of(const std::vector<SourceFile>& files);

/// Digests of closures, computed once each, since kernels of a family share them. Thread safe.
class ClosureDigests {
 public:
  explicit ClosureDigests(const Templates& templates) : templates_(templates) {}

  Digest of(const Program& program) const;
  Digest of(const std::vector<std::string>& entries) const;

 private:
  const Templates& templates_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<std::string>, Digest>
      known_;  // by names of included files and of generated headers
};

}  // namespace jit
