/// @file
/// Events of the library, which a Context reports to an Observer. The library itself prints only warnings of the
/// default context.
///
/// @code
/// const jit::Observer observer = [](const jit::Event& event) {
///   if (event.kind == jit::Event::Kind::compile) std::printf("%s: %.1f s\n", event.message.c_str(), event.seconds);
/// };
/// const jit::Context context(jit::settings_from_environment(), observer);
/// @endcode
#pragma once

#include <functional>
#include <string>

namespace jit {

/// One thing that happened.
struct Event {
  /// The kind of an event.
  enum class Kind {
    note,     ///< something worth knowing: a remark of the assembler on a kernel that was compiled
    warning,  ///< something went wrong and was worked around: a damaged cache entry, an unwritable folder; or
              ///< the compiler warns of the user's text, once in a context: "mine:3: warning #177-D: …"
    compile,  ///< a kernel was compiled; `message` names it, `seconds` is the compile time
    tune,  ///< progress of tuning or of a pack: `done` of `total`, `seconds` since its start, or 0 if unknown
    tuned  ///< tuning has ended; `message` names the config that it chose, `seconds` is how long it took
  };
  Kind kind = Kind::note;  ///< what happened
  std::string message;     ///< one sentence
  double seconds = 0;      ///< wall time; see Kind
  int done = 0;            ///< with tune: measured candidates, or finished choices of a pack
  int total = 0;           ///< with tune: all of these
};

/// Called synchronously, from any thread, possibly from several at once, also while a kernel is being chosen: it must
/// not throw, and must not call the Attention that the event is about. Empty: no observer.
using Observer = std::function<void(const Event&)>;

}  // namespace jit
