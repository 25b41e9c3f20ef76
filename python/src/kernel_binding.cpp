#include "kernel_binding.h"

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/bits.h>
#include <nanobind/stl/string.h>

#include "given.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

Arch arch_of(nb::handle arch) { return parse_arch(nb::cast<std::string>(nb::str(arch))); }

std::string sass_of(const CompiledKernel& kernel) {
  const CompiledKernel::Sass sass = without_lock([&] { return kernel.sass(); });
  if (!sass.missing.empty()) {
    PyErr_SetString(PyExc_FileNotFoundError, sass.missing.c_str());
    throw nb::python_error();
  }
  return sass.text;
}

nb::object report_of(const CompiledKernel& kernel) {
  return nb::module_::import_("json").attr("loads")(kernel.report());
}

nb::bytes cubin_of(const CompiledKernel& kernel) {
  return nb::bytes(reinterpret_cast<const char*>(kernel.cubin().data()), kernel.cubin().size());
}

}  // namespace

void bind_kernel(nb::module_& module) {
  nb::class_<CompiledKernel> kernel(module, "Kernel", documented("Kernel"));
  kernel
      .def_prop_ro(
          "spec", [](const CompiledKernel& self) { return to_string(self.spec()); },
          documented("Kernel.spec"))
      .def_prop_ro("name", &CompiledKernel::name, documented("Kernel.name"))
      .def_prop_ro(
          "arch", [](const CompiledKernel& self) { return to_string(self.arch()); },
          documented("Kernel.arch"))
      .def_prop_ro(
          "config", [](const CompiledKernel& self) { return config_as_dict(self.config()); },
          documented("Kernel.config"))
      .def_prop_ro("source", &CompiledKernel::source, documented("Kernel.source"))
      .def_prop_ro(
          "ptx", [](const CompiledKernel& self) { return without_lock([&] { return self.ptx(); }); },
          documented("Kernel.ptx"))
      .def_prop_ro("sass", sass_of, documented("Kernel.sass"))
      .def_prop_ro("cubin", cubin_of, documented("Kernel.cubin"))
      .def_prop_ro("report", report_of, documented("Kernel.report"))
      .def_prop_ro(
          "registers", [](const CompiledKernel& self) { return self.resources().registers; },
          documented("Kernel.registers"))
      .def_prop_ro(
          "spill_bytes", [](const CompiledKernel& self) { return self.resources().spill_bytes(); },
          documented("Kernel.spill_bytes"))
      .def_prop_ro("smem_bytes", &CompiledKernel::smem_bytes, documented("Kernel.smem_bytes"))
      .def_prop_ro("threads", &CompiledKernel::threads, documented("Kernel.threads"))
      .def_prop_ro("key", &CompiledKernel::key, documented("Kernel.key"))
      .def_prop_ro("cached", &CompiledKernel::cached, documented("Kernel.cached"))
      .def_prop_ro("compile_ms", &CompiledKernel::compile_ms, documented("Kernel.compile_ms"))
      .def_prop_ro("why", &CompiledKernel::why, documented("Kernel.why"))
      .def_prop_ro("tuning_log", &CompiledKernel::tuning_log, documented("Kernel.tuning_log"))
      .def("__repr__", [](const CompiledKernel& self) {
        return fmt::format("<jit_attention.Kernel {} {} {}>", to_string(self.spec()), to_string(self.arch()),
                           to_string(self.config()));
      });
  define(
      kernel, "dump",
      [](const CompiledKernel& self, const std::filesystem::path& folder) {
        return without_lock([&] { return self.dump(folder.string()); });
      },
      "folder"_a);
  define(
      module, "compile",
      [](nb::handle spec, nb::handle arch, nb::handle config) {
        const AttentionSpec wanted = spec_of(spec);
        const Arch target = arch_of(arch);
        const std::optional<KernelConfig> given = config_of(config);
        const Context& context = context_for({});
        return without_lock([&] { return compile(wanted, target, given, context); });
      },
      "spec"_a, "arch"_a, "config"_a = nb::none());
  define(
      module, "candidate_configs",
      [](nb::handle spec, nb::handle arch) {
        nb::list result;
        for (const KernelConfig& config : candidate_configs(spec_of(spec), arch_of(arch)))
          result.append(config_as_dict(config));
        return result;
      },
      "spec"_a, "arch"_a);
  define(
      module, "bits_of",
      [](nb::handle spec, nb::handle device) {
        const AttentionSpec wanted = spec_of(spec);
        if (nb::isinstance<nb::str>(device)) return bits_of(wanted, arch_of(device));
        if (device.is_none()) use_device_here();
        using Ordinals = std::numeric_limits<int>;
        const auto ordinal = device.is_none() ? current_device()
                                              : whole_of(device, "device", Ordinals::min(), Ordinals::max());
        return bits_of(wanted, device_info(static_cast<int>(ordinal)));
      },
      "spec"_a, "device"_a = nb::none());
}

}  // namespace jit::python
