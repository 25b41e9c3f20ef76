// tcgen05.cp: copies from shared memory to tensor memory (PTX ISA, "tcgen05.cp").
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "operations/barriers/mbarrier_wait.h"
#include "operations/tcgen05/descriptors.h"
#include "operations/tcgen05/state.h"
#include "operations/tcgen05/tensor_warp.h"
#include "operations/tensor/tensor_formats.h"

namespace jit::emulator {
namespace {

struct CopyShape {
  std::string_view name, copies;
  int rows, words;
  /// The source row of a lane of tensor memory.
  int (*row_of)(int lane);
};
constexpr CopyShape shapes_of_copies[] = {
    {"128x256b", "", 128, 8, [](int lane) { return lane; }},
    {"128x128b", "", 128, 4, [](int lane) { return lane; }},
    {"64x128b", "warpx2::02_13", 64, 4, [](int lane) { return lane / 64 * 32 + lane % 32; }},
    {"64x128b", "warpx2::01_23", 64, 4, [](int lane) { return lane % 64; }},
    {"32x128b", "warpx4", 32, 4, [](int lane) { return lane % 32; }},
};

class CopyToTensorMemory final : public TensorOperation {
 public:
  CopyToTensorMemory(const Issue& issue, Agent agent, std::uint32_t time, const CopyShape& shape,
                     TensorPlace to, std::uint64_t from, std::vector<Block*> blocks)
      : issue_(issue),
        agent_(agent),
        time_(time),
        shape_(shape),
        to_(to),
        from_(from),
        blocks_(std::move(blocks)) {}

  /// Element type of padded pieces that are widened to bytes; b8: already bytes.
  Type from_type = Type::b8;

  void complete(bool) override {
    const OperandLayout layout(parse_tensor_descriptor(from_), Major::k);
    const auto words = static_cast<std::size_t>(shape_.words);
    std::vector<std::uint32_t> rows(static_cast<std::size_t>(shape_.rows) * words);
    for (Block* const block : blocks_) {
      layout.read(block->shared, issue_.access(agent_, time_), 0, shape_.rows, 0, shape_.words / 4,
                  reinterpret_cast<std::byte*>(rows.data()));
      widen_elements(from_type, reinterpret_cast<std::byte*>(rows.data()), rows.size() / 4);
      TensorMemory& memory = block->tensor->memory;
      for (int lane = 0; lane < tensor_lanes; ++lane) {
        std::memcpy(memory.row(lane) + to_.column,
                    &rows[static_cast<std::size_t>(shape_.row_of(lane)) * words],
                    words * sizeof(std::uint32_t));
      }
      memory.land({0xff, to_.column, shape_.words});
    }
  }

 private:
  const Issue issue_;
  const Agent agent_;
  const std::uint32_t time_;
  const CopyShape& shape_;
  const TensorPlace to_;
  const std::uint64_t from_;
  const std::vector<Block*> blocks_;
};

struct CopyToTensor final : Operation {
  int blocks = 1;
  const CopyShape* shape = nullptr;
  Decoder::Address to;
  Slot from = 0;
  Type from_type = Type::b8;

  Flow execute(Warp& warp) const override {
    check_cta_group(warp, blocks);
    for_each_lane(warp.exec, [&](int lane) { issue(warp, lane); });
    return Flow::next;
  }

 private:
  void issue(Warp& warp, int lane) const {
    const TensorPlace place = TensorPlace::of(
        static_cast<std::uint32_t>((to.narrow ? warp.r32(to.base)[lane] : warp.r64(to.base)[lane]) +
                                   static_cast<std::uint64_t>(to.offset)));
    const std::uint64_t bits = warp.r64(from)[lane];
    if (const std::string fault = tensor_descriptor_fault(bits, Major::k, shape->words / 4); !fault.empty()) {
      warp.stop(FindingKind::bad_descriptor, lane,
                fmt::format("the descriptor of the source, {:#018x}: {}", bits, fault));
    }
    std::vector<Block*> both = {&warp.block};
    if (blocks == 2) both.push_back(&peer_of(warp));
    TensorWarp& own = TensorWarp::of(warp);
    TensorWarp::Products& issued = own.products(warp, lane);
    ++issued.issued;
    const TensorAccess access = own.product_access(warp, lane);
    const TensorRegion region{0xff, place.column, shape->words};
    for (Block* const block : both) {
      TensorUnitState& unit = tensor_unit(*block);
      const int foreign = unit.allocation.first_foreign(region.first, region.columns);
      if (place.lane != 0 || foreign >= 0) {
        warp.stop(FindingKind::out_of_bounds, lane,
                  place.lane != 0
                      ? fmt::format("copies begin at lane 0 of tensor memory, not at {}", place.lane)
                      : fmt::format("writes columns {} to {} of tensor memory, and column {} is not "
                                    "allocated",
                                    region.first, region.first + region.columns - 1, foreign));
      }
      unit.memory.begin_write(access, region);
    }
    warp.count().shared_read_bytes += static_cast<std::uint64_t>(shape->rows * shape->words * 4 * blocks);
    auto copy = std::make_unique<CopyToTensorMemory>(Issue(warp, lane), issued.agent, issued.issued, *shape,
                                                     place, bits, std::move(both));
    copy->from_type = from_type;
    tensor_unit(warp.block).pipe.issue(std::move(copy));
  }
};

}  // namespace

std::unique_ptr<const Operation> decode_tensor_copy(Decoder& decoder) {
  auto operation = std::make_unique<CopyToTensor>();
  decoder.set_class(InstructionClass::matrix_load);
  operation->blocks = take_cta_group(decoder);
  const std::string_view name = decoder.take_one_of({"128x256b", "128x128b", "64x128b", "32x128b"});
  const std::string_view copies = decoder.take_any_of({"warpx2::02_13", "warpx2::01_23", "warpx4"});
  operation->shape =
      std::find_if(std::begin(shapes_of_copies), std::end(shapes_of_copies),
                   [&](const CopyShape& shape) { return shape.name == name && shape.copies == copies; });
  if (operation->shape == std::end(shapes_of_copies)) {
    decoder.fail(fmt::format(".{} does not go with .{}", name, copies.empty() ? "all warps" : copies));
  }
  if (decoder.take("b8x16"))
    operation->from_type =
        decoder.take_one_of({"b4x16_p64", "b6x16_p32"}) == "b4x16_p64" ? Type::e2m1 : Type::e2m3;
  decoder.expect_count(2);
  operation->to = decoder.address(0);
  operation->from = decoder.source(1, Type::b64);
  return operation;
}

}  // namespace jit::emulator
