#include "machine/types.h"

#include <algorithm>
#include <array>

namespace jit::emulator {
namespace {

enum class Kind { bits, unsigned_integer, signed_integer, floating };

struct Row {
  Type type;
  std::string_view name;
  int bits;
  Kind kind;
};

// In the order of the enumeration.
constexpr std::array rows = {
    Row{Type::pred, "pred", 1, Kind::bits},
    Row{Type::b8, "b8", 8, Kind::bits},
    Row{Type::b16, "b16", 16, Kind::bits},
    Row{Type::b32, "b32", 32, Kind::bits},
    Row{Type::b64, "b64", 64, Kind::bits},
    Row{Type::b128, "b128", 128, Kind::bits},
    Row{Type::u8, "u8", 8, Kind::unsigned_integer},
    Row{Type::u16, "u16", 16, Kind::unsigned_integer},
    Row{Type::u32, "u32", 32, Kind::unsigned_integer},
    Row{Type::u64, "u64", 64, Kind::unsigned_integer},
    Row{Type::s8, "s8", 8, Kind::signed_integer},
    Row{Type::s16, "s16", 16, Kind::signed_integer},
    Row{Type::s32, "s32", 32, Kind::signed_integer},
    Row{Type::s64, "s64", 64, Kind::signed_integer},
    Row{Type::f16, "f16", 16, Kind::floating},
    Row{Type::f16x2, "f16x2", 32, Kind::floating},
    Row{Type::bf16, "bf16", 16, Kind::floating},
    Row{Type::bf16x2, "bf16x2", 32, Kind::floating},
    Row{Type::tf32, "tf32", 32, Kind::floating},
    Row{Type::f32, "f32", 32, Kind::floating},
    Row{Type::f32x2, "f32x2", 64, Kind::floating},
    Row{Type::f64, "f64", 64, Kind::floating},
    Row{Type::e4m3, "e4m3", 8, Kind::floating},
    Row{Type::e5m2, "e5m2", 8, Kind::floating},
    Row{Type::e4m3x2, "e4m3x2", 16, Kind::floating},
    Row{Type::e5m2x2, "e5m2x2", 16, Kind::floating},
    Row{Type::e2m3, "e2m3", 6, Kind::floating},
    Row{Type::e3m2, "e3m2", 6, Kind::floating},
    Row{Type::e2m1, "e2m1", 4, Kind::floating},
};

constexpr const Row& row(Type type) { return rows[static_cast<std::size_t>(type)]; }

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::size_t>(rows[i].type) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

}  // namespace

std::optional<Type> parse_type(std::string_view text) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == text; });
  if (found == rows.end() || found->type >= Type::e2m3) return {};
  return found->type;
}

std::string_view to_string(Type type) { return row(type).name; }
int bits(Type type) { return row(type).bits; }
bool is_signed(Type type) { return row(type).kind == Kind::signed_integer; }
bool is_float(Type type) { return row(type).kind == Kind::floating; }

}  // namespace jit::emulator
