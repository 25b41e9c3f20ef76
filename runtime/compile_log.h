// Turning what NVRTC and its assembler write into locations that the reader knows. Pure text functions.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace jit {

/// The log with `folder` ("/jit-attention/") removed from names, and "mask(3): error" written as "mask:3:
/// error".
std::string with_plain_locations(std::string_view log, std::string_view folder);

/// A log with plain locations without what says nothing of why a compile failed: warnings about the files that
/// `is_known` names, which arise in templates that are given something wrong, and remarks about options.
std::string without_warnings_about(const std::function<bool(std::string_view)>& is_known,
                                   std::string_view log);

/// The first lines of the compiler's warnings, "mask:3: warning #177-D: …", with locations as above.
std::vector<std::string> compiler_warnings(std::string_view log, std::string_view folder);

/// One line "mask:3: error: …" for each error that the assembler reports by line of `ptx`, located by the
/// nearest .loc above that line. Empty when `log` has no such error or `ptx` no .loc.
std::string locate_assembler_errors(std::string_view log, std::string_view ptx, std::string_view folder);

/// True when `log` has an error of the assembler, which knows lines of PTX alone.
bool has_assembler_error(std::string_view log);

/// PTX with line information whose `.file` directives name files without any of these prefixes: NVRTC puts
/// its current folder in front of names that are not absolute.
std::string with_plain_files(std::string ptx, std::initializer_list<std::string_view> prefixes);

}  // namespace jit
