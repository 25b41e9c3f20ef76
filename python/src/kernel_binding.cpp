#include "kernel_binding.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/attention.h>

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

constexpr const char* compile_doc =
    R"(Write and compile the kernel for a spec, or take it from the cache. Needs no GPU.

Args:
    spec: an AttentionSpec.
    arch: such as "sm_80" or "sm_90a".
    config: a dict of fields, or text; None: the cost model chooses for typical sizes, passing over configs that spill.

Returns a Kernel. Raises InvalidSpecError, InvalidArgumentError, NoValidConfigError, CompileFailedError (with the whole log
and the program), NvrtcUnavailableError, OfflineError.
)";

}  // namespace

void bind_kernel(nb::module_& module) {
  nb::class_<CompiledKernel> kernel(
      module, "Kernel", "Compiled code with all that is known of it. Immutable; needs no GPU to be read.");
  kernel
      .def_prop_ro(
          "spec", [](const CompiledKernel& self) { return to_string(self.spec()); },
          "The spec in one line: \"bf16 d128 mask=causal\".")
      .def_prop_ro("name", &CompiledKernel::name, "Name of the kernel, as profilers show it.")
      .def_prop_ro(
          "arch", [](const CompiledKernel& self) { return to_string(self.arch()); }, "\"sm_90a\"")
      .def_prop_ro(
          "config", [](const CompiledKernel& self) { return config_as_dict(self.config()); },
          "How it does its work: the fields that tuning chooses.")
      .def_prop_ro("source", &CompiledKernel::source,
                   "The generated program; it includes templates, see `dump`.")
      .def_prop_ro(
          "ptx", [](const CompiledKernel& self) { return without_lock([&] { return self.ptx(); }); },
          "PTX; compiled anew, because caches keep machine code only.")
      .def_prop_ro("sass", sass_of,
                   "SASS by nvdisasm or cuobjdump. Raises FileNotFoundError when neither is found.")
      .def_prop_ro("cubin", cubin_of, "The machine code, an ELF file.")
      .def_prop_ro("report", report_of, "All of the below and more as a dict.")
      .def_prop_ro(
          "registers", [](const CompiledKernel& self) { return self.resources().registers; }, "Per thread.")
      .def_prop_ro(
          "spill_bytes", [](const CompiledKernel& self) { return self.resources().spill_bytes(); },
          "Stored and loaded per thread.")
      .def_prop_ro("smem_bytes", &CompiledKernel::smem_bytes, "Dynamic shared memory of a block.")
      .def_prop_ro("threads", &CompiledKernel::threads, "Of a block.")
      .def_prop_ro("key", &CompiledKernel::key, "Key of its cache entry, 32 hexadecimal digits.")
      .def_prop_ro("cached", &CompiledKernel::cached, "Whether it came from the disk cache.")
      .def_prop_ro("compile_ms", &CompiledKernel::compile_ms,
                   "Wall time of the compile that made it, also when that was another process's.")
      .def_prop_ro("why", &CompiledKernel::why,
                   "Why this config: \"cost model …\", \"recorded …\", \"tuned …\", \"given\".")
      .def_prop_ro(
          "tuning_log", &CompiledKernel::tuning_log,
          "What the tuner measured, a line per candidate; empty when it did not run in this process.")
      .def("__repr__", [](const CompiledKernel& self) {
        return fmt::format("<jit_attention.Kernel {} {} {}>", to_string(self.spec()), to_string(self.arch()),
                           to_string(self.config()));
      });
  define(
      kernel, "dump",
      [](const CompiledKernel& self, const std::filesystem::path& folder) {
        return without_lock([&] { return self.dump(folder.string()); });
      },
      "folder"_a,
      "Write kernel.cu, kernel.ptx, kernel.cubin, report.json, templates/ and, when a disassembler is "
      "found, kernel.sass to a folder, which is created. Where the bytes of one find no room, no file is "
      "made or replaced; devices and pipes are written last. Returns the paths. "
      "Raises IoError.",
      nb::sig("def dump(self, folder: str | os.PathLike) -> list[str]"));
  define(
      module, "compile",
      [](nb::handle spec, nb::handle arch, nb::handle config) {
        const AttentionSpec wanted = spec_of(spec);
        const Arch target = arch_of(arch);
        const std::optional<KernelConfig> given = config_of(config);
        const Context& context = context_for({});
        return without_lock([&] { return compile(wanted, target, given, context); });
      },
      "spec"_a, "arch"_a, "config"_a = nb::none(), compile_doc,
      nb::sig("def compile(spec: jit_attention.AttentionSpec, arch: str, "
              "config: dict[str, typing.Any] | str | None = None) -> Kernel"));
  define(
      module, "candidate_configs",
      [](nb::handle spec, nb::handle arch) {
        nb::list result;
        for (const KernelConfig& config : candidate_configs(spec_of(spec), arch_of(arch)))
          result.append(config_as_dict(config));
        return result;
      },
      "spec"_a, "arch"_a, "The legal configs for a spec on an architecture, most promising first.",
      nb::sig("def candidate_configs(spec: jit_attention.AttentionSpec, arch: str) -> list[dict[str, "
              "typing.Any]]"));
}

}  // namespace jit::python
