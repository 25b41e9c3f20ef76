// A program over what templates/problem/ makes of the texts of masks, of which a text may be changed, as PTX.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generator/program/closure.h"
#include "generator/program/program.h"
#include "runtime/compiler.h"
#include "tests/mutation/mutated_text.h"

namespace jit::testing {

/// PTX for sm_90a of `source`, whose kernel is called ask. `from`, unless empty, is replaced by `to` in a template; throws
/// where it does not stand there exactly once.
inline std::string interval_ptx(std::string source, const std::string& from = "", const std::string& to = "",
                                const std::string& file_of_change = "problem/interval.cuh") {
  Program program;
  program.source = std::move(source);
  Templates templates = load_templates("");
  std::vector<SourceFile> headers = closure(program, templates);
  for (SourceFile& file : headers)
    if (!from.empty() && file.name == file_of_change) file.text = mutated(file.text, from, to);
  return compile_to_ptx(find_nvrtc(""), {.name = "/jit-attention/kernel.cu",
                                         .source = program.source,
                                         .headers = headers,
                                         .arch = parse_arch("sm_90a"),
                                         .options = {},
                                         .kernel = "ask"})
      .ptx;
}

}  // namespace jit::testing
