// Moves, packing and what special registers say (PTX ISA, "mov", "Special Registers", "isspacep", "szext",
// "bmsk").
#include <string>

#include <fmt/format.h>

#include "micro_kernels/scalar.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

const Scalar moves[] = {
    {"mov.b16", "ss"},
    {"mov.b32", "ii"},
    {"mov.f32", "ff"},
    {"mov.b64", "ll"},
    {"mov.f64", "dd"},
    {"mov.b32.pack", "iss", "mov.b32 $0, {$1, $2};"},
    {"mov.b32.unpack", "ii", "mov.b32 {%z0, %z1}, $1;\n  mov.b32 $0, {%z1, %z0};"},
    {"mov.b64.pack", "lii", "mov.b64 $0, {$1, $2};"},
    {"mov.b64.unpack", "ll", "mov.b64 {%x0, %x1}, $1;\n  mov.b64 $0, {%x1, %x0};"},
    {"mov.b64.pack4", "lssss", "mov.b64 $0, {$1, $2, $3, $4};"},
    {"mov.b64.unpack4", "ll", "mov.b64 {%z0, %z1, %z2, %z3}, $1;\n  mov.b64 $0, {%z3, %z0, %z1, %z2};"},
    {"mov.b32.discard", "ii", "mov.b32 {_, %z1}, $1;\n  mov.b32 $0, {%z1, %z1};"},
    {"mov.u32.literal", "ii", "mov.u32 $0, 4294967295;"},
    {"mov.b32.float", "ii", "mov.f32 $0, 0fFF800000;"},
    {"mov.f32.decimal", "ff", "mov.f32 $0, 3.0;"},
    {"mov.b64.negative", "ll", "mov.b64 $0, -2;"},
    {"mov.b64.double", "dd", "mov.f64 $0, 0dC00921FB54442D18;"},
    {"mov.b16.negative", "ss", "mov.b16 $0, -2;"},
};

// Special registers as threads of a grid of 2 × 2 × 2 blocks see them.
MicroKernel special_registers() {
  constexpr const char* names[] = {
      "%tid.x",   "%tid.y",       "%tid.z",       "%ntid.x",      "%ntid.y",      "%ntid.z",
      "%ctaid.x", "%ctaid.y",     "%ctaid.z",     "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
      "%laneid",  "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge"};
  MicroKernel kernel;
  kernel.name = "mov.u32.special";
  kernel.grid = {2, 2, 2};
  kernel.block = {8, 2, 3};
  constexpr unsigned threads = 48;
  kernel.output = words(8 * threads * std::size(names));
  std::string body =
      "  mov.u32 %r1, %ctaid.y;\n  mov.u32 %r2, %ctaid.z;\n  mad.lo.u32 %r3, %r2, 2, %r1;\n"
      "  mad.lo.u32 %r3, %r3, 2, %rank;\n"
      "  mov.u32 %r4, %tid.y;\n  mov.u32 %r5, %tid.z;\n  mad.lo.u32 %r6, %r5, 2, %r4;\n"
      "  mad.lo.u32 %r6, %r6, 8, %thread;\n"
      "  mad.lo.u32 %r3, %r3, 48, %r6;\n  mad.wide.u32 %d1, %r3, 4, %out;\n";
  unsigned row = 0;
  for (const char* name : names) {
    body +=
        fmt::format("  mov.u32 %r7, {};\n  st.global.u32 [%d1+{}], %r7;\n", name, row++ * 8 * threads * 4);
  }
  return with_text(std::move(kernel), {.target = sm_80, .body = body});
}

// Which windows an address lies in.
MicroKernel address_spaces() {
  MicroKernel kernel;
  kernel.name = "isspacep";
  kernel.output = words(32 * 4);
  std::string body =
      "  .shared .align 4 .b8 near[16];\n  .local .align 4 .b8 own[16];\n"
      "  mov.u64 %d1, near;\n  cvta.shared.u64 %d1, %d1;\n  mov.u64 %d2, own;\n  cvta.local.u64 %d2, %d2;\n"
      "  mov.u64 %d3, %out;\n  mov.u64 %d4, out;\n  cvta.param.u64 %d4, %d4;\n";
  for (int address = 1; address <= 4; ++address) {
    body += "  mov.b32 %r0, 0;\n";
    int bit = 1;
    for (const char* space : {"shared", "local", "global"}) {
      // A parameter lies in constant memory, which counts as global.
      if (address == 4 && bit == 4) continue;
      body += fmt::format("  isspacep.{} %p0, %d{};\n  selp.b32 %r1, {}, 0, %p0;\n  or.b32 %r0, %r0, %r1;\n",
                          space, address, bit);
      bit *= 2;
    }
    body += fmt::format("  st.global.b32 [%out_at+{}], %r0;\n", (address - 1) * 128);
  }
  return with_text(std::move(kernel), {.target = sm_80, .body = body});
}

}  // namespace

std::vector<MicroKernel> move_kernels() {
  std::vector<MicroKernel> kernels;
  append(kernels, moves, sm_80);
  kernels.push_back(special_registers());
  kernels.push_back(address_spaces());
  return kernels;
}

}  // namespace jit::conformance
