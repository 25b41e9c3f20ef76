#include "block_map.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "block_rows.h"
#include "command.h"
#include "npy.h"
#include "number_options.h"

namespace jit::tool {
namespace {

std::int64_t blocks_of(std::int64_t length, int side) { return (length + side - 1) / side; }

// `given` describes the file.
void check_shape(const BlockMap& map, const std::string& given) {
  const std::vector<std::int64_t>& shape = map.blocks.shape;
  const auto& [batch, heads_q, seqlen_q, seqlen_kv] = map.sizes;
  const auto refuse = [&](const std::string& why) { throw BadInput(fmt::format("{}; {}", given, why)); };
  const std::int64_t rows = blocks_of(seqlen_q, map.spec.block_q),
                     columns = blocks_of(seqlen_kv, map.spec.block_kv);
  if (shape[2] != rows || shape[3] != columns) {
    refuse(fmt::format("{} queries and {} keys have {} by {} blocks of {} by {}", seqlen_q, seqlen_kv, rows,
                       columns, map.spec.block_q, map.spec.block_kv));
  }
  if (shape[0] != 1 && shape[0] != batch) refuse(fmt::format("batch entries must be 1 or {}", batch));
  if (shape[1] != 1 && shape[1] != heads_q) refuse(fmt::format("heads must be 1 or {}", heads_q));
}

}  // namespace

void add_block_map_options(CLI::App& app, BlockMapOptions& options) {
  CLI::Option* map =
      app.add_option(
             "--block-map", options.paths,
             "File of booleans (rows, columns) or (batch or 1, heads or 1, rows, columns): the blocks "
             "of queries and keys that are visible; --mask decides within them. Or two files, "
             "INDPTR,INDICES: block-sparse rows")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->expected(1, 2)
          ->check(must_not_be_empty);
  add_whole_option(app, "--block-size", options.sides,
                   "Queries and keys of these blocks, multiples of 16 up to 4096")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->expected(2)
      ->capture_default_str()
      ->needs(map);
  add_whole_option(
      app, "--block-scores", options.scores,
      "Partial blocks of each batch entry and head whose scores have a bit each; --mask is evaluated "
      "in other partial blocks",
      {1, std::uint64_t{1} << 31})
      ->needs(map);
}

std::optional<BlockMap> read_block_map(const BlockMapOptions& options, const BlockMapSizes& sizes,
                                       AttentionSpec& spec) {
  if (options.paths.empty()) return std::nullopt;
  BlockMap map{.spec = {.mask = spec.mask,
                        .block_q = options.sides[0],
                        .block_kv = options.sides[1],
                        .varlen_q = spec.sequences_q == SequenceKind::varlen,
                        .varlen_kv = spec.sequences_kv == SequenceKind::varlen,
                        .scores = options.scores > 0},
               .sizes = sizes,
               .blocks = {},
               .room = options.scores};
  validate(map.spec);
  const bool is_map = options.paths.size() == 1;
  map.blocks =
      is_map ? read_npy(options.paths[0])
             : map_of_rows(options.paths[0], options.paths[1], blocks_of(sizes.seqlen_kv, map.spec.block_kv));
  const std::string given = fmt::format("--block-map {} {} {}", fmt::join(options.paths, ","),
                                        is_map ? "is" : "is a map", describe(map.blocks));
  if (map.blocks.shape.size() == 2) map.blocks.shape.insert(map.blocks.shape.begin(), {1, 1});
  if (map.blocks.dtype != DType::uint8 || map.blocks.shape.size() != 4) {
    throw BadInput(given +
                   "; it must be of bool or uint8, and its shape (rows, columns) or (batch or 1, heads or 1, "
                   "rows, columns)");
  }
  check_shape(map, given);
  const auto over = map.spec.scores ? mask::block_scores : mask::block_mask;
  spec.mask = over(map.spec.block_q, map.spec.block_kv, map.spec.mask);
  return map;
}

std::vector<std::string> written_tensors(const BlockMap& map) {
  if (!map.spec.scores) return {"block_mask"};
  return {"block_mask", "block_places", "block_scores"};
}

void add_known_table(const BlockMap& map, NamedArrays& tensors) {
  for (const std::string& name : written_tensors(map)) {
    if (tensors.contains(name))
      throw BadInput(
          fmt::format("--tensor {} is given beside --block-map, which makes it; give one of them", name));
  }
  const auto& [batch, heads_q, seqlen_q, seqlen_kv] = map.sizes;
  const auto empty = [](const std::array<std::int64_t, 4>& shape) {
    return zeros(DType::int32, {shape.begin(), shape.end()});
  };
  if (map.spec.scores) {
    Array places = empty(block_places_shape(map.spec, batch, heads_q, seqlen_q, seqlen_kv));
    std::fill(places.bytes.begin(), places.bytes.end(), decltype(places.bytes)::value_type{0xff});  // -1
    tensors.emplace("block_places", std::move(places));
    tensors.emplace("block_scores", empty(block_scores_shape(map.spec, batch, heads_q, map.room)));
  }
  Array table = empty(block_mask_shape(map.spec, batch, heads_q, seqlen_q, seqlen_kv));
  const bool is_all_seen = map.spec.mask == Mask();
  const std::vector<std::int64_t>& given = map.blocks.shape;
  const std::int64_t rows = table.shape[2], words = table.shape[3], columns = given[3];
  const auto* block = map.blocks.as<std::uint8_t>();
  auto* row = table.as<std::uint32_t>();
  for (std::int64_t slice = 0; slice < table.shape[0] * table.shape[1]; ++slice) {
    const std::int64_t b = slice / table.shape[1] % given[0], h = slice % table.shape[1] % given[1];
    for (std::int64_t i = 0; i < rows; ++i, row += words) {
      row[words - 1] = static_cast<std::uint32_t>(i);
      for (std::int64_t j = 0; j < columns; ++j) {
        if (block[((b * given[1] + h) * rows + i) * columns + j] == 0) continue;
        const std::uint32_t bit = std::uint32_t{1} << j % 32;
        row[j / 32 * 2] |= bit;
        if (is_all_seen) row[j / 32 * 2 + 1] |= bit;
      }
    }
  }
  tensors.emplace("block_mask", std::move(table));
}

BlockMaskArguments block_mask_arguments(BlockMap& map, NamedArrays& tensors, const Place& place) {
  const auto written = [&](const char* name) {
    Array& array = tensors.at(name);
    return view(array, place(array));
  };
  BlockMaskArguments arguments{.block_mask = written("block_mask"),
                               .block_places = map.spec.scores ? written("block_places") : TensorView(),
                               .block_scores = map.spec.scores ? written("block_scores") : TensorView(),
                               .seqlen_q = map.sizes.seqlen_q,
                               .seqlen_kv = map.sizes.seqlen_kv,
                               .heads_q = map.sizes.heads_q,
                               .map = view(map.blocks, place(map.blocks))};
  for (const FunctorTensorSpec& tensor : map.spec.mask.tensors()) {
    auto& [name, array] = *tensors.find(tensor.name);
    arguments.tensors.add({name, view(array, place(array))});
  }
  return arguments;
}

}  // namespace jit::tool
