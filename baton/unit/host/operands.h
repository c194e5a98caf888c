// The rows of a pass in the forms that matrices multiply, for one product after another, and which form when.
#pragma once

#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/host/kernels.h"
#include "baton/unit/host/memory.h"

namespace baton::host {

// What matrices of a packing multiply; `tiled`: of rows that go through tiles, where there are any for the packing.
Form form_of(const Kernels& kernels, Packing packing, bool tiled);
inline bool has_tiles(const Kernels& kernels, Packing packing) {
  return kernels.tile_matmul[static_cast<size_t>(packing)] != nullptr;
}
inline MultiplyFunction function_of(const Kernels& kernels, Packing packing, Form form) {
  const bool tiles = form == Form::kTiles || form == Form::kTilePairs;
  return (tiles ? kernels.tile_matmul : kernels.matmul)[static_cast<size_t>(packing)];
}

// Whether rows of `columns` values that prefill go through tiles: all or none, so that neither where a prompt is cut
// nor its neighbours show in bits.
inline bool tiled(const Kernels& kernels, int64_t columns) {
  return kernels.to_tiles != nullptr && columns % kBlock == 0;
}

// Several forms; floats are always there.
struct Forms {
  bool integers = false, tiles = false, tile_pairs = false;
  void add(Form form);
  void add(const Forms& other);
  bool any() const { return integers || tiles || tile_pairs; }
};

class Operands {
 public:
  // For up to `rows` rows of `columns` values. kOutOfMemory names `unit`.
  // `products`: of so many at once, by sort() and integers_at().
  static Result<Operands> create(const Kernels& kernels, int64_t rows, int64_t columns, std::string_view unit,
                                 int64_t products = 1);

  // Row `row` becomes `columns` values at `x`; `precise`: integers keep 15 bits. `in_tiles`: its place among the rows
  // of tiles. Distinct rows may be done by several threads.
  void make(Forms forms, int64_t row, int64_t in_tiles, const float* x, int64_t columns, bool precise);

  // `count` rows from `first` on, all made with so many columns; valid until one of them changes. Sorts low planes
  // where a product of so many tokens wants it.
  Activations integers(int64_t first, int64_t count, int64_t columns, ThreadPool& pool);
  // The same for several products at once, each over rows of its own: sort() before integers_at(), on any thread.
  // `batch`: the product's first of sort_batches(count), which no other one has.
  void sort(int64_t first, int64_t count, int64_t columns, int64_t batch);
  Activations integers_at(int64_t first, int64_t columns, int64_t batch) const;
  static int64_t sort_batches(int64_t count) { return (count + kSortedTokens - 1) / kSortedTokens; }
  // From the first row in tiles on, or from `first`, a multiple of kTileTokens, of rows of `columns`.
  Activations tiles(Form form, int64_t first = 0, int64_t columns = 0) const;
  static Activations floats(const float* x, int64_t stride);

 private:
  explicit Operands(const Kernels& kernels) : kernels_(&kernels) {}
  void sort_rows(int64_t first, int64_t count, int64_t blocks, int32_t* starts);

  const Kernels* kernels_;
  Memory memory_, tile_memory_;
  ActivationBlock* blocks_ = nullptr;  // [rows][columns / 32], likewise the planes
  LowPlane* lows_ = nullptr;
  LowPlane* sorted_ = nullptr;
  std::vector<int32_t> low_counts_;  // by row
  std::vector<int32_t> starts_;
  uint16_t *high_tiles_ = nullptr, *low_tiles_ = nullptr;
};

}  // namespace baton::host
