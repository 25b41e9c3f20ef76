#include "generator/program/inflate.h"

#include <initializer_list>
#include <random>

#include <gtest/gtest.h>

#include "generator/program/embedded_text.h"

namespace jit {
namespace {

std::string string_of(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text.push_back(static_cast<char>(byte));
  return text;
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Streams of zlib: a stored block, one of fixed codes and matches that repeat themselves, and one of its own codes. The
// embedded templates are many blocks of own codes and matches.
const std::string stored_stream = string_of({1, 6, 0, 249, 255, 's', 't', 'o', 'r', 'e', 'd'});
const std::string fixed_stream = string_of({75, 76, 74, 78, 132, 33, 0});
const std::string own_codes_stream =
    string_of({5,   193, 1,   1,   0,   0,   0,   128, 144, 173, 250, 63,  34,  136, 136, 136, 136,
               136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 6});

TEST(Inflate, ReadsStreamsOfZlib) {
  EXPECT_EQ(inflate(stored_stream, 6), "stored");
  EXPECT_EQ(inflate(fixed_stream, 12), repeated("abc", 4));
  EXPECT_EQ(inflate(own_codes_stream, 120), repeated("aab", 40));
}

TEST(Inflate, RefusesAnotherSize) {
  for (const auto& [stream, size] :
       {std::pair(stored_stream, 6u), std::pair(fixed_stream, 12u), std::pair(own_codes_stream, 120u)}) {
    EXPECT_FALSE(inflate(stream, size - 1)) << size;
    EXPECT_FALSE(inflate(stream, size + 1)) << size;
    for (std::size_t part = 0; part < stream.size(); ++part)
      EXPECT_FALSE(inflate(stream.substr(0, part), size)) << part;
  }
}

TEST(Inflate, DamagedStreamsAreRefusedOrGiveOtherBytes) {
  EXPECT_FALSE(inflate(string_of({7}), 1)) << "no kind of block";
  EXPECT_FALSE(inflate(string_of({1, 6, 0, 248, 255, 's', 't', 'o', 'r', 'e', 'd'}), 6))
      << "a count and its check";
  EXPECT_FALSE(inflate(string_of({75, 132, 33, 0}), 12)) << "a match from before the beginning";
  std::mt19937 random(5);
  const std::string embedded(embedded_text().stream.substr(0, 20'000));
  for (const std::string& stream : {stored_stream, fixed_stream, own_codes_stream, embedded}) {
    for (int i = 0; i < 1000; ++i) {
      std::string damaged = stream;
      for (int k = 0; k <= i % 3; ++k)
        damaged[random() % std::min<std::size_t>(damaged.size(), 200)] = static_cast<char>(random());
      (void)inflate(damaged, 120);
      (void)inflate(damaged, 60'000);
    }
  }
}

}  // namespace
}  // namespace jit
