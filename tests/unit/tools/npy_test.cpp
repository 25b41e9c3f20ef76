#include "tools/jit_attention/npy.h"

#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fresh_folder.h"
#include "tools/jit_attention/command.h"

namespace jit::tool {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

// A file as numpy lays it out, with any header and data.
std::string npy_text(const std::string& header, const std::string& data, char version = 1) {
  std::string text = "\x93NUMPY"s + version + '\0';
  const std::size_t length = header.size();
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(length >> 8 * i & 255);
  return text + header + data;
}

std::string header_of(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

class NpyTest : public ::testing::Test {
 protected:
  Array read(const std::string& text) {
    jit::testing::write_text(path(), text);
    return read_npy(path());
  }

  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const BadInput& error) {
      EXPECT_THAT(error.what(), HasSubstr(path()));
      return error.what();
    }
    ADD_FAILURE() << "was read";
    return "";
  }

  std::string path() const { return folder_ / "array.npy"; }

 private:
  jit::testing::FreshFolder folder_;
};

TEST_F(NpyTest, ReadsEveryVersionAndElementType) {
  for (const char version : {1, 2, 3}) {
    const Array floats =
        read(npy_text(header_of("<f4", "(2, 1)"), std::string("\0\0\x80\x3f\0\0\0\xc0", 8), version));
    EXPECT_EQ(floats.dtype, DType::fp32);
    EXPECT_EQ(floats.shape, (std::vector<std::int64_t>{2, 1}));
    EXPECT_EQ(floats.as<float>()[0], 1.0f);
    EXPECT_EQ(floats.as<float>()[1], -2.0f);
  }
  EXPECT_EQ(read(npy_text(header_of("<f2", "(1,)"), "\x00\x3c"s)).dtype, DType::fp16);
  EXPECT_EQ(read(npy_text(header_of("<i4", "(1,)"), "\xff\xff\xff\xff"s)).as<std::int32_t>()[0], -1);
  EXPECT_EQ(read(npy_text(header_of("<i8", "()"), "\x02\0\0\0\0\0\0\0"s)).as<std::int64_t>()[0], 2);
  EXPECT_EQ(read(npy_text(header_of("|u1", "(3,)"), "abc"s)).as<std::uint8_t>()[2], 'c');
  const Array truths = read(npy_text(header_of("|b1", "(2,)"), "\0\1"s));
  EXPECT_EQ(truths.dtype, DType::uint8);
  EXPECT_EQ(truths.as<std::uint8_t>()[1], 1);
  EXPECT_TRUE(read(npy_text(header_of("<f4", "(4, 0, 2)"), "")).bytes.empty());
}

TEST_F(NpyTest, ReadsKeysInAnyOrderAndEitherQuotes) {
  const Array array = read(npy_text("{\"shape\":(2,),'fortran_order':False,\"descr\":'|u1'}    \n", "ab"));
  EXPECT_EQ(array.shape, std::vector<std::int64_t>{2});
}

TEST_F(NpyTest, BringsColumnMajorArraysIntoRowMajorOrder) {
  // The array [[0, 1, 2], [3, 4, 5]] by columns.
  const Array array = read(npy_text(header_of("|u1", "(2, 3)", "True"), "\0\3\1\4\2\5"s));
  for (std::uint8_t i = 0; i < 6; ++i) EXPECT_EQ(array.as<std::uint8_t>()[i], i);
  const Array deep = read(npy_text(header_of("|u1", "(2, 2, 2)", "True"), "\0\4\2\6\1\5\3\7"s));
  for (std::uint8_t i = 0; i < 8; ++i) EXPECT_EQ(deep.as<std::uint8_t>()[i], i);
}

TEST_F(NpyTest, WritesWhatItReads) {
  Array array = zeros(DType::fp32, {2, 3, 1, 4});
  for (int i = 0; i < 24; ++i) array.as<float>()[i] = 0.5f * static_cast<float>(i);
  write_npy(OutputFile(path()), array);
  const Array again = read_npy(path());
  EXPECT_EQ(again.dtype, array.dtype);
  EXPECT_EQ(again.shape, array.shape);
  EXPECT_EQ(again.bytes, array.bytes);
  // The format asks writers for data aligned to 64 bytes and a header that ends with a line break.
  const std::string text = jit::testing::read_text(path());
  const std::size_t data = text.size() - array.bytes.size();
  EXPECT_EQ(data % 64, 0u);
  EXPECT_EQ(text[data - 1], '\n');
  EXPECT_THAT(text, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 1, 4), }"));
  write_npy(OutputFile(path()), zeros(DType::int32, {5}));
  EXPECT_THAT(jit::testing::read_text(path()), HasSubstr("'shape': (5,), }"));
}

TEST_F(NpyTest, AnyElementsAreBytesOfTheirSize) {
  for (const auto& [descr, bytes] :
       {std::pair{"<f8", 8u}, {"<V2", 2u}, {"|V2", 2u}, {"|i1", 1u}, {"<c16", 16u}}) {
    EXPECT_EQ(element_bytes(descr), bytes) << descr;
    jit::testing::write_text(path(), npy_text(header_of(descr, "(3,)"), std::string(3 * bytes, 'x')));
    const NpyArray array = read_any_npy(path());
    EXPECT_EQ(array.descr, descr);
    write_npy(OutputFile(path()), array);
    EXPECT_EQ(read_any_npy(path()).bytes, array.bytes);
  }
  for (const char* descr : {">f4", "|O", "<U4", "<f", "", "<M8[ns]", "<f99999999999999999999"}) {
    EXPECT_EQ(element_bytes(descr), 0u) << descr;
    jit::testing::write_text(path(), npy_text(header_of(descr, "(3,)"), "abc"));
    EXPECT_THROW(read_any_npy(path()), BadInput) << descr;
  }
}

TEST_F(NpyTest, RefusesWhatIsNoArray) {
  EXPECT_THROW(read_npy("/nonexistent.npy"), BadInput);
  EXPECT_THROW(read_any_npy("/nonexistent.npy"), BadInput);
  EXPECT_THROW(read_npy("/"), BadInput);
  EXPECT_THROW(read_npy("/dev/zero"), BadInput);
  EXPECT_THAT(refusal(""), HasSubstr("not in .npy format"));
  EXPECT_THAT(refusal("PK\3\4 zip file"), HasSubstr("not in .npy format"));
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(1,)"), "abcd", 4)), HasSubstr("version 4"));
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(1,)"), "abcd", 0)), HasSubstr("version 0"));
}

TEST_F(NpyTest, RefusesOtherElementTypes) {
  for (const char* descr : {">f4", "<f8", "<c8", "<i2", "|O", "<U5", ""}) {
    EXPECT_THAT(refusal(npy_text(header_of(descr, "(1,)"), "abcd")), HasSubstr("elements are"));
  }
  EXPECT_THAT(refusal(npy_text("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd")),
              HasSubstr("header"));
}

TEST_F(NpyTest, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(2,)"), "abcd")), HasSubstr("needs 8 bytes"));
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(1,)"), "abcde")), HasSubstr("needs 4 bytes"));
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(4611686018427387904,)"), "")), HasSubstr("too large"));
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(4294967296, 4294967296)"), "")), HasSubstr("too large"));
  EXPECT_THAT(refusal(npy_text(header_of("|u1", "(9223372036854775807,)"), "abc")), HasSubstr("needs"));
  EXPECT_THAT(refusal(npy_text(header_of("<f4", "(99999999999999999999,)"), "")), HasSubstr("header"));
}

TEST_F(NpyTest, RefusesBrokenHeaders) {
  for (const char* header :
       {"", "{", "{}", "()", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2), }",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } and more",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }"}) {
    EXPECT_THAT(refusal(npy_text(header, "abcd")), HasSubstr("header")) << header;
  }
  EXPECT_THAT(refusal(npy_text(std::string(1 << 17, ' '), "", 2)), HasSubstr("too long"));
  EXPECT_THAT(refusal("\x93NUMPY\2\0\xff\xff\xff\xff{"s), HasSubstr("within its header"));
}

// A read of any part of a good file gives an array or a BadInput, never anything else.
TEST_F(NpyTest, SurvivesEveryTruncationAndFlippedByte) {
  const std::string good = npy_text(header_of("<f4", "(2, 3)"), std::string(24, 'x'));
  const auto reads = [&](const std::string& text) {
    try {
      read(text);
      return true;
    } catch (const BadInput&) {
      return false;
    }
  };
  ASSERT_TRUE(reads(good));
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(reads(good.substr(0, size))) << size;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string damaged = good;
      damaged[i] ^= flip;
      reads(damaged);
    }
  }
}

}  // namespace
}  // namespace jit::tool
