#include "kernel_arguments.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/float16.h>

#include "command.h"
#include "input_file.h"

namespace jit::tool {
namespace {

using Element = emulator::TensorMap::Element;

enum class Number { whole, natural, real, bf16, fp16 };

/// Element type of values and arrays.
struct ElementType {
  std::string_view name;
  std::string_view descr;  ///< in .npy files
  std::size_t bytes;
  Number number;
  Element element;  ///< of a tensor map
};

constexpr ElementType element_types[] = {
    {"i8", "|i1", 1, Number::whole, Element::u8},    {"u8", "|u1", 1, Number::natural, Element::u8},
    {"i16", "<i2", 2, Number::whole, Element::u16},  {"u16", "<u2", 2, Number::natural, Element::u16},
    {"i32", "<i4", 4, Number::whole, Element::s32},  {"u32", "<u4", 4, Number::natural, Element::u32},
    {"i64", "<i8", 8, Number::whole, Element::s64},  {"u64", "<u8", 8, Number::natural, Element::u64},
    {"bf16", "<V2", 2, Number::bf16, Element::bf16}, {"f16", "<f2", 2, Number::fp16, Element::f16},
    {"f32", "<f4", 4, Number::real, Element::f32},   {"f64", "<f8", 8, Number::real, Element::f64},
};

constexpr std::uint64_t largest_output = std::uint64_t{1} << 34;

constexpr std::string_view forms =
    "TYPE:NUMBER with a TYPE such as i32 or f32, null, bytes:HEX, bytes:@FILE, in:FILE.npy, inout:FILE.npy "
    "or "
    "out:FILE.npy:TYPE:SIZES, or several of them with ';' between, a struct";

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw BadInput(fmt::format("--arg {}: {}", text, why));
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

template <class T>
std::vector<std::byte> bytes_of_value(const T& value, std::size_t count = sizeof(T)) {
  std::vector<std::byte> bytes(count);
  std::memcpy(bytes.data(), &value, count);
  return bytes;
}

const ElementType* find_type(std::string_view name) {
  const auto* const found = std::find_if(std::begin(element_types), std::end(element_types),
                                         [&](const ElementType& type) { return type.name == name; });
  return found == std::end(element_types) ? nullptr : found;
}

// The bytes of a number, if it fits: all bits above the type's are copies of its sign.
std::optional<std::vector<std::byte>> number_bytes(const ElementType& type, const std::string& text) {
  const unsigned bits = 8 * static_cast<unsigned>(type.bytes);
  if (type.number == Number::whole) {
    const auto value = parse<std::int64_t>(text);
    if (!value || (bits < 64 && (*value >> (bits - 1)) != 0 && (*value >> (bits - 1)) != -1)) return {};
    return bytes_of_value(*value, type.bytes);
  }
  if (type.number == Number::natural) {
    const auto value = parse<std::uint64_t>(text);
    if (!value || (bits < 64 && (*value >> bits) != 0)) return {};
    return bytes_of_value(*value, type.bytes);
  }
  const auto value = parse<double>(text);
  if (!value) return {};
  const auto single = static_cast<float>(*value);
  if (type.number == Number::bf16) return bytes_of_value(float_to_bits(DType::bf16, single));
  if (type.number == Number::fp16) return bytes_of_value(float_to_bits(DType::fp16, single));
  return type.bytes == 4 ? bytes_of_value(single) : bytes_of_value(*value);
}

std::vector<std::byte> raw_bytes(const std::string& text, const std::string& what) {
  std::vector<std::byte> bytes;
  if (what.starts_with('@')) {
    constexpr std::size_t most = 1 << 20;  // more than any kernel's parameters
    const std::string read = read_input(what.substr(1), most);
    std::transform(read.begin(), read.end(), std::back_inserter(bytes),
                   [](char c) { return static_cast<std::byte>(c); });
    return bytes;
  }
  for (std::size_t i = 0; i < what.size(); i += 2) {
    unsigned byte = 0;
    const char* const end = what.data() + std::min(i + 2, what.size());
    const auto [read, error] = std::from_chars(what.data() + i, end, byte, 16);
    if (error != std::errc{} || read != what.data() + i + 2)
      refuse(text, "bytes: is followed by pairs of hexadecimal digits, or by @ and a file");
    bytes.push_back(static_cast<std::byte>(byte));
  }
  return bytes;
}

std::vector<std::uint64_t> sizes_of(const std::string& text, const std::string& words) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& word : split(words, ',')) {
    const auto size = parse<std::uint64_t>(word);
    if (!size || *size == 0 || *size > (std::uint64_t{1} << 40) || sizes.size() == 8)
      refuse(text, fmt::format("'{}' is no list of sizes such as 128,64", words));
    sizes.push_back(*size);
  }
  return sizes;
}

// An array's dimensions are outermost first, a tensor map's innermost first.
emulator::TensorMap map_over(const std::string& text, const NpyArray& array,
                             const std::vector<std::uint64_t>& box, const std::string& swizzle) {
  if (box.size() != array.shape.size() || box.size() > 5) {
    refuse(text,
           fmt::format("box= has {} sizes and the array ({}) has {}; a tensor map has one for each, up to 5",
                       box.size(), fmt::join(array.shape, ", "), array.shape.size()));
  }
  // NumPy writes bfloat16 with either byte-order sign.
  const auto* const type = std::find_if(
      std::begin(element_types), std::end(element_types),
      [&](const ElementType& row) { return row.descr.substr(1) == std::string_view(array.descr).substr(1); });
  emulator::TensorMap map;
  map.element = type == std::end(element_types) ? Element::u8 : type->element;
  map.rank = static_cast<std::uint32_t>(box.size());
  std::uint64_t stride = element_bytes(array.descr);
  if (type == std::end(element_types) && stride != 1)
    refuse(text, fmt::format("a tensor map has no elements '{}'", array.descr));
  for (std::size_t d = 0; d < box.size(); ++d) {
    const std::size_t axis = box.size() - 1 - d;
    map.dimensions[d] = static_cast<std::uint64_t>(array.shape[axis]);
    map.box[d] = static_cast<std::uint32_t>(std::min<std::uint64_t>(box[axis], UINT32_MAX));
    stride *= map.dimensions[d];
    if (d + 1 < box.size()) map.strides[d] = stride;
  }
  using Swizzle = emulator::TensorMap::Swizzle;
  constexpr std::pair<std::string_view, Swizzle> swizzles[] = {
      {"0", Swizzle::none}, {"32", Swizzle::bytes32}, {"64", Swizzle::bytes64}, {"128", Swizzle::bytes128}};
  const auto* const found = std::find_if(std::begin(swizzles), std::end(swizzles),
                                         [&](const auto& row) { return row.first == swizzle; });
  if (found == std::end(swizzles))
    refuse(text, fmt::format("swizzle={}: it must be 0, 32, 64 or 128 bytes", swizzle));
  map.swizzle = found->second;
  return map;
}

}  // namespace

KernelArguments::KernelArguments(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) arguments_.emplace_back(text, read_argument(text));
}

KernelArguments::Argument KernelArguments::read_argument(const std::string& text) {
  Argument argument;
  for (const std::string& member : split(text, ';')) argument.push_back(read_member(trimmed(member)));
  return argument;
}

KernelArguments::Member KernelArguments::read_member(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (text == "null") return {Bytes(8), 8};
  if (word == "bytes") return {raw_bytes(text, rest), 1};
  if (word == "in" || word == "out" || word == "inout") return read_array(text, word, rest);
  const ElementType* const type = find_type(word);
  if (!type) refuse(text, fmt::format("it must be {}", forms));
  const auto bytes = number_bytes(*type, rest);
  if (!bytes) refuse(text, fmt::format("'{}' is no number that {} holds", rest, word));
  return {*bytes, type->bytes};
}

// FILE, of "out" followed by :TYPE:SIZES, then :box=… and :swizzle=…
KernelArguments::Member KernelArguments::read_array(const std::string& text, const std::string& direction,
                                                    const std::string& rest) {
  std::vector<std::string> fields = split(rest, ':');
  std::string box, swizzle = "0";
  bool has_swizzle = false;
  for (; fields.back().starts_with("box=") || fields.back().starts_with("swizzle="); fields.pop_back()) {
    const std::string value = fields.back().substr(fields.back().find('=') + 1);
    has_swizzle |= fields.back().starts_with("swizzle=");
    (fields.back().starts_with("box=") ? box : swizzle) = value;
    if (fields.size() == 1) refuse(text, "the file is missing");
  }
  if (has_swizzle && box.empty()) refuse(text, "swizzle= is of tensor maps, which have box=, too");
  ArrayFile file;
  file.is_read = direction != "out";
  file.is_written = direction != "in";
  if (direction == "out") {
    const ElementType* const type = fields.size() < 3 ? nullptr : find_type(fields[fields.size() - 2]);
    if (!type) refuse(text, "an output is out:FILE.npy:TYPE:SIZES, such as out:c.npy:f32:128,64");
    std::uint64_t bytes = type->bytes;
    for (const std::uint64_t size : sizes_of(text, fields.back())) {
      file.array.shape.push_back(static_cast<std::int64_t>(size));
      if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > largest_output)
        refuse(text, "the array is too large");
    }
    file.array.descr = type->descr;
    file.array.bytes.resize(bytes);
    fields.resize(fields.size() - 2);
  }
  file.path = fmt::format("{}", fmt::join(fields, ":"));
  if (file.path.empty()) refuse(text, "the file is missing");
  const std::size_t index = file_of(text, std::move(file));
  if (box.empty()) return {Pointer{index}, 8};
  return {Map{index, map_over(text, files_[index].array, sizes_of(text, box), swizzle)},
          emulator::tensor_map_alignment};
}

// A file that several arguments name is a single array.
std::size_t KernelArguments::file_of(const std::string& text, ArrayFile file) {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const ArrayFile& other = files_[i];
    if (other.path != file.path) continue;
    if (other.is_read != file.is_read || other.is_written != file.is_written ||
        (!file.is_read && other.array.shape != file.array.shape))
      refuse(text, "another --arg has the same file in another way");
    return i;
  }
  if (file.is_read) file.array = read_any_npy(file.path);
  files_.push_back(std::move(file));
  return files_.size() - 1;
}

std::size_t KernelArguments::capacity() const {
  constexpr std::size_t gap = 1024, variables = std::size_t{1} << 30;  // of the module, at most
  std::size_t bytes = variables;
  for (const ArrayFile& file : files_) bytes += file.array.bytes.size() + gap;
  return bytes;
}

KernelArguments::Bytes KernelArguments::bytes_of(const Member& member) const {
  if (const auto* bytes = std::get_if<Bytes>(&member.value)) return *bytes;
  if (const auto* pointer = std::get_if<Pointer>(&member.value))
    return bytes_of_value(files_[pointer->file].address);
  Map map = std::get<Map>(member.value);
  map.map.address = files_[map.file].address;
  if (const auto wrong = emulator::validate(map.map))
    throw BadInput(fmt::format("the tensor map over {}: {}", files_[map.file].path, *wrong));
  const auto encoded = emulator::encode(map.map);
  return {encoded.begin(), encoded.end()};
}

std::vector<std::byte> KernelArguments::place(const emulator::Function& kernel, emulator::Memory& memory) {
  for (ArrayFile& file : files_) {
    file.address = memory.allocate(file.array.bytes.size());
    if (file.is_read) memory.write(file.address, file.array.bytes.data(), file.array.bytes.size());
  }
  std::vector<Bytes> values;
  for (const auto& [text, members] : arguments_) {
    Bytes value;
    std::size_t alignment = 1;
    const auto pad = [&value](std::size_t to) { value.resize((value.size() + to - 1) / to * to); };
    for (const Member& member : members) {  // laid out as C++ does
      const Bytes bytes = bytes_of(member);
      alignment = std::max(alignment, member.alignment);
      pad(member.alignment);
      value.insert(value.end(), bytes.begin(), bytes.end());
    }
    pad(alignment);
    values.push_back(std::move(value));
  }
  try {
    return kernel.pack(std::vector<std::span<const std::byte>>(values.begin(), values.end()));
  } catch (const std::invalid_argument& error) {
    throw BadInput(error.what());
  }
}

void KernelArguments::fetch(const emulator::Memory& memory) {
  for (ArrayFile& file : files_)
    if (file.is_written) memory.read(file.array.bytes.data(), file.address, file.array.bytes.size());
}

}  // namespace jit::tool
