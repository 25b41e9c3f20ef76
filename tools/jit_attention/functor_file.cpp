#include "functor_file.h"

#include <utility>

#include <fmt/format.h>

#include "command.h"
#include "input_file.h"

namespace jit::tool {
namespace {

constexpr std::size_t max_file_bytes = 1 << 20;

}  // namespace

const char* const functor_file_help =
    "A file for --mask-file or --score-file holds the body of a C++ function. A mask returns whether query q "
    "of batch entry b and head h sees key k; a score returns the new value of `score`. seqlen_q, seqlen_kv "
    "and heads_q may be used, too. Leading lines declare constants and tensors:\n"
    "  // constant: window = 128        baked into the kernel: true, false, integer or real number\n"
    "  // tensor: ids int32             given at run time: bf16, fp16, fp32, int32, int64 or uint8\n"
    "In a mask, the lines behind\n"
    "  // classify:\n"
    "are the body of a function of q_begin, q_end, k_begin, k_end that returns TileClass::empty, "
    "TileClass::full or TileClass::partial; it lets the kernel skip tiles. In a score, the lines behind\n"
    "  // derivative:\n"
    "return the derivative with respect to `score`, which --backward uses unchecked; there "
    "'d_table[i] += x;' adds x, the derivative with respect to element i of the tensor table, which "
    "--d-tensor needs.";

FunctorText read_functor(const std::string& argument) {
  const auto [name, path] = split_assignment("--mask-file or --score-file", argument);
  return parse_functor(name, read_input(path, max_file_bytes));
}

std::pair<std::string, std::string> split_assignment(std::string_view option, const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == argument.size()) {
    throw BadInput(fmt::format("{} needs name=file, not '{}'", option, argument));
  }
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

}  // namespace jit::tool
