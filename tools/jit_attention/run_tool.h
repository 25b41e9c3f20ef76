// The command-line tool as a function, for main() and the Python package.
#pragma once

namespace jit::tool {

/// Runs the command on the command line and returns the exit status. Changes the process's signal handling
/// and standard streams.
int run_tool(int argc, const char* const* argv);

}  // namespace jit::tool
