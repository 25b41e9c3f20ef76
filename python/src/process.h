// State between calls: a context for each tuning mode.
#pragma once

#include <exception>
#include <optional>

#include <jit/context.h>
#include <jit/emulation.h>
#include <nanobind/nanobind.h>

namespace jit::python {

/// The context for calls with `tuning`, or the environment's mode; created at its first use and kept until
/// the process ends. Its events go to Python's logger "jit_attention". Needs the interpreter lock. Throws
/// what Context's constructor throws.
const Context& context_for(std::optional<TuningMode> tuning);

/// None, or a mode's name. Throws Error invalid_argument that lists the names.
std::optional<TuningMode> parse_tuning(nanobind::handle tuning);

/// Notes that this process uses a device. Throws Error driver_unavailable in a process that was forked from
/// one that did: the driver does not work there.
void use_device_here();

/// Releases the interpreter lock until the end of the scope. A thread that reacquires it during the
/// interpreter's exit waits for the process to end: Python would terminate it through C++ frames that cannot
/// be unwound.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Passes contexts' events to the logger. Contexts do not do so themselves, since they hold locks, and logger
/// handlers may do anything, such as raise a signal handler's exception.
void deliver_events();

/// Runs signal handlers, such as Ctrl-C's, during an emulated launch in this thread. An exception of one ends
/// the launch.
class SignalWatch {
 public:
  SignalWatch() : scope_([this] { return has_raised(); }) {}
  /// Throws a handler's exception. Needs the interpreter lock.
  void rethrow();
  /// Runs handlers of pending signals; true when one has raised. Takes the interpreter lock.
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
