#include "ptx/initializer.h"

#include <bit>
#include <limits>

#include <fmt/format.h>

#include "ptx/constants.h"

namespace jit::emulator::ptx {
namespace {

constexpr std::uint64_t address_bytes = 8;

struct SymbolAddress {
  std::string symbol;
  std::int64_t addend = 0;
  bool generic = false;

  bool operator==(const SymbolAddress&) const = default;
};

class InitializerParser {
 public:
  InitializerParser(Tokens& tokens, Variable& variable, std::uint64_t element_bytes,
                    std::vector<std::uint64_t>& lengths, std::uint64_t most_bytes)
      : tokens_(tokens),
        variable_(variable),
        element_bytes_(element_bytes),
        lengths_(lengths),
        most_bytes_(most_bytes) {
    strides_.assign(lengths.size(), element_bytes);
    for (std::size_t i = lengths.size(); i-- > 1;) strides_[i - 1] = strides_[i] * lengths[i];
  }

  void parse() {
    if (element_bytes_ > address_bytes || (variable_.type.find("f16") != std::string::npos)) {
      throw PtxError(variable_.line,
                     fmt::format("a variable of type .{} can have no initial value; declare it "
                                 "as an array of .b8 or .b16",
                                 variable_.type));
    }
    level(0, 0);
    finish_bytes_of_address();
  }

 private:
  // As deep as the array has dimensions.
  void level(std::size_t dimension, std::uint64_t offset) {
    if (dimension == lengths_.size()) {
      element(offset);
      return;
    }
    if (!tokens_.accept("{")) {
      tokens_.fail_expected(fmt::format("'{{' before the elements of {}", variable_.name));
    }
    std::uint64_t count = 0;
    const bool counts = dimension == 0 && lengths_[0] == 0;
    do {
      if (!counts && count == lengths_[dimension]) {
        throw PtxError(tokens_.line(), fmt::format("more than the {} elements that {} has in dimension {}",
                                                   count, variable_.name, dimension + 1));
      }
      level(dimension + 1, offset + count * strides_[dimension]);
      ++count;
    } while (tokens_.accept(","));
    tokens_.expect("}", fmt::format("or ',' after an element of {}", variable_.name));
    if (counts) lengths_[0] = count;
  }

  void element(std::uint64_t offset) {
    const Token first = tokens_.peek();
    if (begins_constant(first)) {
      const Constant value = parse_constant(tokens_);
      if (tokens_.accept("(")) {
        byte_of_address(offset, value);
        return;
      }
      finish_bytes_of_address();
      write(offset, value_bits(value), element_bytes_);
      return;
    }
    if (first.kind != Token::Kind::word) tokens_.fail_expected("a number or the address of a variable");
    finish_bytes_of_address();
    if (element_bytes_ != address_bytes || is_floating()) {
      throw PtxError(
          first.line,
          fmt::format("an address as a value of type .{}; .u64, .s64 and .b64 can hold one", variable_.type));
    }
    add_relocation(offset, symbol_address());
  }

  // name, generic(name), either with + number.
  SymbolAddress symbol_address() {
    SymbolAddress address;
    address.symbol = tokens_.expect_word("the name of a variable");
    if (address.symbol == "generic" && tokens_.accept("(")) {
      address.generic = true;
      address.symbol = tokens_.expect_word("the name of a variable");
      tokens_.expect(")", "after the name of a variable");
    }
    if (tokens_.accept("+")) {
      const Constant addend = parse_constant(tokens_);
      if (addend.is_real) throw PtxError(addend.line, "an offset must be a whole number");
      address.addend = static_cast<std::int64_t>(addend.bits);
    }
    return address;
  }

  // 0xFF00(address) is the second byte of the address. An address in packed bytes has all eight, lowest
  // first.
  void byte_of_address(std::uint64_t offset, const Constant& mask) {
    const int line = tokens_.line();
    const SymbolAddress address = symbol_address();
    tokens_.expect(")", "after the address under a mask");
    const bool fits = !mask.is_real && element_bytes_ == 1 && bytes_of_address_ < address_bytes &&
                      mask.bits == std::uint64_t{0xff} << (8 * bytes_of_address_) &&
                      (bytes_of_address_ == 0 || address == address_in_bytes_);
    if (!fits) {
      throw PtxError(line,
                     fmt::format("a mask before an address: expected byte {} of {}; the emulator knows only "
                                 "all eight bytes of an address, lowest first",
                                 bytes_of_address_ + 1,
                                 bytes_of_address_ == 0 ? address.symbol : address_in_bytes_.symbol));
    }
    if (bytes_of_address_ == 0) {
      add_relocation(offset, address);
      address_in_bytes_ = address;
    }
    bytes_of_address_ = (bytes_of_address_ + 1) % address_bytes;
  }

  void finish_bytes_of_address() {
    if (bytes_of_address_ == 0) return;
    throw PtxError(tokens_.line(), fmt::format("only {} of the eight bytes of the address of {}",
                                               bytes_of_address_, address_in_bytes_.symbol));
  }

  bool is_floating() const { return variable_.type == "f32" || variable_.type == "f64"; }

  std::uint64_t value_bits(const Constant& value) const {
    if (!value.is_real) {
      if (is_floating()) {
        throw PtxError(value.line,
                       fmt::format("a whole number as a value of type .{}; write it with a decimal "
                                   "point, or as 0f… or 0d…",
                                   variable_.type));
      }
      return value.bits;
    }
    const double number =
        value.is_single ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value.bits)))
                        : std::bit_cast<double>(value.bits);
    if (variable_.type == "f64" || variable_.type == "b64") return std::bit_cast<std::uint64_t>(number);
    if (variable_.type == "f32" || variable_.type == "b32") {
      if (value.is_single) return value.bits;
      // The conversion is undefined out of range.
      const double largest = std::numeric_limits<float>::max();
      if (number > largest || number < -largest) {
        throw PtxError(value.line, fmt::format("{} is beyond the range of .{}", number, variable_.type));
      }
      return std::bit_cast<std::uint32_t>(static_cast<float>(number));
    }
    throw PtxError(value.line, fmt::format("a real number as a value of type .{}", variable_.type));
  }

  void add_relocation(std::uint64_t offset, const SymbolAddress& address) {
    write(offset, 0, address_bytes);
    variable_.relocations.push_back({offset, address.symbol, address.addend, address.generic});
  }

  void write(std::uint64_t offset, std::uint64_t bits, std::uint64_t bytes) {
    if (offset + bytes > most_bytes_) {
      throw PtxError(tokens_.line(), fmt::format("the initial values of {} take more bytes than the emulator "
                                                 "keeps for a module",
                                                 variable_.name));
    }
    if (variable_.initial.size() < offset + bytes) variable_.initial.resize(offset + bytes);
    for (std::uint64_t i = 0; i < bytes && i < sizeof bits; ++i) {
      variable_.initial[offset + i] = static_cast<std::uint8_t>(bits >> (8 * i));
    }
  }

  Tokens& tokens_;
  Variable& variable_;
  const std::uint64_t element_bytes_;
  std::vector<std::uint64_t>& lengths_;
  const std::uint64_t most_bytes_;
  std::vector<std::uint64_t> strides_;
  std::uint64_t bytes_of_address_ = 0;  // taken so far by masks
  SymbolAddress address_in_bytes_;
};

}  // namespace

void parse_initializer(Tokens& tokens, Variable& variable, std::uint64_t element_bytes,
                       std::vector<std::uint64_t>& lengths, std::uint64_t most_bytes) {
  InitializerParser(tokens, variable, element_bytes, lengths, most_bytes).parse();
}

}  // namespace jit::emulator::ptx
