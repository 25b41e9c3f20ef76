// The kernel templates as text.
#pragma once

#include <string>
#include <vector>

#include "runtime/source_file.h"

namespace jit {

/// The templates that were built into the library, by the name under which they include one another.
const std::vector<SourceFile>& embedded_templates();

/// The embedded templates, or those of `folder` when it is not empty: every *.cuh below it, beside the embedded *.h, which
/// host and kernels share. Throws Error
/// io_error when the folder cannot be read or lacks one that is embedded.
std::vector<SourceFile> load_templates(const std::string& folder);

}  // namespace jit
