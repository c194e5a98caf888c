// Maps of a product's operands.
#include "baton/unit/cuda/tile_maps.h"

#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {

Result<TileWork> tile_work(const Stream& stream, const Work& work, int32_t rows, const TileLaunch& launch) {
  TileWork made;
  static_cast<Work&>(made) = work;
  made.rows = rows;
  if (launch.x_box == 0) return made;
  const Instruction& in = work.instruction;
  const auto pitch = static_cast<uint64_t>(in.matrix[0].pitch), count = static_cast<uint64_t>(rows);
  BATON_TRY(made.x, stream.map_of({in.x, count, pitch}, launch.x_box, kTileDepth));
  for (int32_t i = 0; i < in.matrices; ++i) {
    const Matrix& matrix = in.matrix[i];
    const Address at = matrix.form == Form::kBF16 ? matrix.values : in.scratch + unpacked_offset(in, i);
    BATON_TRY(made.matrix[i],
              stream.map_of({at, static_cast<uint64_t>(matrix.rows), pitch}, launch.matrix_box, kTileDepth));
  }
  if (!launch.patches || !in.to_bf16) return made;
  const auto width = static_cast<uint64_t>(pitch_of(in.matrix[0].rows));  // zeros are written behind the last column
  BATON_TRY(made.out, stream.map_of({in.out, count, width}, kPatchRows, kPatchColumns));
  return made;
}

}  // namespace baton::cuda
