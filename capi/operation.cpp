#include "capi/operation.h"

#include <array>

#include "capi/specs.h"
#include "capi/structs.h"

namespace jit::c {
namespace {

constexpr std::array kind_names = {"attention", "append", "merge", "quantize", "block mask", "key mass"};
static_assert(kind_names.size() == std::variant_size_v<Problem>);
static_assert(place_of<AttentionProblem>(static_cast<const Problem*>(nullptr)) == JIT_ATTENTION &&
              place_of<KeyMassSpec>(static_cast<const Problem*>(nullptr)) == JIT_KEY_MASS);

Problem problem_of_kind(const Context& context, jit_kind kind, const jit_spec& spec) {
  switch (kind) {
    case JIT_ATTENTION: {
      const AttentionSpec attention = attention_spec_of(spec);
      return AttentionProblem{attention, config_of(spec), attention_when_called(attention, context)};
    }
    case JIT_APPEND:
      return append_spec_of(spec);
    case JIT_MERGE:
      return merge_spec_of(spec);
    case JIT_QUANTIZE:
      return quantize_spec_of(spec);
    case JIT_BLOCK_MASK:
      return block_mask_spec_of(spec);
    case JIT_KEY_MASS:
      return key_mass_spec_of(spec);
  }
  refuse("kind", "is " + std::to_string(static_cast<int>(kind)) + "; it must be 0 to " +
                     std::to_string(kind_names.size() - 1));
}

}  // namespace

const char* kind_name(std::size_t index) { return kind_names[index]; }

Attention attention_here(const AttentionProblem& problem, const Context& context) {
  return problem.config ? attention(problem.spec, problem.config, context) : problem.when_called;
}

}  // namespace jit::c

jit_code jit_operation_create(const jit_context* context, jit_kind kind, const jit_spec* given,
                              jit_operation** operation, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(operation, "operation") = nullptr;
    const jit_context& own = checked_pointer(context, "context");
    const jit_spec spec = known_part(given, "spec");
    *operation = new jit_operation{own, problem_of_kind(own.context, kind, spec)};
  });
}

void jit_operation_free(jit_operation* operation) { delete operation; }
