// Kernels: the programs a model's layers become on the neural engine. A layer is one or several linear layers of one
// input (the rows of their weights stacked in one convolution), or a SwiGLU block; what does not fit the limits of one
// kernel is split into several. Plans are cheap and say everything but the bytes; building a plan converts its weights.
// Input [1, in_channels, 1, columns] and output [1, out_channels, 1, columns], fp16, element (c, t) at c * columns + t:
// a token is a column. Not yet run on Apple hardware.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/model.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/mil_writer.h"

namespace baton::apple {

struct KernelLimits {
  int64_t columns = 32;                          // tokens per evaluation, a multiple of 32
  uint64_t weight_bytes_max = 64 * 1000 * 1000;  // per kernel; 75 MB has been seen to work, 149 MB not
  int64_t in_channels_max = 16384;               // of a conv; 32000 was refused
  int64_t out_channels_max = 16384;              // of a kernel; 32000 was accepted
};

enum class KernelKind : uint8_t { kLinear, kSwiGlu };

// A weight of a layer under the name it has in the program: [a-z0-9_], "q", "gate".
struct LayerPart {
  std::string role;
  const Weight* weight = nullptr;  // outlives plans and builds
};

struct KernelPiece {
  std::string role;
  const Weight* weight = nullptr;
  MatrixPart part;
};

struct KernelPlan {
  KernelKind kind = KernelKind::kLinear;
  std::string name;                 // "l03_qkv"; with a number when the layer was split: "head_7"
  std::vector<KernelPiece> pieces;  // kLinear: in order of output channels; kSwiGlu: gate, up, down
  int64_t columns = 0, in_channels = 0, out_channels = 0;
  // Where the kernel's channels are in the layer's input and output.
  int64_t in_begin = 0, out_begin = 0;
  // The output is a partial sum: add it, in f32 on the host, to what the layer's earlier kernels gave for these
  // channels.
  bool accumulate = false;
  uint64_t weight_bytes = 0;
  uint64_t flops = 0;  // of one evaluation, all columns

  // Kernels of one shape differ in names and weights only: "linear 1024 -> 8192", "swiglu 1024 -> 3584 -> 1024".
  std::string shape() const;
};

// The kernels of a layer, in the order to run them. `name` is [a-z0-9_] and unique in the model. kUnsupported when a
// layer cannot be split (a SwiGLU block with more inputs or outputs than a kernel takes), kInvalidInput when weights do
// not fit together.
Result<std::vector<KernelPlan>> plan_linear(std::string_view name, std::span<const LayerPart> parts,
                                            const KernelLimits& limits);
// silu(gate x) * (up x), through down. Split along the intermediate values.
Result<std::vector<KernelPlan>> plan_swiglu(std::string_view name, const Weight& gate, const Weight& up,
                                            const Weight& down, const KernelLimits& limits);

struct Kernel {
  KernelPlan plan;
  std::string mil;
  std::string weights_key;  // "@model_path/weights/l03_qkv.bin"
  std::vector<std::byte> weights;
  RangeReport range;  // of the conversion to fp16
};

// Same plan and weights, same bytes. Rule weight-range when a weight does not fit fp16 and the policy refuses it.
Result<Kernel> build_kernel(const KernelPlan& plan, OutOfRange policy = OutOfRange::kRefuse,
                            MilDialect dialect = MilDialect::kIos16);

}  // namespace baton::apple
