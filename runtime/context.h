// Which CUDA context driver calls run in. The library never creates or resets one: it uses the context that
// is current, else the primary context of the device, the one that the CUDA runtime and PyTorch use.
#pragma once

namespace jit {

/// Ordinal of the device whose context is current on this thread; 0 when none is current.
int current_device();

/// Makes a context of `device` current on this thread until the end of the scope: the current one when it
/// belongs to `device`, else the device's primary context. Use on one thread, nest like scopes.
class CurrentContext {
 public:
  explicit CurrentContext(int device);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace jit
