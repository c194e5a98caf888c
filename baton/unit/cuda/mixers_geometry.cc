// How the kernels of attention, convolutions and the delta rule are launched.
#include "baton/unit/cuda/mixers_geometry.h"

#include <algorithm>
#include <cstddef>

#include "baton/unit/cuda/staging.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kPlainRowsOfUnit = kThreads / 32;

uint32_t capped_grid(int64_t units, uint32_t most) {
  return static_cast<uint32_t>(std::clamp<int64_t>(units, 1, most));
}

bool any(const Pass& pass, bool decodes) {
  return std::any_of(pass.run, pass.run + pass.runs,
                     [&](const Run& run) { return run.rows > 0 && (run.decodes != 0) == decodes; });
}

void add(MixerLaunches& launches, const char* kernel, int64_t units, uint32_t most, uint32_t threads, uint32_t shared) {
  launches.each[launches.count++] = {kernel, capped_grid(units, most), threads, shared};
}

int64_t conv_units(const Pass& pass, int32_t channels) {
  return int64_t{row_tiles(pass, kConvRows, Rows::kAll)} * ((channels + kConvChannels - 1) / kConvChannels);
}

int64_t delta_units(const Op& op, const Pass& pass, uint32_t processors) {
  const int32_t wide = column_groups(op, pass.runs, static_cast<int32_t>(processors)) * kGroupColumns;
  return int64_t{pass.runs} * op.heads * ((op.value_dim + wide - 1) / wide);
}

// Null: none of them.
const char* attend_tile_kernel(const Instruction& instruction) {
  static constexpr const char* kNames[2][3] = {
      {"baton_attend_tile_f16_64", "baton_attend_tile_f16_128", "baton_attend_tile_f16_256"},
      {"baton_attend_tile_bf16_64", "baton_attend_tile_bf16_128", "baton_attend_tile_bf16_256"}};
  const Form form = instruction.slot.form;
  if (form != instruction.slot2.form || (form != Form::kF16 && form != Form::kBF16)) return nullptr;
  const int32_t width = attend_tile_width(instruction.op);
  return kNames[form == Form::kBF16][width == 64 ? 0 : width == 128 ? 1 : 2];
}

void add_attend_tile(MixerLaunches& launches, const Instruction& instruction, const Pass& pass, uint32_t processors) {
  const Op& op = instruction.op;
  if (!any(pass, false)) return;
  const char* const kernel = attend_tile_kernel(instruction);
  if (kernel != nullptr) {
    const int64_t units = int64_t{row_tiles(pass, kAttendTileRows, Rows::kPrompts)} * op.heads;
    return add(launches, kernel, units, INT32_MAX, kAttendTileThreads, attend_tile_shared(op));
  }
  add(launches, "baton_attend_tile",
      int64_t{row_tiles(pass, static_cast<int32_t>(kPlainRowsOfUnit), Rows::kPrompts)} * op.heads, 8 * processors,
      kThreads, kSharedBytes);
}

void add_delta(MixerLaunches& launches, const Instruction& instruction, const Pass& pass, uint32_t processors) {
  const Op& op = instruction.op;
  const bool chunks = in_chunks(instruction);
  const bool convolves = instruction.what == Do::kConvDelta;
  if (!chunks || any(pass, true))
    add(launches, convolves ? "baton_conv_delta" : "baton_delta", delta_units(op, pass, processors), 2 * processors,
        kThreads, kSmallShared);
  const int64_t count = delta_chunks(pass);
  if (!chunks || count == 0) return;
  const int64_t units = count * op.heads;
  add(launches, convolves ? "baton_conv_delta_prepare" : "baton_delta_prepare", units, INT32_MAX, kDeltaPrepareThreads,
      units <= processors ? kDeltaPrepareAlone : kDeltaPrepareShared);
  const int64_t heads = int64_t{pass.runs} * op.heads;
  const bool narrow = heads * (op.value_dim / 16) <= processors;
  add(launches, narrow ? "baton_delta_chunks_16" : "baton_delta_chunks_32", heads * (op.value_dim / (narrow ? 16 : 32)),
      INT32_MAX, kDeltaChunksThreads, kDeltaChunksShared);
}

}  // namespace

MixerLaunches mixer_launches(const Instruction& instruction, const Pass& pass, uint32_t processors) {
  const Op& op = instruction.op;
  const uint32_t most = 8 * processors;
  MixerLaunches launches;
  switch (instruction.what) {
    case Do::kAttend:
      if (any(pass, true))
        add(launches, "baton_attend",
            int64_t{pass.runs} * op.kv_heads * head_parts(op) * (instruction.scratch != 0 ? instruction.splits : 1),
            most, kThreads, kAttendShared);
      break;
    case Do::kAttendJoin:
      if (any(pass, true) && instruction.scratch != 0)
        add(launches, "baton_attend_join", int64_t{pass.runs} * op.heads * ((op.width + 63) / 64), most, kThreads,
            kSmallShared);
      break;
    case Do::kAttendTile:
      add_attend_tile(launches, instruction, pass, processors);
      break;
    case Do::kAttendAll:
      add(launches, "baton_attend_all",
          int64_t{row_tiles(pass, static_cast<int32_t>(kPlainRowsOfUnit), Rows::kAll)} * op.heads, most, kThreads,
          kSharedBytes);
      break;
    case Do::kConv:
      add(launches, "baton_conv", conv_units(pass, instruction.x_width), most, kThreads, 0);
      break;
    case Do::kDelta:
    case Do::kConvDelta:
      add_delta(launches, instruction, pass, processors);
      break;
    case Do::kShortConv:
      add(launches, "baton_short_conv", conv_units(pass, instruction.out_width), most, kThreads, 0);
      break;
    default:
      break;
  }
  return launches;
}

uint64_t mixer_scratch_bytes(const Instruction& instruction, int32_t rows_max, int32_t runs_max,
                             uint32_t shared_bytes) {
  const Op& op = instruction.op;
  if (instruction.what == Do::kAttend || instruction.what == Do::kAttendJoin) {
    if (instruction.splits <= 1) return 0;
    return static_cast<uint64_t>(int64_t{runs_max} * op.heads * instruction.splits * part_values(op)) * sizeof(float);
  }
  const bool delta = instruction.what == Do::kDelta || instruction.what == Do::kConvDelta;
  if (!delta || !has_chunks(op, shared_bytes)) return 0;
  const uint64_t chunks = static_cast<uint64_t>(rows_max) / kDeltaRows + 2 * static_cast<uint64_t>(runs_max);
  return chunks * static_cast<uint64_t>(op.heads) * kDeltaChunkBytes;
}

}  // namespace baton::cuda
