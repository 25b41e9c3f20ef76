// Copies of boxes of tensors, against a walk over all elements on the host.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "operations/copies/tensor_map.h"
#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"
#include "tests/unit/bulk_tensor_run.h"

namespace jit::emulator::testing {
namespace {

// The other way: fills shared memory from `out` and stores, or reduces, the box.
std::string store_kernel(std::uint32_t rank, std::uint64_t bytes, const std::string& instruction) {
  return kernel_with_map(R"(
  shl.b32 %r3, %r60, 4;
COPY:
  setp.ge.u32 %p2, %r3, )" +
                         std::to_string(bytes) + R"(;
  @%p2 bra STORE;
  add.u32 %r4, %r1, %r3;
  cvt.u64.u32 %rd3, %r3;
  add.u64 %rd3, %rd3, %rd61;
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3];
  st.shared.v4.u32 [%r4], {%r5, %r6, %r7, %r8};
  add.u32 %r3, %r3, 512;
  bra COPY;
STORE:
  fence.proxy.async.shared::cta;
  bar.warp.sync 0xffffffff;
  @%p1 )" + instruction + " [%rd2, " +
                         coordinates(rank) + R"(], [%r1];
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group 0;
)");
}

/// A tensor in the memory of a device, every byte of its allocation written.
struct Tensor {
  TensorMap map;
  std::vector<std::uint8_t> bytes;
};

Tensor random_tensor(std::mt19937& random, TestDevice& device) {
  const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
  Tensor tensor;
  TensorMap& map = tensor.map;
  const TensorMap::Element elements[] = {TensorMap::Element::u8, TensorMap::Element::bf16,
                                         TensorMap::Element::f32, TensorMap::Element::s64};
  map.element = elements[below(4)];
  map.swizzle = static_cast<TensorMap::Swizzle>(below(4));
  map.rank = 1 + below(5);
  const std::uint32_t element = element_bytes(map.element);
  const std::uint32_t row =
      map.swizzle == TensorMap::Swizzle::none ? 16 * (1 + below(8)) : swizzle_span(map.swizzle);
  map.box[0] = row / element;
  map.dimensions[0] = 1 + below(3 * map.box[0]);
  std::uint64_t stride = (map.dimensions[0] * element + 15) / 16 * 16 + 16 * below(3);
  for (std::uint32_t d = 1; d < map.rank; ++d) {
    map.element_strides[d] = below(3) == 0 ? 1 + below(3) : 1;
    map.box[d] = 1 + below(d == 1 ? 24 : 4);
    map.dimensions[d] = 1 + below(2 * map.box[d]);
    map.strides[d - 1] = stride;
    stride *= map.dimensions[d];
  }
  const TensorMap::OutOfBounds fills[] = {TensorMap::OutOfBounds::zero, TensorMap::OutOfBounds::nan};
  if (map.element == TensorMap::Element::bf16 || map.element == TensorMap::Element::f32) {
    map.out_of_bounds = fills[below(2)];
  }
  tensor.bytes.resize(stride);
  for (std::uint8_t& byte : tensor.bytes) byte = static_cast<std::uint8_t>(random());
  map.address = device.upload(tensor.bytes);
  return tensor;
}

// Where a copy may begin: the innermost coordinate is a multiple of 16 bytes.
std::array<std::int32_t, 5> random_place(std::mt19937& random, const TensorMap& map) {
  std::array<std::int32_t, 5> at = {};
  for (std::uint32_t d = 0; d < map.rank; ++d) {
    const auto range = static_cast<std::uint32_t>(map.dimensions[d]) + map.box[d];
    at[d] = static_cast<std::int32_t>(random() % range) - static_cast<std::int32_t>(map.box[d] / 2);
  }
  at[0] -= at[0] % static_cast<std::int32_t>(16 / element_bytes(map.element));
  return at;
}

TEST(BulkTensor, LoadsWhatTheWalkFinds) {
  std::mt19937 random(11);
  int outside = 0;
  for (int round = 0; round < 120; ++round) {
    TestDevice device;
    const Tensor tensor = random_tensor(random, device);
    ASSERT_EQ(validate(tensor.map), std::nullopt);
    const std::uint64_t bytes = box_bytes(tensor.map);
    const std::uint64_t out = device.room<std::uint8_t>(bytes);
    const auto at = random_place(random, tensor.map);
    const LaunchResult result = run(device, load_kernel(tensor.map.rank, bytes, round % 2 ? ".tile" : ""),
                                    tensor.map, out, at, static_cast<std::uint64_t>(round));
    ASSERT_EQ(findings_of(result), "") << round;
    const auto got = device.download<std::uint8_t>(out, bytes);
    walk(tensor.map, at, [&](std::int64_t from, std::uint32_t to) {
      const std::uint8_t expected =
          from < 0 ? fill_byte(tensor.map, to) : tensor.bytes[static_cast<std::size_t>(from)];
      outside += from < 0;
      ASSERT_EQ(got[to], expected) << "round " << round << " byte " << to;
    });
  }
  EXPECT_GT(outside, 1000);
}

TEST(BulkTensor, StoresInsideOnly) {
  std::mt19937 random(12);
  for (int round = 0; round < 120; ++round) {
    TestDevice device;
    const Tensor tensor = random_tensor(random, device);
    const std::uint64_t bytes = box_bytes(tensor.map);
    std::vector<std::uint8_t> image(bytes);
    for (std::uint8_t& byte : image) byte = static_cast<std::uint8_t>(random());
    const std::uint64_t out = device.upload(image);
    const auto at = random_place(random, tensor.map);
    const std::string instruction =
        "cp.async.bulk.tensor." + std::to_string(tensor.map.rank) + "d.global.shared::cta.tile.bulk_group";
    const LaunchResult result =
        run(device, store_kernel(tensor.map.rank, bytes, instruction), tensor.map, out, at);
    ASSERT_EQ(findings_of(result), "") << round;
    std::vector<std::uint8_t> expected = tensor.bytes;
    walk(tensor.map, at, [&](std::int64_t to, std::uint32_t from) {
      if (to >= 0) expected[static_cast<std::size_t>(to)] = image[from];
    });
    ASSERT_EQ(device.download<std::uint8_t>(tensor.map.address, expected.size()), expected) << round;
  }
}

TensorMap matrix(TestDevice& device, TensorMap::Element element, std::uint32_t columns, std::uint32_t rows,
                 const std::vector<float>& values) {
  TensorMap map;
  map.element = element;
  map.rank = 2;
  map.dimensions = {columns, rows, 1, 1, 1};
  map.strides = {columns * 4, 0, 0, 0};
  map.box = {columns, 4, 1, 1, 1};
  map.address = device.upload(values);
  return map;
}

TEST(BulkTensor, ReducesInsideOnly) {
  TestDevice device;
  std::vector<float> values(8 * 6), image(8 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = 0.5f * static_cast<float>(i);
  const TensorMap map = matrix(device, TensorMap::Element::f32, 8, 6, values);
  const std::uint64_t out = device.upload(image);
  const LaunchResult result = run(
      device, store_kernel(2, 128, "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"),
      map, out, {4, 4});
  EXPECT_EQ(findings_of(result), "");
  walk(map, {4, 4}, [&](std::int64_t to, std::uint32_t from) {
    if (to >= 0 && to % 4 == 0) values[static_cast<std::size_t>(to / 4)] += image[from / 4];
  });
  EXPECT_EQ(device.download<float>(map.address, values.size()), values);
}

// Rows of the box that lie outside need not have been written to shared memory.
TEST(BulkTensor, StoresDoNotReadWhatLiesOutside) {
  for (const auto swizzle : {TensorMap::Swizzle::none, TensorMap::Swizzle::bytes32}) {
    TestDevice device;
    TensorMap map = matrix(device, TensorMap::Element::f32, 8, 6, std::vector<float>(48, 0));
    map.swizzle = swizzle;
    const std::uint64_t out = device.upload(std::vector<float>(16, 3));
    // Two rows of the four are filled, and inside.
    const std::string store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group";
    EXPECT_EQ(findings_of(run(device, store_kernel(2, 64, store), map, out, {0, 4})), "");
    EXPECT_EQ(device.download<float>(map.address, 48)[47], 3.0f);
    const LaunchResult result = run(device, store_kernel(2, 64, store), map, out, {0, 3});
    EXPECT_TRUE(has_finding(result, FindingKind::uninitialized_shared_read)) << findings_of(result);
  }
}

// As an H200 does: an illegal instruction, though a load from there is zeros, and a store behind the end is nothing.
TEST(BulkTensor, StoresWhollyBeforeTheTensorAreReported) {
  for (const std::string store : {"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group",
                                  "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group"}) {
    TestDevice device;
    const TensorMap map = matrix(device, TensorMap::Element::f32, 8, 6, std::vector<float>(48, 2));
    const std::uint64_t out = device.upload(std::vector<float>(32, 3));
    for (const std::array<std::int32_t, 5> at : {std::array<std::int32_t, 5>{0, -4}, {-8, 0}, {0, -64}}) {
      const LaunchResult result = run(device, store_kernel(2, 128, store), map, out, at);
      EXPECT_TRUE(has_finding(result, FindingKind::out_of_bounds)) << findings_of(result);
    }
    for (const std::array<std::int32_t, 5> at : {std::array<std::int32_t, 5>{0, 6}, {8, 0}, {0, 0x7fffff00}})
      EXPECT_EQ(findings_of(run(device, store_kernel(2, 128, store), map, out, at)), "");
    EXPECT_EQ(device.download<float>(map.address, 48), std::vector<float>(48, 2)) << "nothing was written";
    EXPECT_EQ(findings_of(run(device, load_kernel(2, 128), map, out, {0, -4})), "");
  }
}

// As an H200 does, whatever the type: x must be a multiple of 16 bytes, and other coordinates may be any.
TEST(BulkTensor, InnermostCoordinatesThatAreNoMultipleOf16BytesAreReported) {
  TestDevice device;
  const TensorMap floats = matrix(device, TensorMap::Element::f32, 8, 6, std::vector<float>(48, 2));
  TensorMap bytes = floats;
  bytes.element = TensorMap::Element::u8;
  bytes.dimensions[0] = bytes.box[0] = 32;
  const std::uint64_t out = device.upload(std::vector<float>(32, 3));
  const std::string kernels[] = {
      load_kernel(2, 128), store_kernel(2, 128, "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"),
      store_kernel(2, 128, "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group")};
  for (const std::string& kernel : kernels) {
    for (const auto& [map, unit] : {std::pair{&floats, 4}, {&bytes, 1}}) {
      if (map == &bytes && &kernel == &kernels[2]) continue;  // which does not add bytes
      for (const int offset : {-4, 4, 8, 12, 20}) {
        const LaunchResult result = run(device, kernel, *map, out, {offset / unit, 1});
        const std::string message = message_of(result, FindingKind::illegal_instruction);
        EXPECT_NE(message.find(std::to_string(offset) + " bytes into the tensor"), std::string::npos)
            << offset << ": " << findings_of(result);
      }
      for (const int offset : {-16, 0, 16})
        EXPECT_EQ(findings_of(run(device, kernel, *map, out, {offset / unit, 1})), "") << offset;
    }
  }
}

TEST(BulkTensor, ReductionMustFitTheElements) {
  TestDevice device;
  const TensorMap map = matrix(device, TensorMap::Element::f32, 8, 6, std::vector<float>(48, 1));
  const std::uint64_t out = device.upload(std::vector<float>(32, 1));
  const LaunchResult result =
      run(device, store_kernel(2, 128, "cp.reduce.async.bulk.tensor.2d.global.shared::cta.xor.bulk_group"),
          map, out);
  EXPECT_TRUE(has_finding(result, FindingKind::bad_descriptor)) << findings_of(result);
}

// Also where the map says FLOAT32_FTZ: an H200 does not flush as it loads.
TEST(BulkTensor, LoadsKeepSubnormals) {
  for (const bool ftz : {false, true}) {
    TestDevice device;
    std::vector<float> values(8 * 4, 1.5f);
    values[3] = -0x1p-130f;
    values[9] = 0x1p-127f;
    const TensorMap map =
        matrix(device, ftz ? TensorMap::Element::f32_ftz : TensorMap::Element::f32, 8, 4, values);
    const std::uint64_t out = device.room<float>(32);
    EXPECT_EQ(findings_of(run(device, load_kernel(2, 128), map, out)), "");
    const auto got = device.download<float>(out, 32);
    EXPECT_EQ(got[0], 1.5f);
    EXPECT_EQ(got[3], values[3]);
    EXPECT_EQ(got[9], values[9]);
  }
}

TEST(BulkTensor, MapMayLieInGlobalMemory) {
  TestDevice device;
  std::vector<float> values(8 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const TensorMap map = matrix(device, TensorMap::Element::f32, 8, 4, values);
  const auto bytes = encode(map);
  const std::uint64_t place = device.upload(std::vector<std::byte>(bytes.begin(), bytes.end()));
  std::string ptx = load_kernel(2, 128);
  const std::string from_parameter = "cvta.param.u64 %rd2, %rd1;";
  ptx.replace(ptx.find(from_parameter), from_parameter.size(),
              "mov.b64 %rd2, " + std::to_string(place) + ";");
  const std::uint64_t out = device.room<float>(32);
  EXPECT_EQ(findings_of(run(device, ptx, map, out)), "");
  EXPECT_EQ(device.download<float>(out, 32), values);
}

// Faults, one at a time.

struct Fault {
  const char* name;
  std::function<void(TensorMap&)> change;
  std::function<void(std::string&)> edit;
  FindingKind kind;
  const char* says;
};

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

void PrintTo(const Fault& fault, std::ostream* stream) { *stream << fault.name; }

class BulkTensorFault : public ::testing::TestWithParam<Fault> {};

TEST_P(BulkTensorFault, IsReported) {
  TestDevice device;
  TensorMap map = matrix(device, TensorMap::Element::f32, 8, 4, std::vector<float>(32, 2));
  GetParam().change(map);
  std::string ptx = load_kernel(2, 128);
  replace(ptx, "  @%p1 prefetch.tensormap [%rd2];\n", "");
  const std::size_t prefetch = ptx.find("  @%p1 cp.async.bulk.prefetch");
  ptx.erase(prefetch, ptx.find('\n', prefetch) + 1 - prefetch);
  GetParam().edit(ptx);
  const std::uint64_t out = device.room<float>(1024);
  const LaunchResult result = run(device, ptx, map, out);
  const std::string message = message_of(result, GetParam().kind);
  ASSERT_TRUE(has_finding(result, GetParam().kind)) << findings_of(result);
  EXPECT_NE(message.find(GetParam().says), std::string::npos) << message;
}

const auto nothing = [](auto&) {};

INSTANTIATE_TEST_SUITE_P(
    Each, BulkTensorFault,
    ::testing::Values(
        Fault{"Rank", [](TensorMap& m) { m.rank = 3; }, nothing, FindingKind::bad_descriptor, "of rank 3"},
        Fault{"NarrowRowsUnderASwizzle", [](TensorMap& m) { m.swizzle = TensorMap::Swizzle::bytes128; },
              nothing, FindingKind::bad_descriptor, "make boxDim[0] = 32"},
        Fault{"BeyondTheAllocation", [](TensorMap& m) { m.dimensions[1] = 500, m.box[1] = 100; }, nothing,
              FindingKind::out_of_bounds, ""},
        Fault{"BoxTooLarge",
              [](TensorMap& m) {
                m.box = {256, 256, 1, 1, 1};
              },
              nothing, FindingKind::out_of_bounds, "does not fit"},
        Fault{"NoMap", nothing, [](std::string& p) { replace(p, "mov.b64 %rd1, map", "mov.b64 %rd1, at"); },
              FindingKind::misaligned, ""},
        Fault{"OtherBytes", nothing,
              [](std::string& p) { replace(p, "cvta.param.u64 %rd2, %rd1", "mov.b64 %rd2, %rd61"); },
              FindingKind::bad_descriptor, "cuTensorMapEncodeTiled"},
        Fault{"Destination", nothing, [](std::string& p) { replace(p, "bytes [%r1],", "bytes [%r1+64],"); },
              FindingKind::misaligned, "multiple of 128"},
        Fault{"DestinationBounds", nothing,
              [](std::string& p) { replace(p, "bytes [%r1],", "bytes [%r1+65536],"); },
              FindingKind::out_of_bounds, ""},
        Fault{"TooManyBytesExpected", nothing,
              [](std::string& p) { replace(p, "_, [%r2], 128", "_, [%r2], 256"); },
              FindingKind::wrong_transaction_count, "lacks 128 of the bytes"},
        Fault{"TooFewBytesExpected", nothing,
              [](std::string& p) { replace(p, "_, [%r2], 128", "_, [%r2], 64"); },
              FindingKind::wrong_transaction_count, "got 64 bytes more"},
        Fault{"NoWait", nothing, [](std::string& p) { replace(p, "@!%p31 bra WAIT;", ""); },
              FindingKind::access_in_flight, ""}),
    [](const auto& info) { return info.param.name; });

TEST(BulkTensor, UnknownModesAreErrorsThatSayWhy) {
  const auto error = [](const std::string& body) -> std::string {
    try {
      Module(kernel_with_map(body), {9, 0, 'a'});
    } catch (const PtxError& failure) {
      return failure.what();
    }
    return {};
  };
  const std::pair<const char*, const char*> cases[] = {
      {"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd2, "
       "{%r50, %r51, "
       "%r52}], [%r2], {%r3};",
       "im2col"},
      {"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%rd2, "
       "{%r50, %r51, "
       "%r52, %r53, %r54}], [%r2];",
       "tile::gather4"},
      {"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%r1], "
       "[%rd2, "
       "{%r50, %r51}], [%r2];",
       "cta_group::2"},
      {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2, {%r50}], "
       "[%r2];",
       "takes 2 coordinates, not 1"},
      {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2], [%r2];",
       "[map, {coordinates}]"},
      {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [map, {%r50, "
       "%r51}], [%r2];",
       "cvta.param"},
  };
  for (const auto& [body, says] : cases) {
    EXPECT_NE(error(body).find(says), std::string::npos) << body << "\n" << error(body);
  }
}

}  // namespace
}  // namespace jit::emulator::testing
