// Which templates a program includes, so that keys, the compiler and dumps take those and no others.
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

/// The templates that the program and its headers reach by lines `#include "…"`, directly or through one
/// another, by name. Throws Error io_error that names a template which is missing, and who includes it.
std::vector<SourceFile> closure(const Program& program, const Templates& templates);

/// The closure of the templates called `entries`, themselves included.
std::vector<SourceFile> closure(const std::vector<std::string>& entries, const Templates& templates);

/// The digest of names and texts, in this order.
Digest digest_of(const std::vector<SourceFile>& files);

/// Digests of closures, each computed once: kernels of one family include the same. Thread safe.
class ClosureDigests {
 public:
  explicit ClosureDigests(const Templates& templates) : templates_(templates) {}

  Digest of(const Program& program) const;
  Digest of(const std::vector<std::string>& entries) const;

 private:
  const Templates& templates_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<std::string>, Digest>
      known_;  // by what is included, and what headers there are
};

}  // namespace jit
