#include <jit/list_mass.h>

#include <array>
#include <cstdint>

#include <jit/device.h>

#include "generator/operations/list_mass/arguments.h"
#include "generator/operations/list_mass/program.h"
#include "generator/operations/operation.h"

namespace jit {
namespace {

// Names every member, so that a spec with a new one does not compile here.
std::array<std::uint64_t, 4> words_of(const ListMassSpec& spec) {
  const auto& [dtype, head_dim, heads] = spec;
  constexpr std::uint64_t list_mass = 23;  // unique to this operation
  return {list_mass, static_cast<std::uint64_t>(dtype), static_cast<std::uint64_t>(head_dim),
          static_cast<std::uint64_t>(heads)};
}

}  // namespace

void check_arguments(const ListMassSpec& spec, const ListMassArguments& arguments) {
  ListMassParams unused;
  fill_params(spec, arguments, unused);
}

void ListMass::operator()(const ListMassArguments& arguments, Stream stream) const {
  ListMassParams params;
  const unsigned blocks = fill_params(spec_, arguments, params);
  if (blocks == 0) return;
  const CurrentDevice device;
  launch_operation(kernel_for_launch(*state_, device.ordinal(), stream), {blocks, 1}, &params, stream);
}

void ListMass::prepare() const { prepared_kernel(*state_); }

const std::string& ListMass::source() const { return state_->programs.every_size.source; }

ListMass list_mass(const ListMassSpec& spec, const Context& context) {
  validate(spec);
  return operation<ListMass>(context, spec, words_of(spec), [&] { return list_mass_program(spec); });
}

}  // namespace jit
