#include "device_binding.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/emulation.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "given.h"
#include "output.h"
#include "process.h"

namespace jit::python {
namespace {

using namespace nb::literals;

/// A with-block that collects launches on emulated devices.
class Trace {
 public:
  Trace& enter() {
    if (scope_ != nullptr) throw nb::value_error("this trace is in use already");
    scope_ = std::make_unique<TraceScope>();
    open_here().push_back(this);
    return *this;
  }
  void leave() {
    if (open_here().empty() || open_here().back() != this)
      throw nb::value_error(
          "a trace is left by the thread that entered it, after those that were entered within");
    open_here().pop_back();
    launches_ = scope_->launches();
    scope_.reset();
  }
  const std::vector<LaunchTrace>& launches() const {
    return scope_ != nullptr ? scope_->launches() : launches_;
  }

 private:
  static std::vector<Trace*>& open_here() {
    thread_local std::vector<Trace*> traces;
    return traces;
  }

  std::unique_ptr<TraceScope> scope_;
  std::vector<LaunchTrace> launches_;
};

}  // namespace

void bind_devices(nb::module_& module) {
  nb::class_<DeviceInfo>(module, "Device", documented("Device"))
      .def_ro("ordinal", &DeviceInfo::ordinal, documented("Device.ordinal"))
      .def_ro("name", &DeviceInfo::name, documented("Device.name"))
      .def_prop_ro(
          "arch", [](const DeviceInfo& self) { return to_string(native_arch(self)); },
          documented("Device.arch"))
      .def_ro("sm_count", &DeviceInfo::sm_count, documented("Device.sm_count"))
      .def_ro("smem_per_block_optin", &DeviceInfo::smem_per_block_optin,
              documented("Device.smem_per_block_optin"))
      .def_ro("l2_bytes", &DeviceInfo::l2_bytes, documented("Device.l2_bytes"))
      .def_ro("memory_bytes", &DeviceInfo::memory_bytes, documented("Device.memory_bytes"))
      .def_ro("driver_version", &DeviceInfo::driver_version, documented("Device.driver_version"))
      .def_ro("uuid", &DeviceInfo::uuid, documented("Device.uuid"))
      .def_ro("emulated", &DeviceInfo::emulated, documented("Device.emulated"))
      .def("__repr__", [](const DeviceInfo& self) {
        return fmt::format("<jit_attention.Device {}: {}, {}>", self.ordinal, self.name,
                           to_string(native_arch(self)));
      });
  define(module, "devices", [] {
    use_device_here();
    return devices();
  });
  module.def("device_array", device_array, "device"_a, "shape"_a, "dtype"_a,
             "Memory of a device that speaks DLPack; its contents are arbitrary.");

  module.def("device_array_beside", device_array_beside, "address"_a, "shape"_a, "dtype"_a,
             "The same, on the device that holds an address.");

  nb::class_<LaunchTrace>(module, "LaunchTrace", documented("LaunchTrace"))
      .def_prop_ro("kernel", &LaunchTrace::kernel, documented("LaunchTrace.kernel"))
      .def_prop_ro("findings", &LaunchTrace::findings, documented("LaunchTrace.findings"))
      .def_prop_ro("warp_instructions", &LaunchTrace::warp_instructions,
                   documented("LaunchTrace.warp_instructions"))
      .def_prop_ro("seconds", &LaunchTrace::seconds, documented("LaunchTrace.seconds"))
      .def_prop_ro(
          "counts",
          [](const LaunchTrace& self) {
            return nb::module_::import_("json").attr("loads")(self.counts_json());
          },
          documented("LaunchTrace.counts"))
      .def_prop_ro("listing", &LaunchTrace::listing, documented("LaunchTrace.listing"))
      .def("__repr__", [](const LaunchTrace& self) {
        return fmt::format("<jit_attention.LaunchTrace {}: {} warp instructions, {} findings>", self.kernel(),
                           self.warp_instructions(), self.findings().size());
      });
  nb::class_<Trace>(module, "trace", documented("trace"))
      .def(nb::init<>())
      .def("__enter__", &Trace::enter, nb::rv_policy::reference)
      .def("__exit__", [](Trace& self, nb::args) { self.leave(); })
      .def_prop_ro("launches", &Trace::launches, documented("trace.launches"));
}

}  // namespace jit::python
