#include "device_binding.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/emulation.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "output.h"
#include "process.h"

namespace jit::python {
namespace {

using namespace nb::literals;

/// A with-block whose launches on emulated devices are collected.
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
  nb::class_<DeviceInfo>(module, "Device", "What the driver says of one device.")
      .def_ro("ordinal", &DeviceInfo::ordinal)
      .def_ro("name", &DeviceInfo::name)
      .def_prop_ro(
          "arch", [](const DeviceInfo& self) { return to_string(native_arch(self)); },
          "The richest compile target that it runs: \"sm_90a\".")
      .def_ro("sm_count", &DeviceInfo::sm_count, "Multiprocessors.")
      .def_ro("smem_per_block_optin", &DeviceInfo::smem_per_block_optin, "Bytes.")
      .def_ro("l2_bytes", &DeviceInfo::l2_bytes)
      .def_ro("memory_bytes", &DeviceInfo::memory_bytes)
      .def_ro("driver_version", &DeviceInfo::driver_version, "1000 · major + 10 · minor.")
      .def_ro("uuid", &DeviceInfo::uuid)
      .def_ro("emulated", &DeviceInfo::emulated,
              "Kernels run on the CPU: slowly, checked, and in no time that means anything.")
      .def("__repr__", [](const DeviceInfo& self) {
        return fmt::format("<jit_attention.Device {}: {}, {}>", self.ordinal, self.name,
                           to_string(native_arch(self)));
      });
  module.def(
      "devices",
      [] {
        use_device_here();
        return devices();
      },
      "All devices that this process computes on, by ordinal. Raises DriverUnavailableError.");
  module.def("device_array", device_array, "device"_a, "shape"_a, "dtype"_a,
             "Memory of a device that speaks DLPack; its contents are arbitrary.");

  module.def("device_array_beside", device_array_beside, "address"_a, "shape"_a, "dtype"_a,
             "The same, on the device that holds an address.");

  nb::class_<LaunchTrace>(module, "LaunchTrace", "What one launch on an emulated device did.")
      .def_prop_ro("kernel", &LaunchTrace::kernel, "Name of the kernel.")
      .def_prop_ro("findings", &LaunchTrace::findings, "What was wrong, a sentence with its place each.")
      .def_prop_ro("warp_instructions", &LaunchTrace::warp_instructions, "Instructions that warps executed.")
      .def_prop_ro("seconds", &LaunchTrace::seconds, "Time that the host took.")
      .def_prop_ro(
          "counts",
          [](const LaunchTrace& self) {
            return nb::module_::import_("json").attr("loads")(self.counts_json());
          },
          "Totals, totals by instruction class and a row for each source line, as a dict.")
      .def_prop_ro("listing", &LaunchTrace::listing,
                   "The kernel's PTX with counts in front of each line that ran.")
      .def("__repr__", [](const LaunchTrace& self) {
        return fmt::format("<jit_attention.LaunchTrace {}: {} warp instructions, {} findings>", self.kernel(),
                           self.warp_instructions(), self.findings().size());
      });
  nb::class_<Trace>(
      module, "trace",
      "with trace() as seen: …; seen.launches — what this thread launched on emulated devices, also when "
      "it failed. A real GPU tells nothing.")
      .def(nb::init<>())
      .def("__enter__", &Trace::enter, nb::rv_policy::reference)
      .def("__exit__", [](Trace& self, nb::args) { self.leave(); })
      .def_prop_ro("launches", &Trace::launches, "In the order they ran in.");
}

}  // namespace jit::python
