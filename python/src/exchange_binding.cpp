#include "exchange_binding.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/dtype.h>
#include <jit/exchange_merge.h>

#include "argument_names.h"
#include "array.h"
#include "given.h"
#include "operation_call.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

ExchangeShare share_of(const std::string& name) {
  if (name == "all") return ExchangeShare::all;
  if (name == "heads") return ExchangeShare::heads;
  if (name == "tokens") return ExchangeShare::tokens;
  refuse("share", fmt::format("is \"{}\"; it must be \"all\", \"heads\" or \"tokens\"", name));
}

std::vector<void*> addresses_of(nb::handle peers) {
  std::vector<void*> addresses;
  for (nb::handle peer : items_of(peers, "peers"))
    addresses.push_back(reinterpret_cast<void*>(natural_of(peer, "peers")));
  if (addresses.empty()) refuse("peers", "is empty; give the address of each rank's buffer");
  return addresses;
}

// The rows or heads of a total that a rank receives.
std::int64_t part_of(std::int64_t all, std::int64_t rank, std::int64_t ranks) {
  return all * (rank + 1) / ranks - all * rank / ranks;
}

Error renamed(const Error& error) {
  if (error.code() != ErrorCode::invalid_argument) return error;
  const std::string field = error.field();
  std::string name = field;
  if (field.starts_with("buffers")) name = "peers" + field.substr(7);
  if (field == "buffer_bytes") name = "nbytes";
  if (name == field) return error;
  std::string message = error.message();
  if (message.starts_with(field + ":")) message = name + message.substr(field.size());
  return Error(error.code(), error.stage(), name, message);
}

nb::object exchange_merge_arrays(nb::handle o, nb::handle lse, nb::handle peers, std::int64_t nbytes,
                                 int rank, const std::string& share, nb::handle out, nb::handle out_lse,
                                 nb::handle out_dtype, double timeout, nb::handle dtype, nb::handle stream) {
  const std::vector<void*> buffers = addresses_of(peers);
  const auto ranks = static_cast<int>(std::min<std::size_t>(buffers.size(), 1 << 20));
  if (nbytes < 0) refuse("nbytes", fmt::format("is {}; it must not be negative", nbytes));
  if (rank < 0 || rank >= ranks) refuse("rank", fmt::format("is {}; ranks go from 0 to {}", rank, ranks - 1));
  ExchangeMergeSpec spec{.ranks = ranks, .share = share_of(share)};
  // Host arrays belong to the emulated device that owns the rank's buffer.
  const auto own = reinterpret_cast<std::uintptr_t>(buffers[static_cast<std::size_t>(rank)]);
  OperationCall call(o, "o", stream, dtype_of(dtype, "dtype"), device_of_address("peers", own));
  ExchangeMergeArguments arguments;
  arguments.buffers = buffers;
  arguments.buffer_bytes = static_cast<std::size_t>(nbytes);
  arguments.rank = rank;
  arguments.timeout = timeout;
  call.read(o, "o", arguments.o);
  call.read(lse, "lse", arguments.lse);
  if (arguments.o.rank != 3)
    refuse("o", fmt::format("has {} dimensions; it must be (tokens, heads, head_dim_v)", arguments.o.rank));
  spec.dtype = arguments.o.dtype;
  if (!facts(spec.dtype).is_floating())
    refuse("o", fmt::format("is {}; it must be fp32, bf16 or fp16", to_string(spec.dtype)));
  call.check_dtype(arguments.o, "o");
  const std::optional<DType> wanted = float_dtype_of(out_dtype, "out_dtype");
  call.write(out, "out", arguments.out);
  call.write(out_lse, "out_lse", arguments.out_lse);
  spec.out_dtype = arguments.out.is_present() ? arguments.out.dtype : wanted.value_or(spec.dtype);
  if (wanted && spec.out_dtype != *wanted)
    refuse("out_dtype",
           fmt::format("is {}, but out holds {}", to_string(*wanted), to_string(spec.out_dtype)));
  const std::int64_t tokens =
      spec.share == ExchangeShare::tokens ? part_of(arguments.o.shape[0], rank, ranks) : arguments.o.shape[0];
  const std::int64_t heads =
      spec.share == ExchangeShare::heads ? part_of(arguments.o.shape[1], rank, ranks) : arguments.o.shape[1];
  std::optional<std::size_t> new_o, new_lse;
  if (!arguments.out.is_present()) {
    const std::int64_t shape[] = {tokens, heads, arguments.o.shape[2]};
    new_o = call.make(spec.out_dtype, shape, arguments.out);
  }
  if (!arguments.out_lse.is_present()) {
    const std::int64_t shape[] = {heads, tokens};
    new_lse = call.make(DType::fp32, shape, arguments.out_lse);
  }
  spec.head_dim_v = small_size(arguments.o, 2, "o");
  spec.alignment =
      std::max(2, std::min(common_alignment({&arguments.o}), common_alignment({&arguments.out})));
  try {
    call.stage([&] { check_arguments(spec, arguments); });
    call.launch([&](const Context& context) { exchange_merge(spec, context)(arguments, call.stream()); });
  } catch (const Error& error) {
    throw renamed_field(renamed(error),
                        {{"dtype", "o"}, {"head_dim_v", "o"}, {"alignment", "o"}, {"ranks", "peers"}});
  }
  return nb::make_tuple(new_o ? call.result(*new_o) : nb::borrow(out),
                        new_lse ? call.result(*new_lse) : nb::borrow(out_lse));
}

std::size_t bytes_of(int ranks, std::int64_t tokens, std::int64_t heads, int head_dim_v, nb::handle dtype,
                     nb::handle out_dtype, const std::string& share) {
  ExchangeMergeSpec spec{.head_dim_v = head_dim_v, .ranks = ranks, .share = share_of(share)};
  spec.dtype = float_dtype_of(dtype, "dtype").value_or(spec.dtype);
  spec.out_dtype = float_dtype_of(out_dtype, "out_dtype").value_or(spec.dtype);
  try {
    return exchange_merge_bytes(spec, tokens, heads);
  } catch (const Error& error) {
    throw renamed_field(error, {{"dtype", "dtype"}});
  }
}

std::optional<std::string> fault_of(std::uint64_t address, nb::handle stream) {
  use_device_here();
  device_of_address("address", address);
  const Stream on = stream.is_none() || emulates_devices() ? nullptr : stream_of(stream);
  const auto fault = without_lock([&] { return exchange_fault(reinterpret_cast<const void*>(address), on); });
  if (!fault) return {};
  return fault->to_string();
}

/// Memory of one device that other devices access.
class Buffer {
 public:
  Buffer(std::int64_t nbytes, int device, const std::vector<int>& peers) {
    use_device_here();
    if (nbytes <= 0) refuse("nbytes", fmt::format("is {}; it must be above 0", nbytes));
    device_info(device);
    for (const int peer : peers) {
      device_info(peer);
      if (peer == device) continue;
      if (!can_access_peer(peer, device))
        refuse("peers",
               fmt::format("holds device {}, which cannot access memory of device {}", peer, device));
      enable_peer_access(peer, device);
    }
    memory_ = DeviceBuffer(device, static_cast<std::size_t>(nbytes));
    clear();
  }
  std::uintptr_t address() const { return memory_.address(); }
  std::size_t nbytes() const { return memory_.size(); }
  void clear() const {
    const std::vector<std::uint8_t> zeros(memory_.size());
    const Unlocked unlocked;
    memory_.upload(zeros.data(), zeros.size());
  }

 private:
  DeviceBuffer memory_;
};

std::vector<int> ordinals_of(nb::handle devices) {
  std::vector<int> ordinals;
  for (nb::handle device : items_of(devices, "peers"))
    ordinals.push_back(static_cast<int>(whole_of(device, "peers", 0, 1 << 20)));
  return ordinals;
}

}  // namespace

void bind_exchange(nb::module_& module) {
  define(module, "exchange_merge", exchange_merge_arrays, "o"_a, "lse"_a, nb::kw_only(), "peers"_a,
         "nbytes"_a, "rank"_a, "share"_a = "all", "out"_a = nb::none(), "out_lse"_a = nb::none(),
         "out_dtype"_a = nb::none(), "timeout"_a = 30.0, "dtype"_a = nb::none(), "stream"_a = nb::none());
  define(module, "exchange_merge_bytes", bytes_of, nb::kw_only(), "ranks"_a, "tokens"_a, "heads"_a,
         "head_dim_v"_a, "dtype"_a, "out_dtype"_a = nb::none(), "share"_a = "all");
  define(module, "exchange_fault", fault_of, "address"_a, nb::kw_only(), "stream"_a = nb::none());
  nb::class_<Buffer> buffer(module, "ExchangeBuffer", documented("ExchangeBuffer"));
  buffer
      .def(
          "__init__",
          [](Buffer* self, nb::handle nbytes, nb::handle device, nb::handle peers) {
            new (self) Buffer(whole_of(nbytes, "nbytes", std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max()),
                              static_cast<int>(whole_of(device, "device", 0, 1 << 20)), ordinals_of(peers));
          },
          "nbytes"_a, nb::kw_only(), "device"_a = 0, "peers"_a = nb::make_tuple())
      .def_prop_ro("address", &Buffer::address, documented("ExchangeBuffer.address"))
      .def_prop_ro("nbytes", &Buffer::nbytes, documented("ExchangeBuffer.nbytes"));
  define(buffer, "clear", [](const Buffer& self) { self.clear(); });
}

}  // namespace jit::python
