#include "recorder/micro_worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <jit/error.h>

#include "recorder/micro_run.h"

namespace jit::conformance {
namespace {

enum class Kind : std::uint32_t { device, no_such_device, no_device, result, error };

struct Header {
  Kind kind;
  std::uint32_t bytes;
};

// Called in the worker; `end` is its end of the pipe.
void send(int end, Kind kind, const void* data, std::size_t bytes) {
  const Header header{kind, static_cast<std::uint32_t>(bytes)};
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message.append(static_cast<const char*>(data), bytes);
  for (std::size_t at = 0; at < message.size();) {
    const ssize_t written = write(end, message.data() + at, message.size() - at);
    if (written < 0 && errno == EINTR) continue;  // such as a stop and a resume of the terminal's job
    if (written < 0) _exit(3);
    at += static_cast<std::size_t>(written);
  }
}

void send(int end, Kind kind, const std::string& text) { send(end, kind, text.data(), text.size()); }

// First sends the device's target and name, a line each.
[[noreturn]] void work(int end, const OpenDevice& open, const std::vector<const MicroKernel*>& kernels,
                       std::size_t first) {
  // Compile when loading, which has the log.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  std::unique_ptr<MicroRunner> runner;
  try {
    runner = std::make_unique<MicroRunner>(open());
    send(end, Kind::device, runner->target() + "\n" + runner->device());
  } catch (const Error& error) {
    send(end, error.code() == ErrorCode::invalid_argument ? Kind::no_such_device : Kind::no_device,
         error.message());
    _exit(1);
  } catch (const std::invalid_argument& error) {
    send(end, Kind::no_such_device, error.what());
    _exit(1);
  } catch (const std::exception& error) {
    send(end, Kind::no_device, error.what());
    _exit(1);
  }
  for (std::size_t i = first; i < kernels.size(); ++i) {
    try {
      runner->load(*kernels[i]);
    } catch (const std::exception& error) {
      send(end, Kind::error, error.what());
      continue;
    }
    try {
      const std::vector<std::byte> output = runner->run(*kernels[i]);
      send(end, Kind::result, output.data(), output.size());
    } catch (const std::exception& error) {
      send(end, Kind::error, error.what());
      _exit(2);
    }
  }
  _exit(0);
}

class Worker {
 public:
  Worker(const OpenDevice& open, const std::vector<const MicroKernel*>& kernels, std::size_t first) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("pipe failed");
    process_ = fork();
    if (process_ < 0) throw std::runtime_error("fork failed");
    if (process_ == 0) {
      close(ends[0]);
      work(ends[1], open, kernels, first);
    }
    close(ends[1]);
    end_ = ends[0];
  }
  ~Worker() {
    kill(process_, SIGKILL);
    close(end_);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  struct Message {
    Kind kind = Kind::error;
    std::vector<std::byte> data;
    std::string text() const { return {reinterpret_cast<const char*>(data.data()), data.size()}; }
  };
  enum class Outcome { message, hung, gone };
  /// The first message.
  MicroDevice device(std::chrono::seconds patience) {
    Message message;
    if (receive(message, patience) != Outcome::message)
      throw std::runtime_error("the CUDA driver did not start");
    if (message.kind == Kind::no_such_device) throw std::invalid_argument(message.text());
    if (message.kind == Kind::no_device) throw std::runtime_error(message.text());
    const std::string text = message.text();
    const std::size_t line = text.find('\n');
    return {text.substr(line + 1), text.substr(0, line)};
  }
  Outcome receive(Message& message, std::chrono::seconds patience) {
    Header header{};
    const auto deadline = std::chrono::steady_clock::now() + patience;
    if (const Outcome outcome = read_all(&header, sizeof(header), deadline); outcome != Outcome::message)
      return outcome;
    message.kind = header.kind;
    message.data.resize(header.bytes);
    return read_all(message.data.data(), header.bytes, deadline);
  }

 private:
  Outcome read_all(void* to, std::size_t bytes, std::chrono::steady_clock::time_point deadline) {
    auto* at = static_cast<char*>(to);
    while (bytes != 0) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
              .count();
      pollfd wanted{end_, POLLIN, 0};
      const int ready = left <= 0 ? 0 : poll(&wanted, 1, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return Outcome::hung;
      const ssize_t got = read(end_, at, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return Outcome::gone;
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return Outcome::message;
  }

  pid_t process_ = -1;
  int end_ = -1;
};

}  // namespace

MicroDevice find_device(const OpenDevice& open) {
  return Worker(open, {}, 0).device(std::chrono::minutes(1));
}

std::string run_in_worker(const OpenDevice& open, const std::vector<const MicroKernel*>& kernels,
                          std::chrono::seconds patience,
                          const std::function<void(std::size_t, MicroResult)>& done) {
  std::string device;
  std::size_t next = 0;
  while (next < kernels.size()) {
    Worker worker(open, kernels, next);
    device = worker.device(patience + std::chrono::minutes(1)).name;
    Worker::Message message;
    // Runs kernels until the worker is lost; the next worker continues after the kernel that lost it.
    bool lost = false;
    bool told = false;
    while (!lost && next < kernels.size()) {
      const Worker::Outcome outcome = worker.receive(message, patience);
      MicroResult result;
      if (outcome == Worker::Outcome::message && message.kind == Kind::result) {
        result.output = std::move(message.data);
      } else if (outcome == Worker::Outcome::message) {
        result.error = message.text();
      } else {
        lost = true;
        // A worker exits after an error that it has reported.
        if (outcome == Worker::Outcome::gone && told) break;
        result.error = outcome == Worker::Outcome::hung ? "it hangs" : "the process that ran it died";
      }
      told = !result.error.empty();
      done(next++, std::move(result));
    }
  }
  return device;
}

}  // namespace jit::conformance
