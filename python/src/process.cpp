#include "process.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include "errors.h"
#include "given.h"

namespace jit::python {

namespace nb = nanobind;

namespace {

constexpr TuningMode modes[] = {TuningMode::off, TuningMode::recorded, TuningMode::first_run,
                                TuningMode::exhaustive};

// Never destroyed: threads may still compute while the interpreter exits.
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

// Coordination of the interpreter's exit with other threads.
struct Shutdown {
  std::atomic<bool> began = false;
  std::atomic<std::thread::id> thread = {};  ///< the one that ends the interpreter and continues to use it
  std::atomic<int> at_work = 0;              ///< threads inside Unlocked that do not wait for the exit
};

Shutdown& shutdown() {
  static Shutdown state;
  return state;
}

// Exit handlers of shared libraries, such as NVRTC's, must not run during a compile.
constexpr std::chrono::seconds longest_wait_for_threads(10);

// Called before the interpreter exits: from now on no thread waits for its lock, and running work completes.
void at_exit() {
  shutdown().thread = std::this_thread::get_id();
  shutdown().began = true;
  const nb::gil_scoped_release unlocked;
  const auto until = std::chrono::steady_clock::now() + longest_wait_for_threads;
  while (shutdown().at_work != 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

struct EventQueue {
  std::mutex mutex;
  std::vector<Event> events;
};

EventQueue& event_queue() {
  static auto& queue = *new EventQueue;
  return queue;
}

void keep_event(const Event& event) {
  const std::lock_guard lock(event_queue().mutex);
  event_queue().events.push_back(event);
}

std::string text_of(const Event& event) {
  if (event.kind == Event::Kind::compile)
    return fmt::format("compiled {} in {:.2f} s", event.message, event.seconds);
  if (event.kind == Event::Kind::tuned)
    return fmt::format("tuned in {:.1f} s: {}", event.seconds, event.message);
  if (event.kind == Event::Kind::tune) {
    const std::string after = event.seconds > 0 ? fmt::format(" after {:.1f} s", event.seconds) : "";
    return fmt::format("{}/{}{}: {}", event.done, event.total, after, event.message);
  }
  return event.message;
}

// A logger's method for an event: progress is logged below its completion.
const char* level_of(const Event& event) {
  if (event.kind == Event::Kind::warning) return "warning";
  return event.kind == Event::Kind::tune ? "debug" : "info";
}

// Called in the child: threads that do not exist here may hold locks.
void after_fork() {
  for (auto& context : contexts()) static_cast<void>(context.release());
  new (&event_queue()) EventQueue;
  shutdown().at_work = 0;
  shutdown().began = false;
  if (device_used()) forked_after_use() = true;
}

}  // namespace

Unlocked::Unlocked() {
  ++shutdown().at_work;
  state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  if (shutdown().began && shutdown().thread.load() != std::this_thread::get_id()) {
    --shutdown().at_work;
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  --shutdown().at_work;
}

bool SignalWatch::has_raised() {
  // From now on a thread that requests the lock might never get it.
  if (shutdown().began) return false;
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return false;
  raised_.emplace();
  return true;
}

void SignalWatch::rethrow() {
  if (!raised_) return;
  nb::python_error raised = std::move(*raised_);
  raised_.reset();
  throw raised;
}

void deliver_events() {
  std::vector<Event> events;
  {
    const std::lock_guard lock(event_queue().mutex);
    events.swap(event_queue().events);
  }
  if (events.empty()) return;
  const nb::object logger = nb::module_::import_("logging").attr("getLogger")("jit_attention");
  for (const Event& event : events) logger.attr(level_of(event))("%s", readable(text_of(event)));
}

const Context& context_for(std::optional<TuningMode> tuning) {
  std::unique_ptr<Context>& kept = contexts()[tuning ? static_cast<std::size_t>(*tuning) : std::size(modes)];
  if (kept == nullptr) {
    Settings settings = settings_from_environment();
    if (tuning) settings.tuning = *tuning;
    kept = std::make_unique<Context>(settings, keep_event);
  }
  return *kept;
}

std::optional<TuningMode> parse_tuning(nb::handle tuning) {
  if (tuning.is_none()) return {};
  for (const TuningMode mode : modes) {
    if (PyUnicode_Check(tuning.ptr()) &&
        PyUnicode_CompareWithASCIIString(tuning.ptr(), std::string(to_string(mode)).c_str()) == 0)
      return mode;
  }
  std::string names;
  for (const TuningMode mode : modes)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", to_string(mode));
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
  define(
      module, "use_device", [](const std::string& selection) { use_device(selection); },
      nb::arg("selection"));
}

}  // namespace jit::python
