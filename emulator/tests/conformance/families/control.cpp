// Branches, loops and divergence (PTX ISA, "Control Flow Instructions", "Divergence of Threads in Control
// Constructs").
#include <string>

#include "micro_kernels/kernel_text.h"
#include "tests/conformance/families/families.h"

namespace jit::conformance {
namespace {

struct Program {
  const char* name;
  const char* body;  ///< of 64 threads: reads %r0, a random word, and leaves its result in %r1
};

const Program programs[] = {
    {"bra.if", R"(
  and.b32 %r2, %r0, 1;  setp.eq.u32 %p0, %r2, 0;
  mov.u32 %r1, 5;
  @%p0 bra SKIP;
  mul.lo.u32 %r1, %r0, 3;
SKIP:
  add.u32 %r1, %r1, %lane;
)"},
    {"bra.nested", R"(
  mov.u32 %r1, 0;
  and.b32 %r2, %r0, 1;  setp.eq.u32 %p0, %r2, 0;
  and.b32 %r3, %r0, 2;  setp.eq.u32 %p1, %r3, 0;
  and.b32 %r4, %r0, 4;  setp.eq.u32 %p2, %r4, 0;
  @!%p0 bra ELSE;
  add.u32 %r1, %r1, 1;
  @%p1 bra INNER;
  add.u32 %r1, %r1, 10;
  @%p2 bra JOIN;
  add.u32 %r1, %r1, 100;
INNER:
  add.u32 %r1, %r1, 1000;
  bra.uni JOIN;
ELSE:
  @%p2 bra JOIN;
  add.u32 %r1, %r1, 10000;
JOIN:
  mad.lo.u32 %r1, %r1, 7, %lane;
)"},
    {"bra.loop", R"(
  and.b32 %r2, %r0, 31;
  mov.u32 %r1, %r0;
LOOP:
  mad.lo.u32 %r1, %r1, 1664525, 1013904223;
  sub.s32 %r2, %r2, 1;
  setp.ge.s32 %p0, %r2, 0;
  @%p0 bra LOOP;
)"},
    {"bra.break", R"(
  mov.u32 %r1, %r0;  mov.u32 %r2, 0;
LOOP:
  add.u32 %r2, %r2, 1;
  and.b32 %r3, %r1, 7;  setp.eq.u32 %p0, %r3, 3;
  @%p0 bra DONE;
  and.b32 %r3, %r1, 1;  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra EVEN;
  mad.lo.u32 %r1, %r1, 3, 1;
  bra NEXT;
EVEN:
  shr.u32 %r1, %r1, 1;
NEXT:
  setp.lt.u32 %p2, %r2, 100;
  @%p2 bra LOOP;
DONE:
  mad.lo.u32 %r1, %r2, 65536, %r1;
)"},
    {"guard", R"(
  setp.lt.s32 %p0, %r0, 0;
  mov.u32 %r1, 1;
  @%p0 add.u32 %r1, %r1, 2;
  @!%p0 add.u32 %r1, %r1, 4;
  @%p0 mul.lo.u32 %r1, %r1, %r0;
)"},
    {"exit", R"(
  mov.u32 %r1, 77;
  and.b32 %r2, %r0, 3;  setp.eq.u32 %p0, %r2, 1;
  @%p0 st.global.b32 [%out_at], %r1;
  @%p0 exit;
  setp.eq.u32 %p1, %r2, 2;
  @%p1 bra LATER;
  add.u32 %r1, %r1, 1;
LATER:
  add.u32 %r1, %r1, %lane;
)"},
    {"brx.idx", R"(
  and.b32 %r2, %r0, 3;
  mov.u32 %r1, 0;
TABLE: .branchtargets A, B, C, A;
  brx.idx %r2, TABLE;
A:
  add.u32 %r1, %r1, 1;
B:
  add.u32 %r1, %r1, 10;
  bra END;
C:
  add.u32 %r1, %r1, 100;
END:
  mad.lo.u32 %r1, %r1, 1000, %r2;
)"},
    {"reconvergence", R"(
  mov.u32 %r1, 0;
  and.b32 %r2, %r0, 1;  setp.eq.u32 %p0, %r2, 0;
  @%p0 bra OTHER;
  mul.lo.u32 %r3, %r0, 5;
  bra MEET;
OTHER:
  add.u32 %r3, %r0, 9;
MEET:
  bar.warp.sync 0xffffffff;
  shfl.sync.bfly.b32 %r4, %r3, 1, 31, 0xffffffff;
  xor.b32 %r1, %r3, %r4;
)"},
    {"nanosleep", R"(
  nanosleep.u32 20;
  mov.u32 %r1, %r0;
)"},
};

}  // namespace

std::vector<MicroKernel> control_kernels() {
  std::vector<MicroKernel> kernels;
  for (const Program& program : programs) {
    MicroKernel kernel;
    kernel.name = program.name;
    kernel.block = {64, 1, 1};
    kernel.inputs = {{.element = Element::i32, .pattern = Pattern::bits, .count = 64}};
    kernel.output = words(64);
    const std::string body =
        "  ld.global.b32 %r0, [%in0_at];\n" + std::string(program.body) + store_words(1, 1, 64);
    kernels.push_back(with_text(std::move(kernel), {.target = sm_80, .body = body}));
  }
  return kernels;
}

}  // namespace jit::conformance
