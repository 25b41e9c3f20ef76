#include "generator/operations/key_exchange/program.h"

#include <array>

#include "generator/launch/ceil_div.h"
#include "generator/operations/spec_rules.h"

namespace jit {
namespace {

constexpr int threads = 256;
constexpr std::array<std::uint64_t, 1> words = {23};  // unique to this operation

}  // namespace

Program key_exchange_program() {
  Program program;
  program.threads = threads;
  program.name = "key_exchange_begin";
  program.facts = {{"spec", "key_exchange"}};
  program.source =
      "// The beginning of an exchange of keys. Generated.\n#include \"key_exchange/kernel.cuh\"\n\n"
      "using namespace jit;\n\nstruct Config {\n" +
      constant_line("int", "threads", std::to_string(threads), "of a block") + "};\n" +
      kernel_text(program, "KeyExchangeParams", sizeof(KeyExchangeParams), "begin_key_exchange");
  return program;
}

std::shared_ptr<const OperationState> key_exchange_kernel(const Context& context) {
  const std::shared_ptr<ContextState>& shared = Access::state(context);
  const OperationState* state = find_operation(*shared, words);
  if (state == nullptr) state = new_operation(*shared, words, key_exchange_program());
  prepared_kernel(*state);
  return {shared, state};
}

void begin_key_exchange(const OperationState& kernel, KeyExchangeParams& params, std::int64_t batch,
                        int device, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(params.rows, exchange_block_rows) * batch);
  launch_operation(kernel_for_launch(kernel, device, stream), {blocks, 1}, &params, stream);
}

}  // namespace jit
