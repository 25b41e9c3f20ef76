// Key exchanges with raw addresses, and placements as plain values; jit_attention/distributed/arrive.py has
// the tensors.
#include "key_exchange_binding.h"

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <jit/key_exchange.h>

#include "array.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

namespace nb = nanobind;

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
/// (dtype, batch, heads_kv, head_dim, head_dim_v).
using Sizes = std::tuple<std::string, std::int64_t, std::int64_t, int, int>;
/// A tensor's address, and its stride between batch entries in elements; rows are dense.
using Rows = std::pair<std::uintptr_t, std::int64_t>;

Placement placement_of(std::int64_t seqlen, int granule, const std::vector<Ranges>& runs,
                       const std::vector<Ranges>& needs) {
  Placement placement;
  const auto granules = static_cast<std::size_t>((seqlen + granule - 1) / granule);
  placement.work.seqlen = seqlen;
  placement.work.granule = granule;
  placement.work.costs.resize(granules);
  placement.owners.resize(granules);
  placement.loads.resize(runs.size());
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    for (const auto& [begin, end] : runs[rank]) {
      for (std::int64_t position = begin; position < end; position += granule)
        placement.owners.at(static_cast<std::size_t>(position / granule)) = static_cast<int>(rank);
    }
    std::vector<IndexRange>& needed = placement.needs.emplace_back();
    for (const auto& [begin, end] : needs.at(rank)) needed.push_back({begin, end});
  }
  return placement;
}

KeyExchangeSpec spec_of(const Sizes& sizes) {
  const auto& [dtype, batch, heads_kv, head_dim, head_dim_v] = sizes;
  return {.dtype = parse_dtype(dtype),
          .batch = batch,
          .heads_kv = heads_kv,
          .head_dim = head_dim,
          .head_dim_v = head_dim_v};
}

class Exchange {
 public:
  Exchange(const Sizes& sizes, std::int64_t seqlen, int granule, const std::vector<Ranges>& runs,
           const std::vector<Ranges>& needs, int rank, const std::vector<std::uintptr_t>& peers,
           double timeout, std::uintptr_t fault)
      : spec_(spec_of(sizes)), placement_(placement_of(seqlen, granule, runs, needs)), rank_(rank) {
    std::vector<void*> buffers;
    for (const std::uintptr_t peer : peers) buffers.push_back(reinterpret_cast<void*>(peer));
    exchange_.emplace(spec_, placement_,
                      KeyExchangeRank{.rank = rank,
                                      .buffers = buffers,
                                      .timeout = timeout,
                                      .fault = reinterpret_cast<std::uint32_t*>(fault)});
  }

  /// Addresses of k, v and key_arrivals, and rows of the last. k and v are interleaved: their row stride is
  /// both rows' length.
  std::tuple<std::uintptr_t, std::uintptr_t, std::uintptr_t, std::int64_t> begin(const Rows& k, const Rows& v,
                                                                                 std::uintptr_t stream) {
    const ArrivingKeys keys =
        exchange_->begin(view(k, spec_.head_dim), view(v, spec_.head_dim_v), on(stream));
    const auto address = [](const TensorView& tensor) {
      return reinterpret_cast<std::uintptr_t>(tensor.data);
    };
    return {address(keys.k), address(keys.v), address(keys.arrivals), keys.arrivals.shape[0]};
  }
  void set_timeout(double seconds) { exchange_->set_timeout(seconds); }
  void send() { exchange_->send(); }
  void end(std::uintptr_t stream) { exchange_->end(on(stream)); }
  std::optional<std::string> fault(std::uintptr_t stream) const {
    const auto fault = without_lock([&] { return exchange_->fault(on(stream)); });
    if (!fault) return {};
    return fault->to_string();
  }
  void reset(std::uintptr_t stream) {
    without_lock([&] {
      exchange_->reset(on(stream));
      return 0;
    });
  }

 private:
  static Stream on(std::uintptr_t stream) { return reinterpret_cast<Stream>(stream); }
  TensorView view(const Rows& rows, int head_dim) const {
    TensorView tensor = TensorView::dense(reinterpret_cast<void*>(rows.first), spec_.dtype,
                                          {spec_.batch, placement_.rows(rank_), spec_.heads_kv, head_dim});
    tensor.strides[0] = rows.second;
    return tensor;
  }

  KeyExchangeSpec spec_;
  Placement placement_;
  int rank_;
  std::optional<KeyExchange> exchange_;
};

}  // namespace

void bind_key_exchange(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "key_exchange_bytes",
      [](const Sizes& sizes, std::int64_t seqlen, int granule, const std::vector<Ranges>& runs,
         const std::vector<Ranges>& needs) {
        return key_exchange_bytes(spec_of(sizes), placement_of(seqlen, granule, runs, needs));
      },
      "sizes"_a, "seqlen"_a, "granule"_a, "runs"_a, "needs"_a);
  nb::class_<Exchange>(module, "KeyExchange")
      .def(nb::init<const Sizes&, std::int64_t, int, const std::vector<Ranges>&, const std::vector<Ranges>&,
                    int, const std::vector<std::uintptr_t>&, double, std::uintptr_t>(),
           "sizes"_a, "seqlen"_a, "granule"_a, "runs"_a, "needs"_a, "rank"_a, "peers"_a, "timeout"_a,
           "fault"_a)
      .def("begin", &Exchange::begin, "k"_a, "v"_a, "stream"_a)
      .def("set_timeout", &Exchange::set_timeout, "seconds"_a)
      .def("send", &Exchange::send)
      .def("end", &Exchange::end, "stream"_a)
      .def("fault", &Exchange::fault, "stream"_a)
      .def("reset", &Exchange::reset, "stream"_a);
}

}  // namespace jit::python
