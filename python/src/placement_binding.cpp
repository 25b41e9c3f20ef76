// Placements as plain values; jit_attention/distributed/placement.py wraps them in its class.
#include "placement_binding.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/placement.h>

#include "array.h"
#include "given.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

namespace nb = nanobind;

std::vector<std::int64_t> numbers_of(nb::handle sequence) {
  std::vector<std::int64_t> numbers;
  for (nb::handle number : sequence) numbers.push_back(nb::cast<std::int64_t>(number));
  return numbers;
}

PlacementMode mode_of(const std::string& name) {
  std::string names;
  for (const PlacementMode mode : {PlacementMode::balanced, PlacementMode::contiguous, PlacementMode::zigzag,
                                   PlacementMode::striped, PlacementMode::chunks}) {
    if (to_string(mode) == name) return mode;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", to_string(mode));
  }
  refuse("mode", fmt::format("is \"{}\"; it must be one of {}", name, names));
}

nb::list pairs(const std::vector<IndexRange>& ranges) {
  nb::list list;
  for (const IndexRange& range : ranges) list.append(nb::make_tuple(range.begin, range.end));
  return list;
}

/// Returns (runs, pieces, needs, remote rows, loads, imbalance, digest, picture), the first five per rank.
nb::tuple place_granules(nb::handle mask, std::int64_t seqlen, int ranks, int granule,
                         const std::string& mode, std::int64_t stripe, nb::handle chunks,
                         nb::handle documents, nb::handle classes, double partial_weight, double tolerance) {
  PlacementOptions options{.mode = mode_of(mode), .stripe = stripe, .tolerance = tolerance};
  for (nb::handle of_rank : chunks) {
    options.chunks.emplace_back();
    for (nb::handle chunk : of_rank) {
      const std::vector<std::int64_t> ends = numbers_of(chunk);
      if (ends.size() != 2) refuse("chunks", "must have (begin, end) for each run of positions");
      options.chunks.back().push_back({ends[0], ends[1]});
    }
  }
  const std::vector<std::int64_t> lengths = numbers_of(documents);
  std::vector<std::uint8_t> blocks;
  if (!classes.is_none()) {
    const nb::bytes bytes = nb::cast<nb::bytes>(classes);
    const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.c_str());
    blocks.assign(first, first + bytes.size());
  }
  const Mask of_rows = mask_of(mask);
  const Placement placement = without_lock([&] {
    return place(classes.is_none() ? work_of_mask(of_rows, seqlen, granule, lengths)
                                   : work_of_blocks(blocks, seqlen, granule, partial_weight),
                 ranks, options);
  });
  nb::list runs, pieces, needs, remote, loads;
  for (int rank = 0; rank < ranks; ++rank) {
    runs.append(pairs(placement.runs(rank)));
    nb::list of_rank;
    for (const PositionPiece& piece : placement.pieces(rank))
      of_rank.append(nb::make_tuple(piece.row, piece.position, piece.run, piece.stride));
    pieces.append(of_rank);
    needs.append(pairs(placement.needs[static_cast<std::size_t>(rank)]));
    remote.append(placement.remote_rows(rank));
    loads.append(placement.loads[static_cast<std::size_t>(rank)]);
  }
  return nb::make_tuple(runs, pieces, needs, remote, loads, placement.imbalance(), placement.digest(),
                        placement.show());
}

}  // namespace

void bind_placement(nb::module_& module) {
  using namespace nb::literals;
  module.def("place", &place_granules, "mask"_a.none(), "seqlen"_a, "ranks"_a, "granule"_a, "mode"_a,
             "stripe"_a, "chunks"_a, "documents"_a, "classes"_a.none(), "partial_weight"_a, "tolerance"_a);
}

}  // namespace jit::python
