// Matrix products on the tiles of AMX: bf16 products, f32 sums. Needs AMX-TILE, AMX-BF16 and AVX512-BF16 beside what
// kernels_avx512.cc needs; this file alone is compiled for them.
//
// Weights of integer formats become bf16 on the way into scratch, activations are bf16: their rounding (8 bits, but
// relative to each value) adds less noise than 8-bit blocks do, and no sum has to leave its tile before the last k.
// 16-bit and bf16 weights keep their bits: activations are then the sum of two bf16, F16 weights too.
#if defined(__x86_64__)

#include "baton/base/simd/avx512.h"
#include "baton/unit/host/kernels_bf16.inl.h"
#include "baton/unit/host/kernels_blocks.inl.h"

namespace baton::host {
namespace {

// Tiles as all products here take them: 16 rows of 64 bytes, which are 32 bf16 or 16 f32.
constexpr int kTileRows = 16, kTileRowBytes = 64, kTileRowValues = kTileRowBytes / 2;
static_assert(kTileRows == kTileTokens && kTileRows == kLanes && kTileRows * kTileRowValues == kTile);

// As the instruction reads it: of the 16 tiles it has room for a processor has 8.
struct alignas(64) TileConfig {
  static constexpr int kRoom = 16, kTiles = 8;
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[kRoom] = {};
  uint8_t rows[kRoom] = {};
  constexpr TileConfig() {
    for (int t = 0; t < kTiles; ++t) row_bytes[t] = kTileRowBytes, rows[t] = kTileRows;
  }
};
static_assert(sizeof(TileConfig) == 64);

// The compiler does not know that tile loads read memory.
BATON_INLINE void memory_is_written() { __asm__ volatile("" ::: "memory"); }

// One panel to tiles [columns / 32][16 pairs of k][16 rows][2].
template <class Block>
void panel_to_tiles(const Matrix& w, const unsigned char* panel, uint16_t* to) {
  Block block;
  block.open(w, panel);
  for (int64_t b = 0; b < w.columns / kBlock; ++b, to += kTile) {
    block.prefetch();
    F scale[Block::kScales], offset[2];
    unroll<Block::kScales>([&](auto i) BATON_LAMBDA { scale[i.value] = block.template scale<i.value>(); });
    unroll<2>([&](auto i) BATON_LAMBDA {
      constexpr int kScale = Block::kScales == 2 ? i.value : 0;
      offset[i.value] = Block::kPlain ? F{} : scale[kScale] * all(-128.0f);
      if constexpr (Block::kMinimums > 0) {
        constexpr int kMinimum = Block::kMinimums == 2 ? i.value : 0;
        offset[i.value] = offset[i.value] + block.template minimum<kMinimum>();
      }
    });
    unroll<8>([&](auto g) BATON_LAMBDA {
      constexpr int kHalf = g.value / 4, kScale = Block::kScales == 2 ? kHalf : 0;
      const I v{block.template value<g.value>().v};
      F x[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) x[j] = fma(to_float(v >> (8 * j) & all(255)), scale[kScale], offset[kHalf]);
      uint16_t* const row = to + 2 * kTileRowValues * g.value;
      store_pairs(row, x[0], x[1]);
      store_pairs(row + kTileRowValues, x[2], x[3]);
    });
    block.next(b);
  }
}

// F16 [k][16 rows] to tiles of the upper parts and, `low` bytes of scratch on, tiles of what is left.
void f16_to_tiles(const Matrix& w, const unsigned char* values, uint16_t* high, uint16_t* low) {
  for (int64_t k = 0; k < w.columns; k += 2, high += kTileRowValues, low += kTileRowValues) {
    constexpr int64_t kBytes = 2 * kLanes;  // of a k
    const F even = load_f16(values + kBytes * k), odd = load_f16(values + kBytes * (k + 1));
    store_pairs(high, even, odd);
    store_pairs(low, even - upper_part(even), odd - upper_part(odd));
  }
}

struct Parts {
  const uint16_t* high;
  const uint16_t* low;  // null: none
};

// C tiles 0 .. 3 += A (two groups of 16 tokens, `a_stride` values apart) * B (two panels).
template <int Groups, int Panels>
BATON_INLINE void add_products(const uint16_t* a, int64_t a_stride, const uint16_t* b0, const uint16_t* b1,
                               int64_t tiles) {
  for (int64_t k = 0; k < tiles; ++k) {
    _tile_loadd(4, a + k * kTile, kTileRowBytes);
    _tile_loadd(6, b0 + k * kTile, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Panels == 2) {
      _tile_loadd(7, b1 + k * kTile, kTileRowBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (Groups == 2) {
      _tile_loadd(5, a + a_stride + k * kTile, kTileRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (Panels == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
}

BATON_INLINE void write_tile(const float* sums, int64_t tokens, float* out, int64_t out_stride, int rows, bool add) {
  for (int64_t t = 0; t < tokens && t < kTileTokens; ++t) {
    write_rows(out + t * out_stride, load(sums + kLanes * t), rows, add);
  }
}

// All tokens against `Panels` panels from `panel` on.
template <int Panels>
void multiply_panels(const Multiply& m, int64_t panel, const Parts (&w)[2]) {
  constexpr int64_t kBoth = 2 * kTileTokens;
  const int64_t tiles = m.w->columns / kBlock, group = tiles * kTile;
  int rows[Panels];
  for (int p = 0; p < Panels; ++p) rows[p] = rows_of(*m.w, panel + p);
  const auto step = [&](auto groups, int64_t token) BATON_LAMBDA {
    constexpr int kGroups = decltype(groups)::value;
    const int64_t at = token / kTileTokens * group;
    _tile_zero(0);
    if constexpr (Panels == 2) _tile_zero(1);
    if constexpr (kGroups == 2) _tile_zero(2);
    if constexpr (Panels == 2 && kGroups == 2) _tile_zero(3);
    // Small parts first.
    const uint16_t *const high = m.x.high_tiles, *const low = m.x.low_tiles;
    if (w[0].low != nullptr) add_products<kGroups, Panels>(high + at, group, w[0].low, w[1].low, tiles);
    if (low != nullptr) add_products<kGroups, Panels>(low + at, group, w[0].high, w[1].high, tiles);
    add_products<kGroups, Panels>(high + at, group, w[0].high, w[1].high, tiles);
    // The numbers of tiles are part of the instructions.
    alignas(64) float sums[4][kTileTokens * kLanes];
    _tile_stored(0, sums[0], kTileRowBytes);
    if constexpr (Panels == 2) _tile_stored(1, sums[1], kTileRowBytes);
    if constexpr (kGroups == 2) _tile_stored(2, sums[2], kTileRowBytes);
    if constexpr (Panels == 2 && kGroups == 2) _tile_stored(3, sums[3], kTileRowBytes);
    memory_is_written();
    for (int g = 0; g < kGroups; ++g) {
      const int64_t first = token + kTileTokens * g;
      for (int p = 0; p < Panels; ++p) {
        float* const out = m.out + first * m.out_stride + kLanes * (panel + p);
        write_tile(sums[2 * g + p], m.tokens - first, out, m.out_stride, rows[p], m.add);
      }
    }
  };
  int64_t token = 0;
  for (; token + kTileTokens < m.tokens; token += kBoth) step(Constant<2>{}, token);
  if (token < m.tokens) step(Constant<1>{}, token);
}

// unpack(panel's bytes, tiles): what the tiles of one panel are.
template <class Unpack>
void tile_matmul(const Multiply& m, const Unpack& unpack) {
  alignas(64) const TileConfig config;
  _tile_loadconfig(&config);
  each_panel_group<2>(m.panel_begin, m.panel_end, [&](auto count, int64_t panel) BATON_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    Parts parts[2] = {};
    for (int p = 0; p < kCount; ++p) {
      // Two bf16 a value, at most: as many bytes as the f32 of the scratch's contract.
      auto* tiles = reinterpret_cast<uint16_t*>(m.scratch) + p * 2 * kLanes * m.w->columns;
      parts[p] = unpack(m.w->data + (panel + p) * m.w->panel_bytes, tiles);
    }
    memory_is_written();
    multiply_panels<kCount>(m, panel, parts);
  });
  _tile_release();
}

template <class Block>
void integer_tiles(const Multiply& m) {
  tile_matmul(m, [&](const unsigned char* panel, uint16_t* tiles) {
    panel_to_tiles<Block>(*m.w, panel, tiles);
    return Parts{tiles, nullptr};
  });
}

void bf16_tiles(const Multiply& m) {
  tile_matmul(m, [&](const unsigned char* panel, uint16_t*) {  // the packed layout is that of tiles
    return Parts{reinterpret_cast<const uint16_t*>(panel), nullptr};
  });
}

void f16_tiles(const Multiply& m) {
  tile_matmul(m, [&](const unsigned char* panel, uint16_t* tiles) {
    uint16_t* low = tiles + kLanes * m.w->columns;
    f16_to_tiles(*m.w, panel, tiles, low);
    return Parts{tiles, low};
  });
}

}  // namespace

const Kernels& kernels_avx512();
const Kernels& kernels_amx();
const Kernels& kernels_amx() {
  static const Kernels kernels = [] {
    Kernels k = kernels_avx512();
    k.name = "amx";
    k.description = "amx-bf16 and avx512-vnni";
    k.arithmetic.f16 = k.arithmetic.integers = Arithmetic::kBF16Amx;
    const auto set = [&](Packing packing, MultiplyFunction f) { k.tile_matmul[static_cast<int>(packing)] = f; };
    set(Packing::kF16, f16_tiles);
    set(Packing::kBF16, bf16_tiles);
    each_integer_packing([&](auto packing) {
      constexpr auto kPacking = static_cast<Packing>(decltype(packing)::value);
      set(kPacking, integer_tiles<BlockOf<kPacking>>);
    });
    k.to_tiles = to_tiles;
    k.tile_pairs = true;
    return k;
  }();
  return kernels;
}

}  // namespace baton::host

#endif
