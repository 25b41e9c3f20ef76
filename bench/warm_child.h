// A new process that takes its kernel from a warm cache: what bench_process times.
#pragma once

#include <optional>
#include <string>

#include "bench/bench_support.h"

namespace jit::bench {

/// The spec whose kernel the child process asks for.
AttentionSpec child_spec();

/// Times processes, from exec to exit, that want the kernel of `child_spec` from a cache in `folder`; one
/// that does not find it there is an error of the benchmark.
void start_processes(benchmark::State& state, const std::string& folder);

/// To be called first in main: the exit status of the process when it is such a child.
std::optional<int> run_child(int argc, char** argv);

}  // namespace jit::bench
