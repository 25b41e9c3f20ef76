#include <jit/key_mass.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <jit/device.h>
#include <jit/spec_table.h>

#include "cache/digest.h"
#include "generator/operations/key_mass/arguments.h"
#include "generator/operations/key_mass/program.h"
#include "generator/operations/operation.h"

namespace jit {
namespace {

// Names every member: a spec with another one does not compile here.
std::array<std::uint64_t, 4> words_of(const KeyMassSpec& spec) {
  const auto& [attention, per_query_head] = spec;
  std::vector<std::uint64_t> words;
  for (const SpecField& field : spec_fields()) words.push_back(value_word(field, attention));
  const Digest known = digest(std::as_bytes(std::span(words)));
  constexpr std::uint64_t key_mass = 8;  // no other operation's
  return {key_mass, known.high, known.low, per_query_head ? std::uint64_t{1} : 0};
}

}  // namespace

void check_arguments(const KeyMassSpec& spec, const KeyMassArguments& arguments) {
  KeyMassParams unused;
  fill_params(spec, arguments, unused);
}

void KeyMass::operator()(const KeyMassArguments& arguments, Stream stream) const {
  KeyMassParams params;
  const unsigned blocks = fill_params(spec_, arguments, params);
  if (blocks == 0) return;
  const CurrentDevice device;
  launch_operation(kernel_for_launch(*state_, device.ordinal(), stream), {blocks, 1}, &params, stream);
}

void KeyMass::prepare() const { prepared_kernel(*state_); }

const std::string& KeyMass::source() const { return state_->programs.every_size.source; }

KeyMass key_mass(const KeyMassSpec& spec, const Context& context) {
  return operation<KeyMass>(context, spec, words_of(spec), [&] {
    validate(spec);
    return key_mass_program(spec);
  });
}

}  // namespace jit
