// The kernel templates as text.
#pragma once

#include <string>
#include <vector>

#include "runtime/source_file.h"

namespace jit {

/// The embedded templates, by the names in their #include lines. The first call decompresses them. Thread
/// safe.
const std::vector<SourceFile>& embedded_templates();

/// The templates that programs may include.
struct Templates {
  std::string folder;  ///< their folder; empty: embedded
  std::vector<SourceFile> files;
};

/// The embedded templates or, if `folder` is not empty, every *.cuh below it, without anchors of
/// tests/mutation, like embedded ones, and the embedded *.h, which host and kernels share. Throws Error
/// io_error if the folder cannot be read; a missing template is reported when a program includes it.
Templates load_templates(const std::string& folder);

}  // namespace jit
