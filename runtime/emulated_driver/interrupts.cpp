#include "runtime/emulated_driver/interrupts.h"

#include <jit/emulation.h>

#include <utility>

namespace jit {

/// The interrupt scopes of a thread.
class InterruptScopes {
 public:
  static InterruptScope*& innermost() {
    thread_local InterruptScope* scope = nullptr;
    return scope;
  }
  static bool any_is_interrupted() {
    for (const InterruptScope* scope = innermost(); scope; scope = scope->outer_) {
      if (scope->is_interrupted_()) return true;
    }
    return false;
  }
};

InterruptScope::InterruptScope(std::function<bool()> is_interrupted)
    : outer_(InterruptScopes::innermost()), is_interrupted_(std::move(is_interrupted)) {
  InterruptScopes::innermost() = this;
}

InterruptScope::~InterruptScope() { InterruptScopes::innermost() = outer_; }

namespace emulated_driver {

std::function<bool()> interrupt_check() {
  if (!InterruptScopes::innermost()) return {};
  return InterruptScopes::any_is_interrupted;
}

}  // namespace emulated_driver
}  // namespace jit
