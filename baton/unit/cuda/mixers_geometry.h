// Which part of attention, convolutions and the delta rule is whose: maps from numbers of units to rows, keys and
// heads, the same for kernels and host; and how the kernels are launched.
#pragma once

#include <cstdint>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// Of kAttend and kAttendTile: the first position that a token sees.
BATON_BOTH inline int32_t first_seen(int32_t window, int32_t chunk, int32_t position) {
  if (chunk != 0) return position / chunk * chunk;
  return window != 0 && position + 1 > window ? position + 1 - window : 0;
}

// Of kDeltaRule: the key head of a value head.
BATON_BOTH inline int32_t key_head_of(const Op& op, int32_t head) {
  return op.head_map == HeadMap::kGrouped ? head / (op.heads / op.kv_heads) : head % op.kv_heads;
}

// kAttend: what a token sees, in tiles of kPageTokens keys that begin at multiples of it, shared out evenly to `count`
// parts. By its position alone, so that its bits do not depend on its neighbours.
struct KeyParts {
  int32_t seen_from;  // position
  int32_t first;      // tile
  int32_t tiles;
  int32_t count;
  int32_t each, more;  // tiles of a part; of the first `more` one more

  // Of a part, or behind the last one.
  BATON_BOTH int32_t first_tile(int32_t part) const { return first + part * each + (part < more ? part : more); }
};
inline constexpr int32_t kPartsMax = 132;     // Instruction::splits
inline constexpr int32_t kHeadsTogether = 4;  // query heads that share what is read of a kv head
// Values of a head, of all kinds of attention: what the lanes of a warp hold, 8 each.
inline constexpr int32_t kAttendWidthMax = 256;
// Tiles that a block has at a time.
BATON_BOTH constexpr int32_t tiles_together(int32_t width) { return width <= 64 ? 4 : width <= 128 ? 2 : 1; }
inline constexpr int32_t kTurnsAlone = 2;  // so many times as many are one part
BATON_BOTH inline KeyParts key_parts(const Op& op, int32_t position, int32_t splits) {
  const int32_t together = tiles_together(op.width);
  KeyParts parts;
  parts.seen_from = first_seen(op.window, op.chunk, position);
  parts.first = parts.seen_from / kPageTokens;
  parts.tiles = position / kPageTokens - parts.first + 1;
  parts.count = parts.tiles <= kTurnsAlone * together ? 1 : (parts.tiles + together - 1) / together;
  if (parts.count > splits) parts.count = splits;
  parts.each = parts.tiles, parts.more = 0;
  if (parts.count > 1) parts.each = parts.tiles / parts.count, parts.more = parts.tiles % parts.count;
  return parts;
}
// Query heads of a kv head are done by so many units.
BATON_BOTH inline int32_t head_parts(const Op& op) {
  return (op.heads / op.kv_heads + kHeadsTogether - 1) / kHeadsTogether;
}
// Whether a rotation of so many values of a head is by 0, 32, 64 or 128 pairs, four of a lane at most: of pairs beside
// each other a lane has half.
BATON_BOTH constexpr bool is_plain_turn(int32_t rotary, int32_t width, bool adjacent) {
  return (rotary == 0 || rotary == 64 || rotary == 128 || (rotary == 256 && !adjacent)) && rotary <= width;
}
// Whether tensor cores do it (kernels/attention_mma.cuh).
BATON_BOTH inline bool attends_by_mma(const Instruction& in) {
  const int32_t width = in.op.width;
  return (width == 64 || width == 128 || width == 256) && in.slot.form == in.slot2.form &&
         (in.slot.form == Form::kF16 || in.slot.form == Form::kBF16) && in.slot.row_bytes == 2 * width &&
         in.slot2.row_bytes == 2 * width;
}
// What Instruction::splits is, where there is scratch for it: work for about as many blocks as a card has.
BATON_BOTH inline int32_t attend_splits(const Op& op) {
  const int32_t wanted = kPartsMax / (op.kv_heads * head_parts(op));
  return wanted < 1 ? 1 : wanted;
}
// Values of scratch for one row, head and part: those of the head, then the highest score, then the sum.
BATON_BOTH inline int64_t part_values(const Op& op) { return op.width + 2; }

// kAttendTile on tensor cores: a block has so many rows of a head, and so many threads.
inline constexpr int32_t kAttendTileRows = 64;
inline constexpr uint32_t kAttendTileThreads = 128;
// Values of a head in its shared memory; what a head lacks is zero.
BATON_BOTH inline int32_t attend_tile_width(const Op& op) { return op.width <= 64 ? 64 : op.width <= 128 ? 128 : 256; }
// Queries, keys, values of 64 rows, from a multiple of 1024 on.
BATON_BOTH inline uint32_t attend_tile_shared(const Op& op) {
  return 3 * 64 * 2 * static_cast<uint32_t>(attend_tile_width(op)) + 1024;
}
// The tile of query rows of the block that comes at `order` of `tiles`: the last tiles see the most, and come first; of
// a few blocks, which all run at once, a long one and a short one share a processor.
BATON_BOTH inline int32_t attend_tile_at(int32_t order, int32_t tiles, int32_t heads) {
  constexpr int32_t kAtOnce = 264;
  if (tiles * heads > kAtOnce) return tiles - 1 - order;
  const int32_t upper = tiles / 2, lower = tiles - upper;  // of long ones
  return order < lower ? tiles - 1 - order : order - lower;
}

// `count` rows of a run from `offset` on.
struct RowTile {
  int32_t run = -1;
  int32_t offset = 0, count = 0;
};
// Which rows of a pass: of all runs, or of those that decode or do not.
enum class Rows : uint8_t { kAll, kPrompts };
// Rows of each run in tiles of `rows`, from its first row on. run -1: no such tile.
BATON_BOTH inline RowTile row_tile(const Pass& pass, int32_t index, int32_t rows, Rows which) {
  RowTile tile;
  for (int32_t r = 0; r < pass.runs; ++r) {
    const Run& run = pass.run[r];
    const int32_t tiles = which == Rows::kPrompts && run.decodes != 0 ? 0 : (run.rows + rows - 1) / rows;
    if (index < tiles) {
      tile.run = r;
      tile.offset = index * rows;
      tile.count = run.rows - tile.offset < rows ? run.rows - tile.offset : rows;
      return tile;
    }
    index -= tiles;
  }
  return tile;
}
BATON_BOTH inline int32_t row_tiles(const Pass& pass, int32_t rows, Rows which) {
  int32_t tiles = 0;
  for (int32_t r = 0; r < pass.runs; ++r) {
    if (which == Rows::kAll || pass.run[r].decodes == 0) tiles += (pass.run[r].rows + rows - 1) / rows;
  }
  return tiles;
}

// kDelta of many rows: chunks that begin at multiples of kDeltaRows positions, so that it does not show where a prompt
// was cut there.
inline constexpr int32_t kDeltaRows = 64;
BATON_BOTH inline int32_t delta_chunks(const Run& run) {
  if (run.decodes != 0 || run.rows == 0) return 0;
  return (run.start + run.rows - 1) / kDeltaRows - run.start / kDeltaRows + 1;
}
BATON_BOTH inline int32_t delta_chunks(const Pass& pass) {
  int32_t count = 0;
  for (int32_t r = 0; r < pass.runs; ++r) count += delta_chunks(pass.run[r]);
  return count;
}
// Rows of the run's chunk `index`.
BATON_BOTH inline RowTile rows_of_chunk(const Run& run, int32_t index) {
  RowTile tile;
  const int32_t begin = (run.start / kDeltaRows + index) * kDeltaRows - run.start, end = begin + kDeltaRows;
  tile.offset = begin < 0 ? 0 : begin;
  tile.count = (end < run.rows ? end : run.rows) - tile.offset;
  return tile;
}
BATON_BOTH inline RowTile delta_chunk(const Pass& pass, int32_t index) {
  for (int32_t r = 0; r < pass.runs; ++r) {
    const int32_t chunks = delta_chunks(pass.run[r]);
    if (index < chunks) {
      RowTile tile = rows_of_chunk(pass.run[r], index);
      tile.run = r;
      return tile;
    }
    index -= chunks;
  }
  return {};
}
// In two kernels: what a chunk of a head is on its own, all of them at once, and then chunk after chunk, of
// parts of a state's columns each: 16 where there are then no more blocks than processors, else 32. Between them, in
// scratch, of each chunk and head what delta_chunk.cuh says.
inline constexpr uint32_t kDeltaPrepareThreads = 256, kDeltaPrepareShared = 102 * 1024;
// Of no more blocks than processors each is to have one for itself, also where others are still at what was before.
inline constexpr uint32_t kDeltaPrepareAlone = 120 * 1024;
inline constexpr uint32_t kDeltaChunksThreads = 256, kDeltaChunksShared = 137 * 1024;
inline constexpr uint64_t kDeltaChunkBytes = 4 * 64 * 128 * 4 + 64 * 64 * 4 + 128;
// Whether prompts can go in chunks, and, of kConvDelta, with the convolution before them.
BATON_BOTH inline bool has_chunks(const Op& op, uint32_t shared_bytes) {
  return op.key_dim == 128 && op.value_dim == 128 && shared_bytes >= kDeltaPrepareShared &&
         shared_bytes >= kDeltaChunksShared;
}
BATON_BOTH inline bool convolves_chunks(const Op& op, uint32_t shared_bytes) {
  return has_chunks(op, shared_bytes) && op.taps == 4;
}
// Whether they do; the rest goes token by token.
BATON_BOTH inline bool in_chunks(const Instruction& instruction) {
  return instruction.scratch != 0 && instruction.op.key_dim == 128 && instruction.op.value_dim == 128;
}

// Of kConvDelta and kDelta, as queries and keys of a token are in shared memory, and rows of a state in registers;
// columns are any number.
inline constexpr int32_t kDeltaKeyDimMax = 256;
// Columns of a state that a unit of theirs has: groups of 16, one to four of them. By what there is to do, which does
// not show in a column's bits.
inline constexpr int32_t kGroupColumns = 16;
BATON_BOTH inline int32_t column_groups(const Op& op, int32_t runs, int32_t blocks) {
  const int32_t groups = (op.value_dim + kGroupColumns - 1) / kGroupColumns;
  const int64_t all = int64_t{runs} * op.heads * groups;
  if (groups >= 4 && all >= int64_t{4} * blocks) return 4;
  return groups >= 2 && all >= int64_t{2} * blocks ? 2 : 1;
}

// Of keys of at most 128 values, values in whole groups, four taps, as most have: units need not look at their ends.
BATON_BOTH constexpr bool is_plain_delta(const Op& op) {
  return op.key_dim <= 128 && op.value_dim % kGroupColumns == 0 && op.taps == 4;
}

// kConv, kShortConv: a unit has so many channels, and so many rows.
inline constexpr int32_t kConvChannels = 128;
inline constexpr int32_t kConvRows = 64;

// A kernel with its geometry.
struct MixerLaunch {
  const char* kernel = nullptr;
  uint32_t grid = 1, threads = kThreads, shared_bytes = 0;
};
// In order, one behind the other.
struct MixerLaunches {
  MixerLaunch each[3];
  int32_t count = 0;
};
// Of kAttend, kAttendJoin, kAttendTile, kAttendAll, kConv, kDelta, kConvDelta, kShortConv for a pass whose runs are
// known. None: no row of the pass is of that kind. Of a kConvDelta in chunks no run decodes.
MixerLaunches mixer_launches(const Instruction& instruction, const Pass& pass, uint32_t processors);

// Bytes of Instruction::scratch, for passes of at most so many rows and runs, on a card whose blocks may have so much
// shared memory. kAttend and kAttendJoin (the same, with `splits`), kDelta and, of prompts, kConvDelta (0: no scratch,
// tokens one by one); 0 for the rest.
uint64_t mixer_scratch_bytes(const Instruction& instruction, int32_t rows_max, int32_t runs_max, uint32_t shared_bytes);

}  // namespace baton::cuda
