// The kernel templates as text.
#pragma once

#include <string>
#include <vector>

#include "runtime/source_file.h"

namespace jit {

/// The templates that were built into the library, by the name under which they include one another. The
/// first call decompresses them. Thread safe.
const std::vector<SourceFile>& embedded_templates();

/// The templates that programs may include.
struct Templates {
  std::string folder;  ///< that they were read from; empty: they are the embedded ones
  std::vector<SourceFile> files;
};

/// The embedded templates, or those of `folder` when it is not empty: every *.cuh below it, without the anchors of
/// tests/mutation, as the embedded ones are, beside the embedded *.h, which host and kernels share. Throws Error
/// io_error when the folder cannot be read; what it lacks shows when a program includes it.
Templates load_templates(const std::string& folder);

}  // namespace jit
