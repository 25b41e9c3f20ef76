// Translates messages of NVRTC and ptxas to locations in the user's text. Pure text functions.
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

/// A log with plain locations, without lines that do not explain a failed compile: warnings about files for
/// which `is_known` holds, caused by wrong template arguments, and remarks about options.
std::string without_warnings_about(const std::function<bool(std::string_view)>& is_known,
                                   std::string_view log);

/// The first lines of compiler warnings, "mask:3: warning #177-D: …", with plain locations.
std::vector<std::string> compiler_warnings(std::string_view log, std::string_view folder);

/// One line "mask:3: error: …" for each error that ptxas reports by line of `ptx`, located by the nearest
/// .loc above that line. Empty if `log` has no such error or `ptx` has no .loc.
std::string locate_assembler_errors(std::string_view log, std::string_view ptx, std::string_view folder);

/// Whether `log` has an error of ptxas, whose locations are lines of PTX.
bool has_assembler_error(std::string_view log);

/// PTX whose `.file` directives are stripped of these prefixes: NVRTC prepends its current folder to names
/// that are not absolute.
std::string with_plain_files(std::string ptx, std::initializer_list<std::string_view> prefixes);

}  // namespace jit
