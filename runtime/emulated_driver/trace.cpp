#include "runtime/emulated_driver/trace.h"

#include <jit/emulation.h>

#include <utility>

namespace jit {

struct LaunchTrace::Record {
  emulator::Function function;
  emulator::LaunchShape shape;
  emulator::LaunchResult result;
};

/// The trace scopes of a thread.
class TraceScopes {
 public:
  static TraceScope*& innermost() {
    thread_local TraceScope* scope = nullptr;
    return scope;
  }
  static void add(const LaunchTrace& launch) {
    for (TraceScope* scope = innermost(); scope; scope = scope->outer_) scope->launches_.push_back(launch);
  }
};

const std::string& LaunchTrace::kernel() const { return record_->function.name(); }
bool LaunchTrace::is_cooperative() const { return record_->shape.cooperative; }

std::vector<std::string> LaunchTrace::findings() const {
  std::vector<std::string> texts;
  for (const emulator::Finding& finding : record_->result.findings) texts.push_back(to_string(finding));
  return texts;
}

std::uint64_t LaunchTrace::warp_instructions() const { return record_->result.warp_instructions; }
double LaunchTrace::seconds() const { return record_->result.seconds; }

std::string LaunchTrace::counts_json() const {
  return emulator::counts_json(record_->function, record_->result.counts);
}

std::string LaunchTrace::listing() const {
  return emulator::annotated_listing(record_->function, record_->result.counts);
}

TraceScope::TraceScope() : outer_(TraceScopes::innermost()) { TraceScopes::innermost() = this; }

TraceScope::~TraceScope() { TraceScopes::innermost() = outer_; }

namespace emulated_driver {

void trace_launch(const emulator::Function& function, const emulator::LaunchShape& shape,
                  emulator::LaunchResult result) {
  if (!TraceScopes::innermost()) return;
  TraceScopes::add(LaunchTrace(
      std::make_shared<const LaunchTrace::Record>(LaunchTrace::Record{function, shape, std::move(result)})));
}

}  // namespace emulated_driver
}  // namespace jit
