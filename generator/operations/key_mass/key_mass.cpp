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
#include "generator/problem/tma_operands.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 4> words_of(const KeyMassSpec& spec) {
  const auto& [attention, per_query_head] = spec;
  std::vector<std::uint64_t> words;
  for (const SpecField& field : spec_fields()) words.push_back(value_word(field, attention));
  const Digest known = digest(std::as_bytes(std::span(words)));
  constexpr std::uint64_t key_mass = 8;  // unique to this operation
  return {key_mass, known.high, known.low, per_query_head ? std::uint64_t{1} : 0};
}

OperationPrograms programs_of(const KeyMassSpec& spec) {
  validate(spec);
  if (spec.attention.alignment != tma_alignment || !has_mass_boxes(spec.attention.page_size))
    return key_mass_program(spec);
  return {key_mass_program(spec), key_mass_wgmma_program(spec)};
}

// Whether the device can run the wgmma kernel.
bool has_wgmma(const OperationState& state, const Arch& arch) {
  return state.programs.some_sizes && arch == Arch{9, 0, 'a'};
}

}  // namespace

void check_arguments(const KeyMassSpec& spec, const KeyMassArguments& arguments) {
  KeyMassParams unused;
  fill_params(spec, arguments, unused);
}

void KeyMass::operator()(const KeyMassArguments& arguments, Stream stream) const {
  KeyMassMaps maps;
  const unsigned blocks = fill_params(spec_, arguments, maps.of_all);
  if (blocks == 0) return;
  const CurrentDevice device;
  const LoadedKernel& kernel = kernel_for_launch(*state_, device.ordinal(), stream);
  if (has_wgmma(*state_, kernel.image->target.arch)) {
    if (const unsigned larger_blocks = fill_maps(spec_, maps); larger_blocks != 0) {
      const LoadedKernel& by_wgmma =
          kernel_for_launch(*state_, device.ordinal(), stream, OperationProgram::some_sizes);
      // The general kernel replaces an unavailable wgmma one.
      if (&by_wgmma != &kernel) return launch_operation(by_wgmma, {larger_blocks, 1}, &maps, stream);
    }
  }
  launch_operation(kernel, {blocks, 1}, &maps.of_all, stream);
}

void KeyMass::prepare() const {
  const LoadedKernel& kernel = prepared_kernel(*state_);
  if (has_wgmma(*state_, kernel.image->target.arch)) faster_kernel(*state_, OperationProgram::some_sizes);
}

const std::string& KeyMass::source() const { return state_->programs.every_size.source; }

KeyMass key_mass(const KeyMassSpec& spec, const Context& context) {
  return operation<KeyMass>(context, spec, words_of(spec), [&] { return programs_of(spec); });
}

}  // namespace jit
