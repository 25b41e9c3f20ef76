// Expensive results of a process, each computed once for any number of threads.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "cache/digest.h"

namespace jit {

/// Results by key. Thread safe. A result is kept until it is erased or the object is destroyed; a shared_ptr
/// keeps it longer.
template <class Value>
class SingleFlight {
 public:
  using Result = std::shared_ptr<const Value>;

  SingleFlight() : state_(new State) {}
  ~SingleFlight() { delete state_.load(); }
  SingleFlight(const SingleFlight&) = delete;
  SingleFlight& operator=(const SingleFlight&) = delete;

  /// The result of `key`. If there is none, one caller runs `make` while others with the same key wait;
  /// callers with other keys do not. If `make` throws, all of them get the exception, and the next call tries
  /// again. `make` runs without any lock and must not ask for its own key. A forked child starts without its
  /// parent's results, so that no thread waits for a computation that fork did not copy.
  Result get(const Digest& key, const std::function<Value()>& make) {
    State& state = current_state();
    std::promise<Result> promise;
    std::shared_future<Result> flight;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(state.mutex);
      const auto [position, inserted] = state.flights.try_emplace(key);
      if (inserted) {
        number = ++state.last_number;
        position->second = {promise.get_future().share(), number};
      } else {
        flight = position->second.result;
      }
    }
    if (flight.valid()) return flight.get();
    try {
      Result result = std::make_shared<const Value>(make());
      promise.set_value(result);
      return result;
    } catch (...) {
      {
        const std::lock_guard lock(state.mutex);
        const auto position = state.flights.find(key);
        // After an erase, this may be a later flight, which must stay.
        if (position != state.flights.end() && position->second.number == number) {
          state.flights.erase(position);
        }
      }
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  /// The result if it is ready, else null. Never waits for a computation.
  Result find(const Digest& key) const {
    State& state = current_state();
    const std::lock_guard lock(state.mutex);
    const auto position = state.flights.find(key);
    if (position == state.flights.end()) return nullptr;
    const std::shared_future<Result>& result = position->second.result;
    return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? result.get() : nullptr;
  }

  /// All ready results, unordered. Never waits for a computation.
  std::vector<Result> results() const {
    State& state = current_state();
    const std::lock_guard lock(state.mutex);
    std::vector<Result> results;
    for (const auto& [key, flight] : state.flights) {
      if (flight.result.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
        results.push_back(flight.result.get());
    }
    return results;
  }

  /// Removes the result of `key`, so that the next `get` computes it. A running computation still delivers
  /// its result to waiting callers, but it is not kept.
  void erase(const Digest& key) {
    State& state = current_state();
    const std::lock_guard lock(state.mutex);
    state.flights.erase(key);
  }

 private:
  struct Flight {
    std::shared_future<Result> result;
    std::uint64_t number = 0;
  };
  struct Hash {
    std::size_t operator()(const Digest& key) const { return key.low; }
  };
  struct State {
    pid_t process = getpid();
    std::mutex mutex;
    std::unordered_map<Digest, Flight, Hash> flights;
    std::uint64_t last_number = 0;
    std::unique_ptr<State>
        inherited;  // of the parent process: its mutex may be held for ever, so it is only kept
  };

  State& current_state() const {
    State* seen = state_.load(std::memory_order_acquire);
    if (seen->process == getpid()) return *seen;
    auto fresh = std::make_unique<State>();
    fresh->inherited.reset(seen);
    if (state_.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
    static_cast<void>(fresh->inherited.release());  // another thread of this child won and owns it
    return *seen;
  }

  mutable std::atomic<State*> state_;
};

}  // namespace jit
