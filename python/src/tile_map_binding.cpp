#include "tile_map_binding.h"

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/tile_map.h>

#include "array.h"
#include "given.h"
#include "named_arrays.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

constexpr const char* class_names[] = {"empty", "partial", "full"};

/// A tile map with the texts of mask and score, for pictures.
struct TitledMap {
  TileMap map;
  std::string title;
};

bool is_dense(const TensorView& view) {
  std::int64_t stride = 1;
  for (int i = view.rank; i-- > 0; stride *= view.shape[i])
    if (view.shape[i] != 1 && view.strides[i] != stride) return false;
  return true;
}

TitledMap tile_map_of(nb::handle mask, nb::handle score, std::int64_t seqlen_q, std::int64_t seqlen_kv,
                      std::int64_t batch, std::int64_t heads_q, const TilePlace& place, nb::handle tensors) {
  AttentionSpec spec;
  spec.mask = mask_of(mask);
  spec.score = score_of(score);
  const NamedArrays arrays(tensors);
  std::vector<Array> read;  // keeps exported arrays alive
  std::map<std::string, HostTensor, std::less<>> on_host;
  for (const NamedArray& named : arrays) {
    const GivenArray given(named.object, named.name);
    read.push_back(import_array(given, device_of(given), nullptr));
    if (read.back().on_gpu())
      refuse(named.name, fmt::format("is in {}; tiles are looked at on the host, in CPU memory",
                                     to_string(read.back().device)));
    if (!is_dense(read.back().view)) refuse(named.name, "must be dense, the last dimension contiguous");
  }
  std::size_t next = 0;
  for (const NamedArray& named : arrays) {
    const TensorView& view = read[next++].view;
    on_host[named.name] = {.dtype = view.dtype,
                           .shape = {view.shape, static_cast<std::size_t>(view.rank)},
                           .data = static_cast<const std::byte*>(view.data)};
  }
  const AttentionShape shape{
      .batch = batch, .heads_q = heads_q, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
  const std::string title =
      spec.mask.to_string() + (spec.score == Score() ? "" : ", score " + spec.score.to_string());
  return {without_lock([&] { return tile_map(spec, shape, place, on_host); }), title};
}

nb::list rows_of(const TitledMap& self) {
  nb::list rows;
  for (std::int64_t row = 0; row < self.map.rows; ++row) {
    nb::list classes;
    for (std::int64_t column = 0; column < self.map.columns; ++column)
      classes.append(nb::str(class_names[static_cast<int>(self.map.at(row, column))]));
    rows.append(classes);
  }
  return rows;
}

nb::dict counts_of(const TitledMap& self) {
  nb::dict counts;
  for (const TileClass kind : {TileClass::full, TileClass::partial, TileClass::empty})
    counts[class_names[static_cast<int>(kind)]] = self.map.count(kind);
  return counts;
}

}  // namespace

void bind_tile_map(nb::module_& module) {
  nb::class_<TitledMap>(module, "TileMap", documented("TileMap"))
      .def_prop_ro("classes", rows_of, documented("TileMap.classes"))
      .def_prop_ro("counts", counts_of, documented("TileMap.counts"))
      .def_prop_ro(
          "computed_share", [](const TitledMap& self) { return self.map.computed_share(); },
          documented("TileMap.computed_share"))
      .def_prop_ro(
          "notes", [](const TitledMap& self) { return self.map.notes; }, documented("TileMap.notes"))
      .def("_repr_svg_", [](const TitledMap& self) { return to_svg(self.map, self.title); })
      .def("__repr__", [](const TitledMap& self) {
        return fmt::format("TileMap({}: {} full, {} partial, {} empty)", self.title,
                           self.map.count(TileClass::full), self.map.count(TileClass::partial),
                           self.map.count(TileClass::empty));
      });
  define(
      module, "tile_map",
      [](nb::handle mask, nb::handle score, std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t batch,
         std::int64_t heads_q, std::int64_t entry, std::int64_t head, int tile_q, int tile_kv,
         nb::handle tensors) {
        return tile_map_of(mask, score, seqlen_q, seqlen_kv, batch, heads_q,
                           {.batch = entry, .head = head, .tile_q = tile_q, .tile_kv = tile_kv}, tensors);
      },
      "mask"_a = nb::none(), nb::kw_only(), "score"_a = nb::none(), "seqlen_q"_a, "seqlen_kv"_a,
      "batch"_a = 1, "heads_q"_a = 1, "entry"_a = 0, "head"_a = 0, "tile_q"_a = 128, "tile_kv"_a = 128,
      "tensors"_a = nb::none());
}

}  // namespace jit::python
