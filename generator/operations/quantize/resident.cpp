#include "generator/operations/quantize/resident.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "generator/launch/tensor_maps.h"
#include "generator/operations/operation.h"
#include "generator/operations/quantize/program.h"

namespace jit {
namespace {

constexpr std::size_t control_bytes = 256;

struct Tensor {
  const char* name;
  QkvTensor tensor;
  QuantizeTensor QuantizeParams::*own;
};
constexpr std::array tensors = {Tensor{"q", QkvTensor::q, &QuantizeParams::q},
                                Tensor{"k", QkvTensor::k, &QuantizeParams::k},
                                Tensor{"v", QkvTensor::v, &QuantizeParams::v}};

MappedRows rows_of(const QuantizeSpec& spec, const QuantizeParams& params, const Tensor& of) {
  const QuantizeTensor& own = params.*of.own;
  const QuantizedTensorFacts facts = quantized_tensor_facts(spec, of.tensor, true);
  return {.name = of.name,
          .data = own.from,
          .strides = own.from_strides,
          .batch = params.units / params.heads_kv,
          .seqlen = own.seqlen,
          .heads = std::int64_t{own.heads} * params.heads_kv,
          .columns = facts.columns,
          .box_rows = facts.chunk,
          .dtype = spec.dtype};
}

std::int64_t items_of(const QuantizeSpec& spec, const QuantizeParams& params, const Tensor& of) {
  const QuantizeTensor& own = params.*of.own;
  const std::int64_t chunk = quantized_tensor_facts(spec, of.tensor, true).chunk;
  return (own.seqlen + chunk - 1) / chunk * own.heads;
}

std::int64_t pieces_of_unit(const QuantizeSpec& spec, const QuantizeParams& params) {
  std::int64_t pieces = 0;
  for (const Tensor& tensor : tensors) pieces += items_of(spec, params, tensor);
  return pieces;
}

// Number of pieces that all blocks can keep, with one block per SM.
std::int64_t room_of(const QuantizeSpec& spec, int blocks) {
  return std::int64_t{resident_layout_of(spec).depth} * blocks;
}

// Further sizes that a launch needs.
struct ResidentSizes {
  int pieces = 0;  // of work
  std::size_t memory_bytes = 0;
};

// Parameters for a grid of `blocks` blocks, with offsets for memory addresses.
ResidentParams resident_params(const QuantizeSpec& spec, const QuantizeParams& params, int blocks,
                               ResidentSizes& sizes) {
  ResidentParams resident{};
  resident.all = params;
  const std::int64_t of_unit = pieces_of_unit(spec, params);
  sizes.pieces = static_cast<int>(of_unit * params.units);
  // The most units with resident pieces, plus one that may be under summation
  // (templates/quantize_resident/poller.cuh).
  const std::int64_t units = (room_of(spec, blocks) + of_unit - 1) / of_unit + 1;
  resident.window = static_cast<int>(std::min<std::int64_t>(units, params.units));
  resident.iterations = (params.units + resident.window - 1) / resident.window;
  std::size_t words = 0;
  for (const Tensor& of : tensors) {
    const QuantizedTensorFacts facts = quantized_tensor_facts(spec, of.tensor, true);
    const auto items = static_cast<std::size_t>(items_of(spec, params, of));
    (resident.all.*of.own).items = static_cast<int>(items);
    resident.maps[static_cast<int>(of.tensor)] = map_rows(rows_of(spec, params, of));
    ResidentTensor& own = resident.tensors[static_cast<int>(of.tensor)];
    const auto place = [&](ResidentWord*& pointer, std::size_t count) {
      pointer = reinterpret_cast<ResidentWord*>(control_bytes + words * sizeof(ResidentWord));
      words += (count + 31) / 32 * 32;
    };
    const auto statistics = static_cast<std::size_t>(facts.statistics);
    if (statistics == 1) place(own.found, static_cast<std::size_t>(params.units) * items);
    if (statistics <= 1) continue;
    place(own.found, static_cast<std::size_t>(resident.window) * items * statistics);
    // At most a mean and a magnitude per column.
    place(own.results, 2 * static_cast<std::size_t>(params.units) * static_cast<std::size_t>(facts.columns));
  }
  sizes.memory_bytes = control_bytes + words * sizeof(ResidentWord);
  return resident;
}

// Adds the memory's address to the offsets.
void place_resident_memory(ResidentParams& params, std::span<std::byte> memory) {
  params.control = reinterpret_cast<unsigned*>(memory.data());
  params.words = reinterpret_cast<ResidentWord*>(memory.data() + control_bytes);
  params.word_count = static_cast<int>((memory.size() - control_bytes) / sizeof(ResidentWord));
  for (ResidentTensor& own : params.tensors) {
    for (ResidentWord** pointer : {&own.found, &own.results})
      *pointer = reinterpret_cast<ResidentWord*>(memory.data() + reinterpret_cast<std::uintptr_t>(*pointer));
  }
}

}  // namespace

std::string cannot_keep_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count) {
  for (const Tensor& tensor : tensors) {
    if (!can_map(rows_of(spec, params, tensor)))
      return fmt::format(
          "{} has no rows, or strides that TMA cannot read: they must be positive and below 2^40 bytes",
          tensor.name);
    // All rows over which a scale is computed must be resident at once.
    const bool waits = quantized_tensor_facts(spec, tensor.tensor, true).statistics > 0;
    const std::int64_t items = items_of(spec, params, tensor), room = room_of(spec, sm_count);
    if (waits && items > room)
      return fmt::format("{} has {} pieces of work for a KV head, and there is room for {}", tensor.name,
                         items, room);
  }
  return "";
}

bool gains_by_keeping_rows(const QuantizeSpec& spec, const QuantizeParams& params, int sm_count) {
  // Other scales need only one read, except for V; rotating twice, or summing columns of rotated rows, takes
  // as long as a second read. Measured with head dims of 64 and more (docs/records/notebook.md).
  constexpr int least_head_dim = 64;
  if (spec.scales != QuantizedScales::head) return false;
  const bool has_means = spec.center_keys || spec.center_values;
  if (has_means && (spec.rotate || spec.dtype == DType::fp32)) return false;
  if (spec.norm || spec.rotary_dim > 0) return false;
  if (std::min(spec.head_dim, spec.value_head_dim()) < least_head_dim) return false;
  const std::int64_t room = room_of(spec, sm_count);
  for (const Tensor& tensor : tensors) {
    // The rest of the pipelines prefetches, to keep memory busy.
    const bool waits = quantized_tensor_facts(spec, tensor.tensor, true).statistics > 0;
    if (waits && 5 * items_of(spec, params, tensor) > 3 * room) return false;
  }
  // Filling all pipelines once takes as long as waiting for the first unit.
  return pieces_of_unit(spec, params) * params.units >= room;
}

void launch_resident(const StreamMemory& memory, const QuantizeSpec& spec, const QuantizeParams& params,
                     const LoadedKernel& kernel, int blocks, Stream stream) {
  ResidentSizes sizes;
  ResidentParams resident = resident_params(spec, params, blocks, sizes);
  StreamLease lease(memory, kernel.device, stream);
  place_resident_memory(resident, lease.numbered(sizes.memory_bytes));
  try {
    launch_operation(kernel, {static_cast<unsigned>(std::min(sizes.pieces, blocks)), 1}, &resident, stream,
                     true);
  } catch (const Error&) {
    lease.reset();
    throw;
  }
}

}  // namespace jit
