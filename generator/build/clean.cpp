#include "generator/build/clean.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "generator/context_state.h"

namespace jit {
namespace {

// How many configs to try for one that is clean before settling for the least bad: bounds the first
// compile.
constexpr std::size_t most_attempts = 4;

// Configs that differ in buffering alone need the same registers, near enough: when one spills, so does the
// other.
bool need_alike_registers(const KernelConfig& a, const KernelConfig& b) {
  return a.mainloop == b.mainloop && a.overlap == b.overlap && a.p_in_registers == b.p_in_registers &&
         a.persistent == b.persistent && a.stages_q == b.stages_q && a.order == b.order &&
         a.tile_q == b.tile_q && a.tile_kv == b.tile_kv && a.warps == b.warps &&
         a.q_in_registers == b.q_in_registers && a.blocks_per_sm == b.blocks_per_sm &&
         a.direct_o == b.direct_o && a.polynomial_exp2 == b.polynomial_exp2 && a.rescale == b.rescale;
}

// What makes one unclean kernel worse than another: serialised multiplications first, then local memory.
std::pair<bool, int> cost(const KernelImage& image) {
  return {image.resources.serializes_wgmma(), image.resources.spill_bytes() + image.resources.stack_bytes};
}

}  // namespace

BuiltConfig build_clean(ContextState& context, const std::vector<KernelConfig>& configs,
                        const std::function<Program(const KernelConfig&)>& write, Target target) {
  if (target.form == CodeForm::ptx) return {configs[0], build_image(context, write(configs[0]), target)};
  BuiltConfig best;
  std::vector<KernelConfig> tried;
  for (const KernelConfig& config : configs) {
    if (tried.size() == most_attempts) break;
    const auto is_alike = [&](const KernelConfig& other) { return need_alike_registers(config, other); };
    if (std::any_of(tried.begin(), tried.end(), is_alike)) continue;
    tried.push_back(config);
    auto image = build_image(context, write(config), target);
    if (image->resources.is_clean()) return {config, std::move(image)};
    if (!best.image || cost(*image) < cost(*best.image)) best = {config, std::move(image)};
  }
  const ResourceUsage& resources = best.image->resources;
  context.notify(
      Event::Kind::warning,
      fmt::format("{} {}: no clean config was found", best.image->program.name,
                  resources.serializes_wgmma() ? "waits between its multiplications"
                                               : fmt::format("spills {} bytes", resources.spill_bytes())));
  return best;
}

}  // namespace jit
