// Kernels that copy a box of a tensor, and a walk over the box on the host to hold them beside.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "operations/copies/tensor_map.h"
#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {

inline constexpr std::size_t smem_bytes = 65536;

struct alignas(64) MapParameter {
  std::array<std::byte, tensor_map_bytes> bytes;
};

/// A kernel that has its tensor map at %rd2, the coordinates in %r50 …, shared memory at %r1, an mbarrier at %r2.
inline std::string kernel_with_map(const std::string& body) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n"
         ".extern .shared .align 1024 .b8 buf[];\n.shared .align 8 .b64 bar;\n"
         ".visible .entry test(.param .align 64 .b8 map[128], .param .u64 out, .param .align 4 .b8 "
         "at[20])\n{\n"
         "  .reg .b32 %r<64>;\n  .reg .b64 %rd<64>;\n  .reg .pred %p<32>;\n"
         "  ld.param.u64 %rd61, [out];\n  mov.u32 %r60, %tid.x;\n"
         "  mov.b64 %rd1, map;\n  cvta.param.u64 %rd2, %rd1;\n"
         "  ld.param.u32 %r50, [at];\n  ld.param.u32 %r51, [at+4];\n  ld.param.u32 %r52, [at+8];\n"
         "  ld.param.u32 %r53, [at+12];\n  ld.param.u32 %r54, [at+16];\n"
         "  mov.u32 %r1, buf;\n  mov.u32 %r2, bar;\n  setp.eq.u32 %p1, %r60, 0;\n" +
         body + "\n  ret;\n}\n";
}

inline std::string coordinates(std::uint32_t rank) {
  const char* names[] = {"%r50", "%r50, %r51", "%r50, %r51, %r52", "%r50, %r51, %r52, %r53",
                         "%r50, %r51, %r52, %r53, %r54"};
  return std::string("{") + names[rank - 1] + "}";
}

/// Loads the box and copies shared memory, as it lies there, to `out`.
inline std::string load_kernel(std::uint32_t rank, std::uint64_t bytes, const std::string& mode = "") {
  const std::string dimension = std::to_string(rank) + "d";
  return kernel_with_map(init_by_first("bar", 1) + "  @%p1 prefetch.tensormap [%rd2];\n" +
                         "  @%p1 cp.async.bulk.prefetch.tensor." + dimension + ".L2.global.tile [%rd2, " +
                         coordinates(rank) + "];\n" +
                         "  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], " +
                         std::to_string(bytes) + ";\n  @%p1 cp.async.bulk.tensor." + dimension +
                         ".shared::cluster.global" + mode + ".mbarrier::complete_tx::bytes [%r1], [%rd2, " +
                         coordinates(rank) + "], [%r2];\n" + wait_for("%r2", "0", "WAIT") + R"(
  shl.b32 %r3, %r60, 4;
COPY:
  setp.ge.u32 %p2, %r3, )" +
                         std::to_string(bytes) + R"(;
  @%p2 bra END;
  add.u32 %r4, %r1, %r3;
  ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
  cvt.u64.u32 %rd3, %r3;
  add.u64 %rd3, %rd3, %rd61;
  st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};
  add.u32 %r3, %r3, 512;
  bra COPY;
END:
)");
}

/// Rows of 128 bytes of shared memory decide which of its 16-byte pieces change places.
inline std::uint32_t place_of(TensorMap::Swizzle swizzle, std::uint32_t byte) {
  const std::uint32_t line = byte / 128, piece = byte % 128 / 16;
  switch (swizzle) {
    case TensorMap::Swizzle::bytes128:
      return line * 128 + (piece ^ line % 8) * 16 + byte % 16;
    case TensorMap::Swizzle::bytes64:
      return line * 128 + (piece ^ line % 4) * 16 + byte % 16;
    case TensorMap::Swizzle::bytes32:
      return line * 128 + (piece ^ line % 2) * 16 + byte % 16;
    default:
      return byte;
  }
}

/// Calls f(byte in the tensor or −1, byte in shared memory) for each byte of a box that lies at byte `offset`, one
/// element after the other.
inline void walk(const TensorMap& map, const std::array<std::int32_t, 5>& at,
                 const std::function<void(std::int64_t, std::uint32_t)>& f,
                 std::uint32_t offset_in_shared = 0) {
  const std::uint32_t element = element_bytes(map.element);
  std::array<std::uint32_t, 5> index = {};
  const auto count = static_cast<std::uint32_t>(box_bytes(map) / element);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    bool inside = true;
    for (std::uint32_t d = 0; d < map.rank; ++d) {
      const std::uint32_t step = d == 0 ? 1 : map.element_strides[d];
      const std::int64_t x = at[d] + static_cast<std::int64_t>(index[d] * step);
      inside = inside && x >= 0 && x < static_cast<std::int64_t>(map.dimensions[d]);
      offset += x * (d == 0 ? element : static_cast<std::int64_t>(map.strides[d - 1]));
    }
    for (std::uint32_t b = 0; b < element; ++b) {
      f(inside ? offset + b : -1, place_of(map.swizzle, offset_in_shared + i * element + b));
    }
    for (std::uint32_t d = 0; d < map.rank; ++d) {
      const std::uint32_t step = d == 0 ? 1 : map.element_strides[d];
      if (++index[d] * step < map.box[d]) break;
      index[d] = 0;
    }
  }
}

inline LaunchResult run(TestDevice& device, const std::string& ptx, const TensorMap& map, std::uint64_t out,
                        const std::array<std::int32_t, 5>& at = {}, std::uint64_t seed = 0) {
  LaunchOptions options;
  options.seed = seed;
  options.threads = 1;
  LaunchShape shape = {.grid = {1, 1, 1}, .block = {32, 1, 1}};
  shape.dynamic_smem_bytes = smem_bytes;
  return device.run(ptx, shape, options, MapParameter{encode(map)}, out, at);
}

inline std::uint8_t fill_byte(const TensorMap& map, std::uint32_t position) {
  if (map.out_of_bounds == TensorMap::OutOfBounds::zero) return 0;
  return position % 2 == 0 ? 0xf7 : 0x7f;  // 0x7ff7 in each 16 bits, as an H200 fills
}

}  // namespace jit::emulator::testing
