#include "tests/support/ptx_run.h"

namespace jit::emulator::testing {

std::string kernel_of(const std::string& body, const std::string& declarations, const std::string& target) {
  return ".version 8.7\n.target " + target + "\n.address_size 64\n" + declarations +
         "\n.visible .entry test(.param .u64 in, .param .u64 out)\n{\n"
         "  .reg .b32 %r<64>;\n  .reg .b64 %rd<64>;\n  .reg .f32 %f<64>;\n  .reg .f64 %fd<32>;\n"
         "  .reg .b16 %h<64>;\n  .reg .pred %p<32>;\n"
         "  ld.param.u64 %rd60, [in];\n  ld.param.u64 %rd61, [out];\n  mov.u32 %r60, %tid.x;\n" +
         body + "\n  ret;\n}\n";
}

}  // namespace jit::emulator::testing
