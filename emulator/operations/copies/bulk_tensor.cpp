// Bulk copies of boxes of a tensor (PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor",
// "cp.async.bulk.prefetch.tensor").
#include <array>
#include <bit>

#include <fmt/format.h>

#include "operations/copies/bulk.h"

namespace jit::emulator {
namespace {

constexpr std::uint32_t box_alignment = 128;   // bytes, in shared memory
constexpr std::uint32_t inner_alignment = 16;  // bytes, of a box's start in its innermost dimension

TensorMap load_map(Warp& warp, int lane, std::uint64_t address) {
  if (address % tensor_map_alignment != 0) {
    warp.stop(
        FindingKind::misaligned, lane,
        fmt::format("the tensor map at {:#x} must lie at a multiple of {}", address, tensor_map_alignment));
  }
  std::array<std::byte, tensor_map_bytes> bytes;
  load_generic(warp, lane, address, bytes.data(), bytes.size());
  const std::optional<TensorMap> map = decode(bytes);
  if (!map) {
    warp.stop(
        FindingKind::bad_descriptor, lane,
        fmt::format("the 128 bytes at {:#x} are no tensor map that cuTensorMapEncodeTiled made", address));
  }
  return *map;
}

constexpr std::size_t gathered_rows = 4;

/// [map, {c0, c1, …}]
struct TensorOperand {
  Decoder::Address map;
  std::vector<Slot> coordinates;
  bool gathers = false;  ///< .tile::gather4: {column, row, row, row, row}

  std::array<std::int32_t, 5> at(Warp& warp, int lane) const {
    std::array<std::int32_t, 5> at = {};
    for (std::size_t i = 0; i < coordinates.size(); ++i) {
      at[i] = static_cast<std::int32_t>(warp.r32(coordinates[i])[lane]);
    }
    return at;
  }

  /// Whether the box ends before the tensor's start in some dimension.
  bool lies_before(Warp& warp, int lane, const TensorMap& tensor) const {
    const std::array<std::int32_t, 5> first = at(warp, lane);
    for (std::size_t i = 0; i < coordinates.size(); ++i) {
      if (std::int64_t{first[i]} + tensor.box[i] <= 0) return true;
    }
    return false;
  }

  /// The box of its coordinates, which must fit a shared memory of `room` bytes.
  BulkRegion region(Warp& warp, int lane, const TensorMap& tensor, std::size_t room) const {
    if (gathers && tensor.rank == 2 && tensor.box[1] == 1) return gathered(warp, lane, tensor, room);
    if (gathers) {
      warp.stop(
          FindingKind::bad_descriptor, lane,
          fmt::format(
              ".tile::gather4 takes a tensor map of rank 2 and boxes of 1 row, not of rank {} and {} rows",
              tensor.rank, tensor.box[1]));
    }
    if (tensor.rank != coordinates.size()) {
      warp.stop(FindingKind::bad_descriptor, lane,
                fmt::format("the instruction has {} coordinates, the tensor map is of rank {}",
                            coordinates.size(), tensor.rank));
    }
    const std::uint64_t bytes = box_bytes(tensor);
    if (bytes > room) {
      warp.stop(
          FindingKind::out_of_bounds, lane,
          fmt::format("a box of {} bytes does not fit the block's {} bytes of shared memory", bytes, room));
    }
    const std::uint32_t row = tensor.box[0] * element_bytes(tensor.element);
    if (tensor.swizzle != TensorMap::Swizzle::none && row != swizzle_span(tensor.swizzle)) {
      warp.stop(FindingKind::bad_descriptor, lane,
                fmt::format("rows of {} bytes under a swizzle of {} are not modeled: make boxDim[0] = {}",
                            row, swizzle_span(tensor.swizzle),
                            swizzle_span(tensor.swizzle) / element_bytes(tensor.element)));
    }
    const std::array<std::int32_t, 5> first = at(warp, lane);
    const std::int64_t inner = std::int64_t{first[0]} * element_bytes(tensor.element);
    if (inner % inner_alignment != 0) {
      warp.stop(
          FindingKind::illegal_instruction, lane,
          fmt::format("the innermost coordinate {} is {} bytes into the tensor: it must be a multiple of {} "
                      "bytes, else an H200 ends with an illegal instruction",
                      first[0], inner, inner_alignment));
    }
    return tensor_region(tensor, std::span(first).first(coordinates.size()));
  }

 private:
  // Four rows, one after another.
  BulkRegion gathered(Warp& warp, int lane, const TensorMap& tensor, std::size_t room) const {
    BulkRegion whole;
    for (std::size_t i = 0; i < gathered_rows; ++i) {
      const TensorOperand one{map, {coordinates[0], coordinates[1 + i]}};
      BulkRegion row = one.region(warp, lane, tensor, room / gathered_rows);
      for (BulkRun& run : row.runs) run.offset += whole.bytes;
      row.runs.insert(row.runs.begin(), whole.runs.begin(), whole.runs.end());
      row.bytes += whole.bytes;
      whole = std::move(row);
    }
    return whole;
  }
};

void check_shared(Warp& warp, int lane, const SharedPlace& place) {
  if (place.offset % box_alignment != 0) {
    warp.stop(FindingKind::misaligned, lane,
              fmt::format("a box at byte {} of shared memory: it must be a multiple of {}", place.offset,
                          box_alignment));
  }
}

void check_global(Warp& warp, int lane, const BulkRegion& region) {
  for (const BulkRun& run : region.runs) check_global(warp, lane, run.address, run.bytes, 1);
}

// Whether all lanes `exec` have equal operands: the uniform datapath then starts one copy instead of one per
// lane.
bool is_uniform(Warp& warp, const TensorOperand& to, const SharedOperand& from) {
  const int first = std::countr_zero(warp.exec);
  const SharedPlace place = from.place(warp, first);
  bool is_same = true;
  for_each_lane(warp.exec, [&](int lane) {
    const SharedPlace other = from.place(warp, lane);
    is_same = is_same && other.block == place.block && other.offset == place.offset &&
              to.at(warp, lane) == to.at(warp, first) &&
              wide_address(warp, lane, to.map) == wide_address(warp, first, to.map);
  });
  return is_same;
}

struct LoadTensor final : Operation {
  BulkTarget target;
  TensorOperand from;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const auto receivers = target.receivers(warp, lane);
      check_shared(warp, lane, receivers.front().to);
      const TensorMap map = load_map(warp, lane, wide_address(warp, lane, from.map));
      const auto region =
          std::make_shared<const BulkRegion>(from.region(warp, lane, map, warp.block.shared.size()));
      for (const BulkRun& run : region->runs) {
        read_global(warp, lane, run.address, run.bytes, 1);
      }
      warp.count().global_read_bytes += region->global_bytes();
      const Issue issue(warp, lane);
      for (const auto& receiver : receivers) {
        start_load(warp, lane, region, issue, receiver.to, *receiver.mbarrier);
      }
    });
    return Flow::next;
  }
};

struct StoreTensor final : Operation {
  TensorOperand to;
  SharedOperand from;
  std::optional<Reduction::Operator> reduction;

  Flow execute(Warp& warp) const override {
    const bool is_once = warp.launch().options.level == Level::silicon && is_uniform(warp, to, from);
    for_each_lane(is_once ? warp.exec & (~warp.exec + 1) : warp.exec, [&](int lane) {
      const SharedPlace place = from.place(warp, lane);
      check_shared(warp, lane, place);
      if (place.block != &warp.block) {
        warp.stop(FindingKind::out_of_bounds, lane,
                  fmt::format("the source is in block {} of the cluster; .shared::cta is the own block",
                              place.block->rank));
      }
      const TensorMap map = load_map(warp, lane, wide_address(warp, lane, to.map));
      std::optional<Reduction> reduces;
      if (reduction) {
        reduces = tensor_reduction(*reduction, map.element);
        if (!reduces) {
          warp.stop(FindingKind::bad_descriptor, lane,
                    fmt::format("the elements of the tensor map, of data type {}, cannot be reduced so",
                                static_cast<int>(map.element)));
        }
      }
      BulkRegion region = to.region(warp, lane, map, warp.block.shared.size());
      if (to.lies_before(warp, lane, map)) {
        warp.stop(FindingKind::out_of_bounds, lane,
                  "a store of a box that lies wholly before its tensor: an illegal instruction on an H200");
      }
      check_global(warp, lane, region);
      warp.count().shared_read_bytes += region.bytes;
      warp.count().global_write_bytes += region.global_bytes();
      bulk_state(warp).add(
          lane, std::make_unique<CopyToGlobal>(Issue(warp, lane), place, std::move(region), reduces));
    });
    return Flow::next;
  }
};

struct PrefetchTensor final : Operation {
  TensorOperand from;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const TensorMap map = load_map(warp, lane, wide_address(warp, lane, from.map));
      check_global(warp, lane, from.region(warp, lane, map, warp.launch().options.smem_limit));
    });
    return Flow::next;
  }
};

struct PrefetchTensorMap final : Operation {
  Decoder::Address map;
  bool is_parameter;  // the address is an offset in the parameter block

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      if (!is_parameter) load_map(warp, lane, wide_address(warp, lane, map));
    });
    return Flow::next;
  }
};

TensorOperand tensor_operand(Decoder& decoder, std::size_t index, std::size_t rank, bool gathers = false) {
  const ptx::Operand& operand = decoder.operand(index);
  if (decoder.parameter_offset(operand)) {
    decoder.fail(
        fmt::format("{} is in .param: take its generic address with cvta.param first", operand.name));
  }
  TensorOperand tensor{decoder.address(index), {}, gathers};
  if (tensor.map.narrow) decoder.fail("a tensor map has a generic address of 64 bits");
  if (operand.elements.size() != 1 || operand.elements.front().kind != ptx::Operand::Kind::vector) {
    decoder.fail("a tensor is written as [map, {coordinates}]");
  }
  const std::vector<ptx::Operand>& coordinates = operand.elements.front().elements;
  const std::size_t count = gathers ? 1 + gathered_rows : rank;
  if ((gathers && rank != 2) || coordinates.size() != count) {
    decoder.fail(gathers ? ".tile::gather4 is .2d and takes a column and 4 rows"
                         : fmt::format(".{}d takes {} coordinates, not {}", rank, rank, coordinates.size()));
  }
  for (const ptx::Operand& coordinate : coordinates) {
    tensor.coordinates.push_back(decoder.source(coordinate, Type::s32));
  }
  return tensor;
}

std::size_t take_rank(Decoder& decoder) {
  return static_cast<std::size_t>(decoder.take_one_of({"1d", "2d", "3d", "4d", "5d"}).front() - '0');
}

// Returns whether rows are gathered.
bool take_mode(Decoder& decoder, bool is_load = false) {
  decoder.take("tile");
  if (is_load && decoder.take("tile::gather4")) {
    decoder.require_arch(10, 0);
    return true;
  }
  for (const char* mode :
       {"im2col", "im2col_no_offs", "im2col::w", "im2col::w::128", "tile::gather4", "tile::scatter4"}) {
    if (decoder.has(mode)) {
      decoder.fail(fmt::format("mode .{} is not known to the emulator, .tile is", mode));
    }
  }
  return false;
}

// Takes .cta_group::2 of loads: the mbarrier may be in either block of a pair.
bool take_is_of_pair(Decoder& decoder) {
  const std::string_view group = decoder.take_any_of({"cta_group::1", "cta_group::2"});
  if (!group.empty()) decoder.require_arch(10, 0);
  return group == "cta_group::2";
}

}  // namespace

std::unique_ptr<const Operation> decode_bulk_tensor(Decoder& decoder, bool is_reduction) {
  const std::size_t rank = take_rank(decoder);
  const std::string to = decoder.take_next();
  const std::string from = decoder.take_next();
  const bool gathers = take_mode(decoder, from == "global");
  if (to == "global" && from == "shared::cta") {
    auto operation = std::make_unique<StoreTensor>();
    if (is_reduction) {
      operation->reduction =
          parse_reduction(decoder.take_one_of({"add", "min", "max", "inc", "dec", "and", "or", "xor"}));
    }
    if (!decoder.take("bulk_group")) decoder.fail("a bulk copy to .global completes by .bulk_group");
    operation->to = tensor_operand(decoder, 0, rank);
    operation->from = shared_operand(decoder, 1, false);
    decoder.expect_count(2 + take_cache_hint(decoder, 2));
    return operation;
  }
  if ((to != "shared::cluster" && to != "shared::cta") || from != "global" || is_reduction) {
    decoder.fail(fmt::format("bulk copies of tensors from .{} to .{} do not exist", from, to));
  }
  if (!decoder.take("mbarrier::complete_tx::bytes")) {
    decoder.fail("a bulk copy to shared memory completes by .mbarrier::complete_tx::bytes");
  }
  auto operation = std::make_unique<LoadTensor>();
  operation->target.own_block = to == "shared::cta";
  operation->target.to = shared_operand(decoder, 0, false);
  operation->from = tensor_operand(decoder, 1, rank, gathers);
  operation->target.mbarrier = shared_operand(decoder, 2, false);
  std::size_t operands = 3;
  if (!operation->target.own_block && decoder.take("multicast::cluster")) {
    operation->target.block_mask = decoder.source(operands++, Type::u16);
  }
  operation->target.is_of_pair = take_is_of_pair(decoder);
  decoder.expect_count(operands + take_cache_hint(decoder, operands));
  return operation;
}

std::unique_ptr<const Operation> decode_bulk_tensor_prefetch(Decoder& decoder) {
  const std::size_t rank = take_rank(decoder);
  for (const char* word : {"L2", "global"}) {
    if (!decoder.take(word)) decoder.fail(fmt::format("lacks .{}", word));
  }
  take_mode(decoder);
  auto operation = std::make_unique<PrefetchTensor>();
  operation->from = tensor_operand(decoder, 0, rank);
  decoder.expect_count(1 + take_cache_hint(decoder, 1));
  return operation;
}

std::unique_ptr<const Operation> decode_prefetch_tensormap(Decoder& decoder) {
  decoder.require_arch(9, 0);
  decoder.set_class(InstructionClass::async_copy);
  decoder.take("tensormap");
  const std::string_view space = decoder.take_any_of({"const", "param"});
  decoder.expect_count(1);
  auto operation = std::make_unique<PrefetchTensorMap>();
  operation->map = decoder.address(0);
  operation->is_parameter = space == "param" || decoder.parameter_offset(decoder.operand(0)).has_value();
  return operation;
}

}  // namespace jit::emulator
