#include "npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/dtype.h>

#include "command.h"

namespace jit::tool {
namespace {

static_assert(std::endian::native == std::endian::little, ".npy elements are copied as they are");

constexpr std::string_view magic("\x93NUMPY", 6);
constexpr std::string_view truths = "|b1";
constexpr std::size_t max_header_bytes = 1 << 16;
constexpr std::size_t max_dimensions = 8;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Reads the header, a Python dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
// Functions return nothing for other text.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  std::optional<Header> read() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
    if (!accept("{")) return std::nullopt;
    while (!accept("}")) {
      const std::optional<std::string> key = string();
      if (!key || !accept(":")) return std::nullopt;
      if (key == "descr" && !descr) {
        if (!(descr = string())) return std::nullopt;
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = accept("True");
        if (!*fortran_order && !accept("False")) return std::nullopt;
      } else if (key == "shape" && !shape) {
        if (!(shape = tuple())) return std::nullopt;
      } else {
        return std::nullopt;
      }
      if (!accept(",")) {
        if (!accept("}")) return std::nullopt;
        break;
      }
    }
    skip_space();
    if (!rest_.empty() || !descr || !fortran_order || !shape) return std::nullopt;
    return Header{*descr, *fortran_order, *shape};
  }

 private:
  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
  }

  bool accept(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<std::string> string() {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::vector<std::int64_t>> tuple() {
    std::vector<std::int64_t> sizes;
    if (!accept("(")) return std::nullopt;
    while (!accept(")")) {
      skip_space();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc{} || size < 0 || sizes.size() == max_dimensions) return std::nullopt;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      sizes.push_back(size);
      if (!accept(",")) {
        if (!accept(")")) return std::nullopt;
        break;
      }
    }
    return sizes;
  }

  std::string_view rest_;
};

// Converts column-major to row-major elements.
std::vector<std::byte> transpose(const std::vector<std::byte>& from, const std::vector<std::int64_t>& shape,
                                 std::size_t element_bytes) {
  std::vector<std::byte> to(from.size());
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t at = 0; at < to.size(); at += element_bytes) {
    std::int64_t source = 0;
    for (std::size_t i = shape.size(); i-- > 0;) source = source * shape[i] + index[i];
    std::memcpy(to.data() + at, from.data() + static_cast<std::size_t>(source) * element_bytes,
                element_bytes);
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
  return to;
}

// `bytes_of` returns an element's size from the header's descr, or throws.
NpyArray read_file(const std::string& path,
                   const std::function<std::size_t(const std::string& descr)>& bytes_of) {
  const auto refuse = [&path](const std::string& why) {
    throw BadInput(fmt::format("{} cannot be read: {}", path, why));
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) refuse("there is no such file");
  if (!std::filesystem::is_regular_file(status)) refuse("it is not a file");
  const std::uintmax_t file_bytes = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) refuse("opening it failed");

  char start[8] = {};
  file.read(start, sizeof start);
  if (!file || std::string_view(start, magic.size()) != magic) refuse("it is not in .npy format");
  const int version = static_cast<unsigned char>(start[6]);
  if (version < 1 || version > 3) refuse(fmt::format("its format version {} is unknown", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  unsigned char length[4] = {};
  file.read(reinterpret_cast<char*>(length), static_cast<std::streamsize>(length_bytes));
  const std::size_t header_bytes = length[0] | length[1] << 8 | static_cast<std::size_t>(length[2]) << 16 |
                                   static_cast<std::size_t>(length[3]) << 24;
  const std::uintmax_t data_begin = sizeof start + length_bytes + header_bytes;
  if (!file || data_begin > file_bytes) refuse("it ends within its header");
  if (header_bytes > max_header_bytes)
    refuse(fmt::format("its header of {} bytes is too long", header_bytes));
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  const std::optional<Header> header = HeaderReader(text).read();
  if (!file || !header) {
    refuse(
        "its header does not give one element type, fortran_order and a shape of at most eight dimensions");
  }

  const std::size_t of_element = bytes_of(header->descr);
  // Checked before allocation: the header may claim any size.
  std::uintmax_t bytes = of_element;
  for (const std::int64_t size : header->shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uintmax_t>(size), &bytes)) {
      refuse(fmt::format("its shape ({}) is too large", fmt::join(header->shape, ", ")));
    }
  }
  if (file_bytes - data_begin != bytes) {
    refuse(fmt::format("its shape ({}) needs {} bytes of data and the file has {}",
                       fmt::join(header->shape, ", "), bytes, file_bytes - data_begin));
  }
  NpyArray array{header->descr, header->shape, std::vector<std::byte>(bytes)};
  file.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(bytes));
  if (!file) refuse("reading its data failed");
  if (header->fortran_order) array.bytes = transpose(array.bytes, array.shape, of_element);
  return array;
}

// The facts of an element type that attention reads; null for others.
const DTypeFacts* find_type(const std::string& descr) {
  const std::string_view stored = descr == truths ? facts(DType::uint8).npy_descr : descr;
  for (const DTypeFacts& row : dtype_table())
    if (!row.npy_descr.empty() && row.npy_descr == stored) return &row;
  return nullptr;
}

void write_file(const OutputFile& file, std::string_view descr, const std::vector<std::int64_t>& sizes,
                std::span<const std::byte> bytes) {
  std::string shape = fmt::format("{}", fmt::join(sizes, ", "));
  if (sizes.size() == 1) shape += ",";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  constexpr std::size_t alignment = 64, preamble = 10;
  header.resize((preamble + header.size() + alignment) / alignment * alignment - preamble, ' ');
  header.back() = '\n';
  std::string start(magic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};

  start += header;
  file.write({std::as_bytes(std::span(start)), bytes});
}

}  // namespace

std::size_t element_bytes(std::string_view descr) {
  if (descr.size() < 3 || (descr[0] != '<' && descr[0] != '|')) return 0;
  if (std::string_view("biufcV").find(descr[1]) == std::string_view::npos) return 0;
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), bytes);
  return error == std::errc{} && end == descr.data() + descr.size() && bytes <= 1024 ? bytes : 0;
}

NpyArray read_any_npy(const std::string& path) {
  return read_file(path, [&](const std::string& descr) {
    const std::size_t bytes = element_bytes(descr);
    if (bytes == 0) {
      throw BadInput(fmt::format(
          "{} cannot be read: its elements are '{}'; read are numbers and raw bytes, little-endian", path,
          descr));
    }
    return bytes;
  });
}

Array read_npy(const std::string& path) {
  NpyArray read = read_file(path, [&](const std::string& descr) {
    if (const DTypeFacts* const type = find_type(descr)) return static_cast<std::size_t>(type->bytes);
    std::string known(truths);
    for (const DTypeFacts& row : dtype_table())
      if (!row.npy_descr.empty()) known += ", " + std::string(row.npy_descr);
    throw BadInput(fmt::format("{} cannot be read: its elements are '{}'; read are {}", path, descr, known));
  });
  return {find_type(read.descr)->dtype, std::move(read.shape), std::move(read.bytes)};
}

void write_npy(const OutputFile& file, const Array& array) {
  write_file(file, facts(array.dtype).npy_descr, array.shape, array.bytes);
}

void write_npy(const OutputFile& file, const NpyArray& array) {
  write_file(file, array.descr, array.shape, array.bytes);
}

}  // namespace jit::tool
