// State that the module keeps between calls: a context for each way of tuning.
#pragma once

#include <exception>
#include <optional>

#include <jit/context.h>
#include <jit/emulation.h>
#include <nanobind/nanobind.h>

namespace jit::python {

/// The context for calls that want `tuning`, or what the environment says; made at the first need, kept until
/// the process ends. Its events go to Python's logger "jit_attention". Needs the interpreter lock. Throws
/// what Context's constructor throws.
const Context& context_for(std::optional<TuningMode> tuning);

/// None, or the name of a mode. Throws Error invalid_argument that lists the names.
std::optional<TuningMode> parse_tuning(nanobind::handle tuning);

/// Says that this process uses, or used, a device. Throws Error driver_unavailable in a process that was
/// forked from one that did: the driver does not work there.
void use_device_here();

/// Gives the interpreter lock to other threads until the end of the scope. A thread that wants it back while
/// the interpreter goes down waits for the end of the process instead: Python would end the thread, through
/// C++ frames that cannot be unwound so.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Hands events that contexts have told of to the logger. Not done by the contexts themselves: they hold
/// locks then, and handlers of loggers may do anything, such as to raise what a signal's handler raises.
void deliver_events();

/// Lets handlers of signals, such as that of Ctrl-C, run while an emulated launch keeps this thread. What one
/// raises ends the launch.
class SignalWatch {
 public:
  SignalWatch() : scope_([this] { return has_raised(); }) {}
  /// Throws what a handler has raised. Needs the interpreter lock.
  void rethrow();
  /// Runs the handlers of signals that came; true when one has raised. Takes the interpreter lock.
  bool has_raised();

 private:
  std::optional<nanobind::python_error> raised_;
  const InterruptScope scope_;
};

/// Returns work(), computed without the interpreter lock, then delivers events. `work` touches no Python
/// object.
template <class Work>
auto without_lock(const Work& work) {
  struct Deliver {
    ~Deliver() noexcept(false) {
      if (std::uncaught_exceptions() != before) return;
      signals.rethrow();
      deliver_events();
    }
    SignalWatch signals;
    const int before = std::uncaught_exceptions();
  } deliver;
  try {
    const Unlocked unlocked;
    return work();
  } catch (...) {
    deliver.signals.rethrow();
    throw;
  }
}

void bind_process(nanobind::module_& module);

}  // namespace jit::python
