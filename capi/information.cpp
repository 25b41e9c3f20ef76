// Descriptions of contexts, specs and kernels: information, refusals, dumps.
#include <jit/arch.h>
#include <jit/compiled_kernel.h>
#include <jit/spec_table.h>
#include <jit/version.h>

#include "capi/context.h"
#include "capi/json.h"
#include "capi/specs.h"
#include "capi/structs.h"

namespace jit::c {
namespace {

// The result of `read`, or its error's sentence.
template <class Read>
Json or_reason(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    return error.message();
  }
}

Json json_of(const CompilerLocation& compiler) {
  return {{"path", compiler.path},
          {"version", compiler.version},
          {"found_by", compiler.found_by},
          {"passed_over", compiler.passed_over}};
}

Json json_of(const PackInUse& pack) {
  return {
      {"path", pack.path}, {"entries", pack.entries}, {"targets", pack.targets}, {"refusal", pack.refusal}};
}

Json json_of(const DeviceInfo& device) {
  return {{"ordinal", device.ordinal},
          {"name", device.name},
          {"arch", to_string(native_arch(device))},
          {"multiprocessors", device.sm_count},
          {"memory_bytes", device.memory_bytes},
          {"driver_version", device.driver_version},
          {"uuid", device.uuid},
          {"emulated", device.emulated}};
}

Json json_of(const Refusal& refusal) {
  return {{"field", refusal.field},
          {"value", refusal.value},
          {"rule", refusal.rule},
          {"nearest", refusal.nearest},
          {"sentence", refusal.to_string()}};
}

template <class Items>
Json list_of(const Items& items) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

}  // namespace
}  // namespace jit::c

jit_code jit_context_info(const jit_context* context, char** json, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(json, "json") = nullptr;
    const jit::Context& own = checked_pointer(context, "context").context;
    *json = json_text_of({{"version", JIT_ATTENTION_VERSION},
                          {"cache_directory", own.cache_directory()},
                          {"cache_reason", own.cache_reason()},
                          {"compiler", or_reason([&] { return json_of(own.compiler()); })},
                          {"packs", list_of(own.packs())},
                          {"devices", or_reason([] { return list_of(jit::devices()); })}});
  });
}

jit_code jit_refusals(const jit_context* context, const char* arch, const jit_spec* given, char** json,
                      jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(json, "json") = nullptr;
    const jit::AttentionSpec spec = read_attention_spec(known_part(given, "spec"));
    *json = json_text_of(
        list_of(arch != nullptr
                    ? refusals_of(spec, jit::parse_arch(arch))
                    : refusals_of(spec, jit::device_info(device_now(checked_pointer(context, "context"))))));
  });
}

jit_code jit_dump(const jit_context* context, const char* arch, const jit_spec* given, const char* folder,
                  char** json, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(json, "json") = nullptr;
    const jit::Context& own = checked_pointer(context, "context").context;
    const jit::Arch target = jit::parse_arch(&checked_pointer(arch, "arch"));
    const jit_spec spec = known_part(given, "spec");
    const jit::CompiledKernel kernel = compile(attention_spec_of(spec), target, config_of(spec), own);
    *json = json_text_of(kernel.dump(&checked_pointer(folder, "folder")));
  });
}
