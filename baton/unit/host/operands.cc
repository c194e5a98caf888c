// Which form when. Low planes in the order of rows, as they are made, and of blocks, as products of many tokens read
// them.
#include "baton/unit/host/operands.h"

#include <algorithm>

namespace baton::host {

Form form_of(const Kernels& kernels, Packing packing, bool tiled) {
  if (tiled && has_tiles(kernels, packing)) {
    return kernels.tile_pairs && !is_integer(packing) ? Form::kTilePairs : Form::kTiles;
  }
  return is_integer(packing) ? Form::kIntegers : Form::kFloats;
}

void Forms::add(Form form) {
  integers |= form == Form::kIntegers;
  tiles |= form == Form::kTiles;
  tile_pairs |= form == Form::kTilePairs;
}

void Forms::add(const Forms& other) {
  integers |= other.integers;
  tiles |= other.tiles;
  tile_pairs |= other.tile_pairs;
}

Result<Operands> Operands::create(const Kernels& kernels, int64_t rows, int64_t columns, std::string_view unit,
                                  int64_t products) {
  Operands made(kernels);
  const int64_t blocks = columns / kBlock + 1, all = rows * blocks, batches = rows / kSortedTokens + products;
  constexpr size_t kBytes = sizeof(ActivationBlock) + 2 * sizeof(LowPlane);
  BATON_TRY(made.memory_, Memory::allocate(static_cast<size_t>(all) * kBytes, "quantised activations", unit));
  made.blocks_ = reinterpret_cast<ActivationBlock*>(made.memory_.data());
  made.lows_ = reinterpret_cast<LowPlane*>(made.blocks_ + all);
  made.sorted_ = made.lows_ + all;
  made.low_counts_.resize(static_cast<size_t>(rows));
  made.starts_.resize(static_cast<size_t>(batches * (blocks + 1)));
  if (kernels.to_tiles == nullptr) return made;
  const int64_t values = round_up(rows, 2 * kTileTokens) * round_up(columns, kBlock);
  BATON_TRY(made.tile_memory_, Memory::allocate(static_cast<size_t>(values) * 4, "tiles of activations", unit));
  made.high_tiles_ = reinterpret_cast<uint16_t*>(made.tile_memory_.data());
  made.low_tiles_ = made.high_tiles_ + values;
  return made;
}

void Operands::make(Forms forms, int64_t row, int64_t in_tiles, const float* x, int64_t columns, bool precise) {
  if (forms.tiles || forms.tile_pairs) {
    const int64_t in_group = in_tiles % kTileTokens;
    const int64_t at = (in_tiles - in_group) * columns + in_group * kBlock;
    kernels_->to_tiles(x, columns, high_tiles_ + at, forms.tile_pairs ? low_tiles_ + at : nullptr);
  }
  if (!forms.integers) return;
  const int64_t at = row * (columns / kBlock);
  low_counts_[static_cast<size_t>(row)] =
      static_cast<int32_t>(kernels_->quantize(x, columns, precise, blocks_ + at, lows_ + at));
}

Activations Operands::floats(const float* x, int64_t stride) {
  Activations a;
  a.x = x;
  a.x_stride = stride;
  return a;
}

Activations Operands::tiles(Form form, int64_t first, int64_t columns) const {
  Activations a;
  a.form = form;
  a.high_tiles = high_tiles_ + first * columns;
  if (form == Form::kTilePairs) a.low_tiles = low_tiles_ + first * columns;
  return a;
}

Activations Operands::integers(int64_t first, int64_t count, int64_t columns, ThreadPool& pool) {
  const int64_t blocks = columns / kBlock;
  if (count > kernels_->direct_tokens) {
    pool.parallel_for(sort_batches(count), 1, [&](int64_t begin, int64_t end, uint32_t) {
      for (int64_t batch = begin; batch < end; ++batch) {
        const int64_t done = batch * kSortedTokens;
        sort_rows(first + done, std::min(kSortedTokens, count - done), blocks, starts_.data() + batch * (blocks + 1));
      }
    });
  }
  return integers_at(first, columns, 0);
}

void Operands::sort(int64_t first, int64_t count, int64_t columns, int64_t batch) {
  if (count <= kernels_->direct_tokens) return;
  const int64_t blocks = columns / kBlock;
  for (int64_t done = 0; done < count; done += kSortedTokens, ++batch)
    sort_rows(first + done, std::min(kSortedTokens, count - done), blocks, starts_.data() + batch * (blocks + 1));
}

Activations Operands::integers_at(int64_t first, int64_t columns, int64_t batch) const {
  const int64_t blocks = columns / kBlock;
  Activations a;
  a.form = Form::kIntegers;
  a.blocks = blocks_ + first * blocks;
  a.lows = lows_ + first * blocks;
  a.sorted_starts = starts_.data() + batch * (blocks + 1);
  a.sorted_lows = sorted_;
  return a;
}

// By counting. Where rows lie among the sorted planes is where they lie among the others.
void Operands::sort_rows(int64_t first, int64_t count, int64_t blocks, int32_t* starts) {
  const auto each_plane = [&](auto&& f) {
    for (int64_t row = 0; row < count; ++row) {
      const LowPlane* const planes = lows_ + (first + row) * blocks;
      for (int32_t i = 0; i < low_counts_[static_cast<size_t>(first + row)]; ++i) f(planes[i], row);
    }
  };
  // starts[b + 1] counts those of block b, then is where the next of them goes, then where they end.
  std::fill_n(starts, blocks + 1, 0);
  each_plane([&](const LowPlane& plane, int64_t) { ++starts[plane.at + 1]; });
  int32_t next = static_cast<int32_t>(first * blocks);
  starts[0] = next;
  for (int64_t b = 1; b <= blocks; ++b) {
    const int32_t those = starts[b];
    starts[b] = next;
    next += those;
  }
  each_plane([&](const LowPlane& plane, int64_t token) {
    LowPlane& to = sorted_[starts[plane.at + 1]++];
    to = plane;
    to.at = static_cast<int32_t>(token);
  });
}

}  // namespace baton::host
