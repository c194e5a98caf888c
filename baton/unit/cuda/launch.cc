// The geometry of launches.
#include "baton/unit/cuda/launch.h"

#include <algorithm>

#include "baton/base/status.h"
#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels.h"
#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/mma_layout.h"
#include "baton/unit/cuda/rows_geometry.h"
#include "baton/unit/cuda/staging.h"
#include "baton/unit/cuda/tile_maps.h"

namespace baton::cuda {
namespace {

bool is_mixer(Do what) {
  switch (what) {
    case Do::kAttend:
    case Do::kAttendJoin:
    case Do::kAttendTile:
    case Do::kAttendAll:
    case Do::kConv:
    case Do::kDelta:
    case Do::kConvDelta:
    case Do::kShortConv:
      return true;
    default:
      return false;
  }
}

// Blocks for which there is work: kernels take any number.
uint32_t blocks_of(const Instruction& instruction, int64_t rows, uint32_t processors) {
  const int64_t most = 8 * static_cast<int64_t>(processors);
  int64_t units = rows;
  switch (instruction.what) {
    case Do::kAdvance:
      return 1;
    case Do::kEach:
    case Do::kSplitPairs:
    case Do::kCap:
    case Do::kPick:
      units = rows * (std::max(instruction.x_width, instruction.out_width) / kThreads + 1);
      break;
    case Do::kRope:
    case Do::kHeads:
    case Do::kAppend:  // a warp has a head
      units = (rows * (instruction.op.heads + instruction.op.kv_heads) + kWarps - 1) / kWarps;
      break;
    case Do::kPrepare:
      units = prepare_blocks(instruction, rows);
      break;
    case Do::kExpertsIn:
    case Do::kExpertsOut:
      return static_cast<uint32_t>(most);
    default:
      break;
  }
  return static_cast<uint32_t>(std::clamp<int64_t>(units, 1, most));
}

}  // namespace

Status launch(Stream& stream, const CardFacts& facts, const Instruction& instruction, const Pass& pass,
              Address on_card) {
  const Work work{instruction, on_card};
  const int32_t rows = instruction.wanted_only ? pass.rows_out : pass.rows;
  if (rows == 0) return {};
  // An emulated card has a body for each kind.
  if (facts.emulated) return stream.launch(kernel_name(instruction.what), 1, kThreads, 0, &work);
  if (is_mixer(instruction.what)) {
    const MixerLaunches launches = mixer_launches(instruction, pass, facts.processors);
    for (int32_t i = 0; i < launches.count; ++i) {
      const MixerLaunch& one = launches.each[i];
      BATON_OK(stream.launch_ahead(one.kernel, one.grid, one.threads, one.shared_bytes, &work));
    }
    return {};
  }
  if (instruction.what == Do::kTile) {
    const TileGeometry tiles = tile_geometry(instruction, rows, facts.capability, facts.processors, facts.maps);
    for (const TileLaunch& one : tiles.launches()) {
      BATON_TRY(const TileWork tile, tile_work(stream, work, rows, one));
      BATON_OK(stream.launch_ahead(one.kernel, one.grid, one.threads, one.shared_bytes, &tile));
    }
    return {};
  }
  if (instruction.what == Do::kMultiply) {
    const ListWork list = list_of_one(instruction, on_card, facts.shared_bytes, facts.processors);
    BATON_CHECK(list.feed.set > 0);  // limits.h
    return stream.launch("baton_list", facts.processors, kThreads + kFeederThreads, feed_bytes(list.feed), &list);
  }
  const bool prepares = instruction.what == Do::kPrepare;
  const std::string_view kernel = prepares ? prepare_kernel(instruction) : kernel_name(instruction.what);
  return stream.launch_ahead(kernel, blocks_of(instruction, rows, facts.processors), kThreads,
                             shared_bytes_of(instruction), &work);
}

uint32_t shared_bytes_of(const Instruction& instruction) {
  switch (instruction.what) {
    case Do::kAttend:
      return kAttendShared;
    case Do::kAttendJoin:
    case Do::kDelta:
    case Do::kConvDelta:
      return kSmallShared;
    case Do::kAttendTile:
    case Do::kAttendAll:
      return kSharedBytes;
    case Do::kDraw:
      return kDrawShared;
    default:
      return kBeforeRows;
  }
}

Status launch_list(Stream& stream, const CardFacts& facts, const ListWork& list) {
  // All that there is: rows of x are then brought once for more of their products.
  if (list.together)
    return stream.launch_together("baton_list_together", kThreads, facts.shared_bytes - kMmaKeptBytes, &list);
  const char* const kernel = !list.plain ? "baton_list" : list.codes ? "baton_list_plain_codes" : "baton_list_plain";
  return stream.launch_together(kernel, kThreads + kFeederThreads + (list.plain ? kClerkThreads : 0),
                                feed_bytes(list.feed), &list);
}

bool fits_list(std::span<const Instruction> instructions) {
  return std::all_of(instructions.begin(), instructions.end(), [](const Instruction& instruction) {
    switch (instruction.what) {
      case Do::kTile:
      case Do::kAttendTile:
      case Do::kAttendAll:
      case Do::kConv:
      case Do::kDelta:
        return false;
      case Do::kConvDelta:
        return instruction.scratch == 0;
      default:
        return true;
    }
  });
}

}  // namespace baton::cuda
