#include "pack_binding.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/pack.h>

#include "array.h"
#include "given.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

nb::dict as_dict(const PackedKernel& kernel) {
  nb::dict dict;
  dict["spec"] = kernel.spec;
  dict["target"] = kernel.target;
  dict["config"] = kernel.config;
  dict["name"] = kernel.name;
  dict["key"] = kernel.key;
  dict["bytes"] = kernel.bytes;
  dict["compile_ms"] = kernel.compile_ms;
  dict["cached"] = kernel.cached;
  dict["sizes"] = kernel.sizes;
  dict["all_sizes"] = kernel.all_sizes;
  return dict;
}

// Refuses options of rotation and norm when append uses neither.
void check_have_effect(const PackSizes& sizes, bool has_sections) {
  const AppendSpec& append = sizes.append;
  for (const auto& [is_given, name] : {std::pair{append.rotary_dim != 0, "rotary_dim"},
                                       {append.rotary_interleaved, "rotary_interleaved"},
                                       {has_sections, "mrope_sections"},
                                       {append.norm, "norm"}}) {
    if (is_given && !sizes.serving)
      refuse(name,
             "was given, and serving is False, by which nothing is appended: leave it out, or set serving");
  }
  if (append.mrope_interleaved && !has_sections)
    refuse("mrope_interleaved", "was given without mrope_sections, which say how many pairs each axis has");
  if (append.norm_adds_one && !append.norm)
    refuse("norm_adds_one", "was given, and norm is False: leave it out");
}

nb::list write(const std::string& path, nb::iterable spec_objects, const std::vector<std::string>& targets,
               int heads_q, int max_batch, std::int64_t max_seqlen, bool training, bool serving,
               int rotary_dim, bool rotary_interleaved, std::optional<std::array<int, 3>> mrope_sections,
               bool mrope_interleaved, bool norm, bool norm_adds_one) {
  std::vector<AttentionSpec> specs;
  for (nb::handle object : spec_objects) specs.push_back(spec_of(object));
  std::vector<PackTarget> parsed;
  for (const std::string& target : targets) parsed.push_back(parse_pack_target(target));
  const PackSizes sizes{.heads_q = heads_q,
                        .max_batch = max_batch,
                        .max_seqlen = max_seqlen,
                        .training = training,
                        .serving = serving,
                        .append = {.rotary_dim = rotary_dim,
                                   .rotary_interleaved = rotary_interleaved,
                                   .mrope_sections = mrope_sections.value_or(std::array<int, 3>{}),
                                   .mrope_interleaved = mrope_interleaved,
                                   .norm = norm,
                                   .norm_adds_one = norm_adds_one}};
  check_have_effect(sizes, mrope_sections.has_value());
  const Context& context = context_for({});
  const PackContents contents = without_lock([&] { return write_pack(path, specs, parsed, sizes, context); });
  nb::list kernels;
  for (const PackedKernel& kernel : contents.kernels) kernels.append(as_dict(kernel));
  return kernels;
}

}  // namespace

void bind_pack(nb::module_& module) {
  const PackSizes sizes;
  define(module, "write_pack", write, "path"_a, "specs"_a, "targets"_a, nb::kw_only(),
         "heads_q"_a = sizes.heads_q, "max_batch"_a = sizes.max_batch, "max_seqlen"_a = sizes.max_seqlen,
         "training"_a = sizes.training, "serving"_a = sizes.serving, "rotary_dim"_a = sizes.append.rotary_dim,
         "rotary_interleaved"_a = sizes.append.rotary_interleaved, "mrope_sections"_a = nb::none(),
         "mrope_interleaved"_a = sizes.append.mrope_interleaved, "norm"_a = sizes.append.norm,
         "norm_adds_one"_a = sizes.append.norm_adds_one);
}

}  // namespace jit::python
