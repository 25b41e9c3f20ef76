// What runs, as text: information, refusals, kernels, tuning results; and what is done ahead of calls.
#include <algorithm>
#include <string>
#include <vector>

#include <jit/arch.h>
#include <jit/compiled_kernel.h>
#include <jit/spec_table.h>
#include <jit/tuning.h>
#include <jit/version.h>
#include <nlohmann/json.hpp>

#include "capi/operation.h"
#include "capi/specs.h"
#include "capi/structs.h"

namespace jit::c {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8, as paths may have them, are replaced.
char* json_text_of(const Json& json) {
  return text_of(json.dump(2, ' ', false, Json::error_handler_t::replace));
}

// What `read` returns, or the sentence of its error.
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

Json json_of(const TuningResult& result) {
  return {{"configs", to_string(result.configs)}, {"median_us", result.median_us},
          {"default_us", result.default_us},      {"candidates", result.candidates},
          {"out_of_time", result.out_of_time},    {"recorded_in", result.recorded_in}};
}

template <class Items>
Json list_of(const Items& items) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

// The arguments of forward or backward for what is about a call; neither is a choice, too.
struct GivenCall {
  std::optional<AttentionArguments> forward;
  std::optional<BackwardArguments> backward;
};

GivenCall given_call(const jit_forward_arguments* forward, const jit_backward_arguments* backward,
                     int device) {
  GivenCall call;
  if (forward != nullptr) call.forward = forward_arguments_of(known_part(forward, "forward"), device);
  if (backward != nullptr) call.backward = backward_arguments_of(known_part(backward, "backward"), device);
  return call;
}

void check_at_most_one(const void* forward, const void* backward) {
  if (forward != nullptr && backward != nullptr)
    refuse("backward", "was given beside forward; give one of the two");
}

std::string part_of(const CompiledKernel& kernel, jit_kernel_part part) {
  switch (part) {
    case JIT_KERNEL_SOURCE:
      return kernel.source();
    case JIT_KERNEL_PTX:
      return kernel.ptx();
    case JIT_KERNEL_SASS: {
      CompiledKernel::Sass sass = kernel.sass();
      if (!sass.missing.empty()) throw Error(ErrorCode::io_error, "disassemble", "part", sass.missing);
      return std::move(sass.text);
    }
    case JIT_KERNEL_REPORT:
      return kernel.report();
  }
  refuse("part", "is " + std::to_string(static_cast<int>(part)) + "; it must be 0 to 3");
}

// The kernel, or the loaded operation, of a spec that is none of attention.
template <class Use>
void use_operation(const jit_operation& operation, const Use& use) {
  const Context& context = operation.context.context;
  std::visit(
      [&](const auto& spec) {
        using Spec = std::decay_t<decltype(spec)>;
        if constexpr (std::is_same_v<Spec, AppendSpec>) use(append(spec, context));
        if constexpr (std::is_same_v<Spec, MergeSpec>) use(merge(spec, context));
        if constexpr (std::is_same_v<Spec, QuantizeSpec>) use(quantize_qkv(spec, context));
        if constexpr (std::is_same_v<Spec, BlockMaskSpec>) use(block_mask(spec, context));
      },
      operation.problem);
}

void check_no_arguments(const jit_operation& operation, const void* forward, const void* backward) {
  if (forward != nullptr || backward != nullptr) {
    refuse(forward != nullptr ? "forward" : "backward", std::string("was given for an operation of kind ") +
                                                            kind_name(operation.problem.index()) +
                                                            "; only calls of attention have these arguments");
  }
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

jit_code jit_prepare(const jit_operation* operation, const jit_forward_arguments* forward,
                     const jit_backward_arguments* backward, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    const CallDevice device(checked_pointer(operation, "operation").context);
    if (const auto* problem = std::get_if<AttentionProblem>(&operation->problem)) {
      if (forward == nullptr && backward == nullptr)
        refuse("forward", "is missing, and so is backward; give the arguments of the calls to prepare");
      const GivenCall call = given_call(forward, backward, device.ordinal());
      const jit::Attention attention = attention_here(*problem, operation->context.context);
      if (call.forward) attention.prepare(*call.forward);
      if (call.backward) attention.prepare_backward(*call.backward);
      return;
    }
    check_no_arguments(*operation, forward, backward);
    use_operation(*operation, [](const auto& loaded) { loaded.prepare(); });
  });
}

jit_code jit_tune(const jit_operation* operation, const jit_forward_arguments* forward,
                  const jit_backward_arguments* backward, char** json, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(json, "json") = nullptr;
    const AttentionProblem& problem = problem_of<AttentionProblem>(operation, "attention");
    check_at_most_one(forward, backward);
    if (forward == nullptr && backward == nullptr)
      refuse("forward", "is missing, and so is backward; give the arguments of the call to tune");
    if (problem.config) refuse("attention", "has a config, which is never tuned; make one without");
    const CallDevice device(operation->context);
    const GivenCall call = given_call(forward, backward, device.ordinal());
    const jit::Context& context = operation->context.context;
    *json = json_text_of(json_of(call.forward ? tune(problem.spec, *call.forward, context)
                                              : tune(problem.spec, *call.backward, context)));
  });
}

jit_code jit_kernel_text(const jit_operation* operation, const jit_forward_arguments* forward,
                         const jit_backward_arguments* backward, jit_kernel_part part, char** text,
                         jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(text, "text") = nullptr;
    const CallDevice device(checked_pointer(operation, "operation").context);
    std::string joined;
    if (const auto* problem = std::get_if<AttentionProblem>(&operation->problem)) {
      check_at_most_one(forward, backward);
      const GivenCall call = given_call(forward, backward, device.ordinal());
      const jit::Attention attention = attention_here(*problem, operation->context.context);
      const std::vector<jit::CompiledKernel> kernels =
          call.backward  ? attention.backward_kernels(*call.backward)
          : call.forward ? std::vector{attention.kernel(*call.forward)}
                         : std::vector{attention.kernel()};
      for (const jit::CompiledKernel& kernel : kernels)
        joined += (joined.empty() ? "" : "\n") + part_of(kernel, part);
    } else {
      check_no_arguments(*operation, forward, backward);
      if (part != JIT_KERNEL_SOURCE)
        refuse("part", std::string("must be JIT_KERNEL_SOURCE for an operation of kind ") +
                           kind_name(operation->problem.index()));
      use_operation(*operation, [&](const auto& loaded) { joined = loaded.source(); });
    }
    *text = text_of(joined);
  });
}
