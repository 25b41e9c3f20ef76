// Any bytes as PTX: they are refused with a PtxError, or loaded. Nothing else may happen.
#include <cstddef>
#include <cstdint>
#include <string>

#include <emulator/module.h>

#include "ptx/syntax.h"
#include "tests/support/ptx_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    jit::emulator::testing::check_module(jit::emulator::ptx::parse(text), text);
    jit::emulator::Module(text, {9, 0, 'a'});
  } catch (const jit::emulator::PtxError&) {
  }
  return 0;
}
