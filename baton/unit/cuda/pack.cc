// Rows of stored blocks into planes: one way for every type, and shorter ones for those that are common or lie alike.
#include "baton/unit/cuda/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/quant/codec.h"
#include "baton/unit/cuda/packings.h"
#include "baton/unit/cuda/strips.h"

namespace baton::cuda {
namespace {

using Bytes = unsigned char;

// A strip of a row that is being written.
struct Strip {
  Bytes* planes;
  int64_t groups;  // padding included
  Bytes *d, *m, *parts;

  Strip(const Matrix& matrix, Bytes* to, int32_t of_groups) : planes(to), groups(of_groups) {
    const ScalePlaces places = scale_places(matrix, of_groups);
    d = to + planes_bytes(matrix.bits, of_groups);
    m = d + places.minimums, parts = d + places.parts;
  }
  Bytes* twos(int bits) const { return planes + (bits >= 4 ? 16 * groups : 0); }
  Bytes* ones(int bits) const { return twos(bits) + ((bits & 2) != 0 ? 8 * groups : 0); }
};

// The 32 codes of a group.
template <int kBits>
void put_group(const uint8_t* codes, const Strip& to, int64_t group) {
  uint32_t q[8];
  std::memcpy(q, codes, sizeof(q));
  if constexpr (kBits == 8) {
    for (int i = 0; i < 4; ++i) store_as(to.planes + 16 * group + 4 * i, q[i] ^ 0x80808080u);
    for (int i = 0; i < 4; ++i) store_as(to.planes + 16 * (to.groups + group) + 4 * i, q[4 + i] ^ 0x80808080u);
    return;
  }
  constexpr int kTwosAt = kBits >= 4 ? 4 : 0;
  if constexpr (kBits >= 4 && kBits < 8) {
    Bytes* const fours = to.planes + 16 * group;
    for (int i = 0; i < 4; ++i) store_as(fours + 4 * i, (q[i] & 0x0f0f0f0fu) | (q[4 + i] & 0x0f0f0f0fu) << 4);
  }
  if constexpr (kBits < 8 && (kBits & 2) != 0) {
    uint32_t words[2] = {};
    for (int i = 0; i < 8; ++i) words[i & 1] |= (q[i] >> kTwosAt & 0x03030303u) << (i & 6);
    std::memcpy(to.twos(kBits) + 8 * group, words, sizeof(words));
  }
  if constexpr ((kBits & 1) != 0) {
    uint32_t word = 0;
    for (int i = 0; i < 8; ++i) word |= (q[i] >> (kBits - 1) & 0x01010101u) << i;
    store_as(to.ones(kBits) + 4 * group, word);
  }
}

Form scale_form_of(const Coding& coding) {
  switch (coding.scale) {
    case ScaleType::kF32:
      return Form::kF32;
    case ScaleType::kPower:
      return Form::kBF16;
    default:
      return Form::kF16;
  }
}

// Of E4M3 parts the scales are each part's own.
void put_e4m3_scales(const Coding& coding, const Codes& block, const Strip& to, int64_t b) {
  for (int part = 0; part < coding.parts; ++part) {
    const float factor = half_e4m3(block.s[part]);
    const int64_t at = coding.parts * b + part;
    if (coding.scale == ScaleType::kF32) {
      store_as(to.d + 4 * at, std::bit_cast<float>(block.d) * factor);
    } else {
      store_f16(reinterpret_cast<std::byte*>(to.d + 2 * at), factor);  // exact
    }
  }
}

// Without parts the minimum is added, on the card it is taken off.
void put_scales(const Coding& coding, const Codes& block, const Strip& to, int64_t b) {
  if (coding.e4m3) return put_e4m3_scales(coding, block, to, b);
  const bool turned = coding.parts == 0;
  if (coding.scale == ScaleType::kF32) {
    store_as(to.d + 4 * b, block.d);
    if (coding.minimums) store_as(to.m + 4 * b, turned ? block.m ^ 0x80000000u : block.m);
  } else {
    const uint32_t d = coding.scale == ScaleType::kPower ? std::bit_cast<uint32_t>(power_of(block.d)) >> 16 : block.d;
    store_as(to.d + 2 * b, static_cast<uint16_t>(d));
    if (coding.minimums) store_as(to.m + 2 * b, static_cast<uint16_t>(turned ? block.m ^ 0x8000u : block.m));
  }
  if (!coding.minimums) {
    if (coding.parts > 0) std::memcpy(to.parts + coding.parts * b, block.s, static_cast<size_t>(coding.parts));
    return;
  }
  Bytes* const pairs = to.parts + 2 * coding.parts * b;
  for (int part = 0; part < coding.parts; ++part) pairs[2 * part] = block.s[part], pairs[2 * part + 1] = block.n[part];
}

// The first `blocks` of a strip.
using StripWriter = void (*)(const Format& format, const std::byte* from, int64_t blocks, const Strip& to);

// Any type with codes.
template <int kBits>
void put_strip(const Format& format, const std::byte* from, int64_t blocks, const Strip& to) {
  Codes block;
  const int64_t of_block = format.block_elements / kGroup;
  for (int64_t b = 0; b < blocks; ++b, from += format.block_bytes) {
    format.unpack(from, block);
    for (int64_t g = 0; g < of_block; ++g) put_group<kBits>(block.codes + kGroup * g, to, of_block * b + g);
    put_scales(format.coding, block, to, b);
  }
}

// Types of 32 values whose bytes are those of the plane, behind d and where there is one m.
template <int kCodesAt, int kCodeBytes>
void put_alike(const Format& format, const std::byte* from, int64_t blocks, const Strip& to) {
  const Coding& coding = format.coding;
  for (int64_t b = 0; b < blocks; ++b, from += format.block_bytes) {
    for (int half = 0; half < kCodeBytes / 16; ++half)
      std::memcpy(to.planes + 16 * (half * to.groups + b), from + kCodesAt + 16 * half, 16);
    const uint32_t d = coding.scale == ScaleType::kPower ? std::bit_cast<uint32_t>(power_of(u8_at(from, 0))) >> 16
                                                         : load_as<uint16_t>(from);
    store_as(to.d + 2 * b, static_cast<uint16_t>(d));
    if (coding.minimums) store_as(to.m + 2 * b, static_cast<uint16_t>(load_as<uint16_t>(from + 2) ^ 0x8000u));
  }
}

constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f;

// 64 values of Q4_K and Q5_K: 32 bytes, low halves the first 32 values, high ones the others.
void put_nibbles_64(const std::byte* from, Bytes* to) {
  for (int i = 0; i < 16; i += 8) {
    const auto first = load_as<uint64_t>(from + i), second = load_as<uint64_t>(from + 16 + i);
    store_as(to + i, (first & kLow) | (second & kLow) << 4);
    store_as(to + 16 + i, (first >> 4 & kLow) | (second & ~kLow));
  }
}

// Byte i of x becomes byte 2i.
uint64_t spread(uint32_t x) {
  uint64_t wide = x;
  wide = (wide | wide << 16) & 0x0000ffff0000ffff;
  return (wide | wide << 8) & 0x00ff00ff00ff00ff;
}

// The first 16 bytes of Q4_K and Q5_K: d, m, and eight pairs of 6 bits in 12 bytes (quant/k_search.h).
void put_pairs(const std::byte* from, const Strip& to, int64_t b) {
  store_as(to.d + 2 * b, load_as<uint16_t>(from));
  store_as(to.m + 2 * b, load_as<uint16_t>(from + 2));
  const auto x = load_as<uint32_t>(from + 4), y = load_as<uint32_t>(from + 8), z = load_as<uint32_t>(from + 12);
  const uint32_t s = (z & 0x0f0f0f0fu) | (x >> 2 & 0x30303030u), n = (z >> 4 & 0x0f0f0f0fu) | (y >> 2 & 0x30303030u);
  store_as(to.parts + 16 * b, spread(x & 0x3f3f3f3fu) | spread(y & 0x3f3f3f3fu) << 8);
  store_as(to.parts + 16 * b + 8, spread(s) | spread(n) << 8);
}

void put_q4_k(const Format& format, const std::byte* from, int64_t blocks, const Strip& to) {
  for (int64_t b = 0; b < blocks; ++b, from += format.block_bytes) {
    put_pairs(from, to, b);
    for (int i = 0; i < 4; ++i) put_nibbles_64(from + 16 + 32 * i, to.planes + 128 * b + 32 * i);
  }
}

void put_q5_k(const Format& format, const std::byte* from, int64_t blocks, const Strip& to) {
  Bytes* const ones = to.ones(5);
  for (int64_t b = 0; b < blocks; ++b, from += format.block_bytes) {
    put_pairs(from, to, b);
    for (int i = 0; i < 4; ++i) put_nibbles_64(from + 48 + 32 * i, to.planes + 128 * b + 32 * i);
    uint32_t high[8], words[8] = {};  // bit g of byte l: of code l of group g
    std::memcpy(high, from + 16, sizeof(high));
    for (int k = 0; k < 8; ++k) {
      for (int g = 0; g < 8; ++g) words[g] |= (high[k] >> g & 0x01010101u) << k;
    }
    std::memcpy(ones + 32 * b, words, sizeof(words));
  }
}

// Of a half of 128 values group k has the halves k / 2 of low[32 (k mod 2) ..] and the pairs k of high.
void put_q6_k(const Format& format, const std::byte* from, int64_t blocks, const Strip& to) {
  constexpr uint64_t kPairs = 0x0303030303030303;
  Bytes* const twos = to.twos(6);
  for (int64_t b = 0; b < blocks; ++b, from += format.block_bytes) {
    store_as(to.d + 2 * b, load_as<uint16_t>(from + 208));
    std::memcpy(to.parts + 16 * b, from + 192, 16);
    for (int half = 0; half < 2; ++half) {
      const std::byte* const low = from + 64 * half;
      Bytes* const fours = to.planes + 128 * b + 64 * half;
      for (int i = 0; i < 32; i += 8) {  // groups 0 and 2, then 1 and 3
        const std::byte* const at = low + 32 * (i / 16) + i % 16;
        const auto first = load_as<uint64_t>(at), second = load_as<uint64_t>(at + 16);
        Bytes* const own = fours + 16 * (i / 16) + i % 16;
        store_as(own, (first & kLow) | (second & kLow) << 4);
        store_as(own + 32, (first >> 4 & kLow) | (second & ~kLow));
      }
      uint64_t high[4];
      std::memcpy(high, from + 128 + 32 * half, sizeof(high));
      for (int k = 0; k < 4; ++k) {
        uint64_t word = 0;
        for (int i = 0; i < 4; ++i) word |= (high[i] >> (2 * k) & kPairs) << (2 * i);
        store_as(twos + 64 * b + 32 * half + 8 * k, word);
      }
    }
  }
}

StripWriter writer_of(const Format& format) {
  switch (format.dtype) {
    case DType::kQ8_0:
      return put_alike<2, 32>;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return put_alike<2, 16>;
    case DType::kQ4_1:
      return put_alike<4, 16>;
    case DType::kMXFP4:
      return put_alike<1, 16>;
    case DType::kQ4_K:
      return put_q4_k;
    case DType::kQ5_K:
      return put_q5_k;
    case DType::kQ6_K:
      return put_q6_k;
    default:
      break;
  }
  constexpr StripWriter kWriters[] = {nullptr,      put_strip<1>, put_strip<2>, put_strip<3>, put_strip<4>,
                                      put_strip<5>, put_strip<6>, nullptr,      put_strip<8>};
  return kWriters[format.coding.bits];
}

// What planes and codes can hold.
constexpr bool is_sound(const FormatLine& line) {
  const Coding& coding = line.coding;
  if (coding.bits == 0) return true;
  const uint32_t part = coding.parts == 0 ? line.block_elements : line.block_elements / coding.parts;
  const bool known_bits = (coding.bits >= 1 && coding.bits <= 6) || coding.bits == 8;
  return known_bits && line.block_elements % kGroup == 0 && line.block_elements <= 256 &&
         std::has_single_bit(line.block_elements) && std::has_single_bit(part) && part >= 16 && coding.parts <= 16 &&
         (coding.table == CodeTable::kNone || (coding.bits <= 4 && coding.zero == 0)) &&
         (!coding.e4m3 || (part == 16 && !coding.minimums && coding.halvings == 0)) &&
         (coding.scale != ScaleType::kPower || !coding.minimums) && (coding.scale != ScaleType::kNone || coding.e4m3);
}
#define BATON_FORMAT(name, ...) static_assert(is_sound(line_of(DType::k##name)), #name);
#include "baton/quant/format_list.inc"
#undef BATON_FORMAT

bool is_dense(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }
Form dense_form(DType dtype) {
  if (dtype == DType::kF16) return Form::kF16;
  return dtype == DType::kBF16 ? Form::kBF16 : Form::kF32;
}

// Of codes; the matrix has its rows and columns.
void describe_codes(const FormatLine& line, Shape& shape) {
  const Coding& coding = line.coding;
  Matrix& m = shape.matrix;
  const auto log2_of = [](uint32_t value) { return static_cast<uint8_t>(std::countr_zero(value)); };
  const uint32_t part = coding.parts == 0 ? 0 : line.block_elements / static_cast<uint32_t>(coding.parts);
  m.form = Form::kCodes;
  m.scale_form = scale_form_of(coding);
  m.bits = static_cast<uint8_t>(coding.bits);
  m.block_log2 = log2_of(coding.e4m3 ? part : line.block_elements);
  m.part_log2 = part == 0 || coding.e4m3 ? 0 : log2_of(part);
  m.has_table = coding.table != CodeTable::kNone;
  m.zero = static_cast<int16_t>(coding.bits == 8 ? coding.zero - 128 : coding.zero);
  if (m.has_table) std::memcpy(m.table, values_of(coding.table), size_t{1} << coding.bits);
  m.unit = 1.0f / static_cast<float>(1 << coding.halvings);
  m.has_minimums = coding.minimums;
  m.packing = packing_of(m);
  lay_strips(m);
}

}  // namespace

bool is_native(DType dtype) { return line_of(dtype).coding.bits > 0 || is_dense(dtype); }

Shape shape_of(DType dtype, int64_t rows, int64_t columns, bool floats) {
  Shape shape;
  Matrix& m = shape.matrix;
  m.rows = static_cast<int32_t>(rows);
  m.columns = static_cast<int32_t>(columns);
  m.pitch = pitch_of(m.columns);
  if (!floats && line_of(dtype).coding.bits > 0) {
    describe_codes(line_of(dtype), shape);
  } else {
    m.form = floats ? Form::kF32 : dense_form(dtype);
    m.row_bytes = m.pitch * (m.form == Form::kF32 ? 4 : 2);
  }
  return shape;
}

bool Shape::like(const Shape& other) const {
  const Matrix &a = matrix, &b = other.matrix;
  return a.columns == b.columns && a.form == b.form && a.scale_form == b.scale_form && a.bits == b.bits &&
         a.block_log2 == b.block_log2 && a.part_log2 == b.part_log2 && a.has_table == b.has_table && a.zero == b.zero &&
         std::equal(std::begin(a.table), std::end(a.table), std::begin(b.table)) && a.unit == b.unit &&
         a.has_minimums == b.has_minimums;
}

bool is_stored_alike(const Shape& shape, DType dtype) {
  return is_dense(dtype) && shape.matrix.form == dense_form(dtype) && shape.matrix.pitch == shape.matrix.columns;
}

namespace {

// A row of blocks. What no block writes is zero: columns behind the last, and what is between arrays.
void pack_codes(const Matrix& m, const Format& format, StripWriter writer, const std::byte* from, unsigned char* to) {
  const int32_t groups = m.pitch / kGroup;
  const bool padded = m.pitch != m.columns;
  if (padded) std::memset(to, 0, static_cast<size_t>(m.row_bytes));
  for (int32_t first = 0; first < groups; first += kStripGroups, to += m.strip_bytes) {
    const int32_t own = std::min(kStripGroups, groups - first);
    if (!padded) {
      const int32_t planes = planes_bytes(m.bits, own);
      if (planes != 4 * m.bits * own) std::memset(to + planes - 16, 0, 16);
      std::memset(to + planes, 0, static_cast<size_t>(scales_bytes(m, own)));
    }
    const int64_t columns = std::min(kStrip, m.columns - kGroup * first);
    const int64_t blocks = columns / static_cast<int64_t>(format.block_elements);
    writer(format, from, blocks, Strip(m, to, own));
    from += static_cast<size_t>(blocks) * format.block_bytes;
  }
}

}  // namespace

void pack_rows(const Shape& shape, DType dtype, const std::byte* source, int64_t begin, int64_t end,
               unsigned char* to) {
  const Format& format = format_of(dtype);
  const Matrix& m = shape.matrix;
  const bool codes = m.form == Form::kCodes, as_stored = is_dense(dtype) && m.form == dense_form(dtype);
  const StripWriter writer = codes ? writer_of(format) : nullptr;
  const auto columns = static_cast<size_t>(m.columns);
  const size_t stored = columns / format.block_elements * format.block_bytes;
  source += static_cast<size_t>(begin) * stored;
  for (int64_t row = begin; row < end; ++row, source += stored, to += m.row_bytes) {
    if (codes) {
      pack_codes(m, format, writer, source, to);
      continue;
    }
    if (m.pitch != m.columns) std::memset(to, 0, shape.row_bytes());
    if (as_stored) {
      std::memcpy(to, source, stored);
    } else {
      format.decode(source, reinterpret_cast<float*>(to), columns);
    }
  }
}

}  // namespace baton::cuda
