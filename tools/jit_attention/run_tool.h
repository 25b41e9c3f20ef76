// The command-line tool as a function, for main() and for the Python package.
#pragma once

namespace jit::tool {

/// Runs the command that the command line names and returns the exit status of the process. Changes how the process
/// takes signals and standard streams.
int run_tool(int argc, const char* const* argv);

}  // namespace jit::tool
