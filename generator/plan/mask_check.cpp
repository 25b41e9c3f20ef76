#include "generator/plan/mask_check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include "generator/launch/loaded_kernel.h"
#include "generator/launch/memory_sizes.h"
#include "generator/program/emit.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"
#include "templates/checks/mask_fault.cuh"

namespace jit {
namespace {

std::string_view name_of(MaskStatement statement) {
  constexpr std::string_view names[] = {"",           "row_range",      "kept_bits", "keeps",
                                        "key_range",  "lane_key_range", "classify",  "next_key",
                                        "next_query", "next_tile"};
  const auto i = static_cast<std::size_t>(statement);
  return i < std::size(names) ? names[i] : names[0];
}

std::string text_of(const MaskFault& fault, const std::string& mask) {
  const char* const by_keep = fault.is_kept != 0 ? "sees" : "does not see";
  const char* const else_wise = fault.is_kept != 0 ? "does not" : "does";
  return fmt::format(
      "mask '{}': query {} of batch entry {} and head {} {} key {} by its keep, and by its {} it {}; both "
      "must "
      "agree, because kernels ask either",
      mask, fault.q, fault.batch, fault.head, by_keep, fault.k, name_of(fault.statement), else_wise);
}

}  // namespace

void check_mask(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                Stream stream) {
  if (spec.mask == mask::none() || is_capturing(stream)) return;
  const Program program = emit_mask_check(spec);
  auto image = build_image(store, program, native_target(device_info(device)));
  const Kernel kernel = load_module(store, image).kernel(program.name);
  const std::unique_ptr<const DeviceBuffer> slot = make_filled(device, sizeof(MaskFault), 0);
  AttentionParams given = params;
  void* address = slot->data();
  void* arguments[] = {&given, &address};
  // One warp per row tile and head, even if the mask depends on fewer: surplus warps return at once.
  const std::int64_t row_tiles = (std::int64_t{params.seqlen_q} + mask_check_rows - 1) / mask_check_rows;
  const std::int64_t warps = row_tiles * params.heads_q * params.batch, of_block = program.threads / 32;
  const auto blocks = static_cast<unsigned>((warps + of_block - 1) / of_block);
  launch(kernel.handle(), {.grid = {blocks, 1, 1}, .block = {static_cast<unsigned>(program.threads), 1, 1}},
         arguments, stream);
  MaskFault fault{};
  slot->download(&fault, sizeof fault, 0, stream);
  if (fault.statement == MaskStatement::none) return;
  throw Error(ErrorCode::invalid_spec, "launch", "spec.mask", text_of(fault, spec.mask.to_string()));
}

}  // namespace jit
