#include <jit/key_union.h>

#include <array>
#include <cstdint>

#include <jit/device.h>

#include "generator/operations/key_union/arguments.h"
#include "generator/operations/key_union/program.h"
#include "generator/operations/operation.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 2> words_of(const KeyUnionSpec& spec) {
  const auto& [queries] = spec;
  constexpr std::uint64_t key_union = 20;  // unique to this operation
  return {key_union, static_cast<std::uint64_t>(queries)};
}

}  // namespace

void check_arguments(const KeyUnionSpec& spec, const KeyUnionArguments& arguments) {
  KeyUnionParams unused;
  fill_params(spec, arguments, unused);
}

void KeyUnion::operator()(const KeyUnionArguments& arguments, Stream stream) const {
  KeyUnionParams params;
  const unsigned blocks = fill_params(spec_, arguments, params);
  if (blocks == 0) return;
  const CurrentDevice device;
  launch_operation(kernel_for_launch(*state_, device.ordinal(), stream), {blocks, 1}, &params, stream);
}

void KeyUnion::prepare() const { prepared_kernel(*state_); }

const std::string& KeyUnion::source() const { return state_->programs.every_size.source; }

KeyUnion key_union(const KeyUnionSpec& spec, const Context& context) {
  return operation<KeyUnion>(context, spec, words_of(spec), [&] {
    validate(spec);
    return key_union_program(spec);
  });
}

}  // namespace jit
