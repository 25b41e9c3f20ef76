#include "process.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>
#include <nanobind/stl/string.h>

namespace jit::python {

namespace nb = nanobind;

namespace {

constexpr TuningMode modes[] = {TuningMode::off, TuningMode::recorded, TuningMode::first_run,
                                TuningMode::exhaustive};

// Never destroyed: threads may still compute while the interpreter goes down.
std::array<std::unique_ptr<Context>, std::size(modes) + 1>& contexts() {
  static auto& kept = *new std::array<std::unique_ptr<Context>, std::size(modes) + 1>;
  return kept;
}

std::atomic<bool>& device_used() {
  static std::atomic<bool> used = false;
  return used;
}

std::atomic<bool>& forked_after_use() {
  static std::atomic<bool> forked = false;
  return forked;
}

std::atomic<bool>& going_down() {
  static std::atomic<bool> flag = false;
  return flag;
}

// Threads that are waiting for the interpreter lock.
std::atomic<int>& returning() {
  static std::atomic<int> count = 0;
  return count;
}

// Before the interpreter goes down: from here on no thread waits for its lock, and those that do are let
// through.
void at_exit() {
  going_down() = true;
  const nb::gil_scoped_release unlocked;
  while (returning() != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void log_event(const Event& event) {
  if (going_down()) return;
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object logger = nb::module_::import_("logging").attr("getLogger")("jit_attention");
    std::string text = event.message;
    if (event.kind == Event::Kind::compile)
      text = fmt::format("compiled {} in {:.2f} s", event.message, event.seconds);
    if (event.kind == Event::Kind::tune)
      text = fmt::format("tuning {}/{}: {}", event.done, event.total, event.message);
    logger.attr(event.kind == Event::Kind::warning ? "warning" : "info")("%s", text);
  } catch (nb::python_error& error) {  // an observer must not throw, whatever handlers of the logger do
    error.discard_as_unraisable("jit_attention's logger");
  }
}

// In the child: locks of the parent's contexts may be held by threads that are not here.
void after_fork() {
  for (auto& context : contexts()) context.release();
  if (device_used()) forked_after_use() = true;
}

}  // namespace

Unlocked::~Unlocked() {
  ++returning();
  if (going_down()) {
    --returning();
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  --returning();
}

const Context& context_for(std::optional<TuningMode> tuning) {
  std::unique_ptr<Context>& kept = contexts()[tuning ? static_cast<std::size_t>(*tuning) : std::size(modes)];
  if (kept == nullptr) {
    Settings settings = settings_from_environment();
    if (tuning) settings.tuning = *tuning;
    auto fresh = std::make_unique<Context>(settings, log_event);
    // Telling the logger lets other threads run, which may have come here too.
    if (kept == nullptr) kept = std::move(fresh);
  }
  return *kept;
}

std::optional<TuningMode> parse_tuning(nb::handle tuning) {
  if (tuning.is_none()) return {};
  std::string names;
  for (const TuningMode mode : modes) {
    if (PyUnicode_Check(tuning.ptr()) && nb::cast<std::string>(tuning) == to_string(mode)) return mode;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", to_string(mode));
  }
  throw Error(ErrorCode::invalid_argument, "arguments", "tuning",
              fmt::format("tuning: is {}; it must be None or one of {}", nb::repr(tuning).c_str(), names));
}

void use_device_here() {
  if (forked_after_use()) {
    throw Error(
        ErrorCode::driver_unavailable, "arguments", "process",
        "this process was forked from one that had used a device, and CUDA does not work in it; start "
        "processes with multiprocessing's \"spawn\", or fork before the first use");
  }
  device_used() = true;
}

void bind_process(nb::module_& module) {
  module.def("_after_fork", after_fork, "Told to a process by os.fork, in the child.");
  module.def("_at_exit", at_exit, "Told to a process before its interpreter goes down.");
  module.def(
      "use_device", [](const std::string& selection) { use_device(selection); }, nb::arg("selection"),
      "Choose what this process computes on, before the first use of a device.\n\n"
      "selection: \"auto\" (the GPUs, or an emulated sm_90a where there are none), \"cuda\" (the GPUs), or\n"
      "\"emulated:sm_90a\" and the like; several emulated devices as \"emulated:sm_90a,sm_80\".\n\n"
      "Raises InvalidArgumentError for other text, and when a first use has made another choice.");
}

}  // namespace jit::python
