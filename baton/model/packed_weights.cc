// From the parts of a packed matrix to blocks.
#include "baton/model/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "baton/model/packed_integers.h"

namespace baton {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

enum class PackedKind : uint8_t { kNone, kGptqOrAwq, kIntegers, kF8, kNvfp4, kGgufNvfp4 };

PackedKind packed_kind(const Container& container, std::string_view source) {
  if (!source.ends_with(kWeightEnd)) return PackedKind::kNone;
  const PackedParts parts(container, source, 0, 0);
  if (container.kind == ContainerKind::kGguf) {
    const TensorView* weight = container.find(source);
    const bool scaled = weight != nullptr && weight->dtype == DType::kNVFP4 && parts.numbers("scale") != nullptr;
    return scaled ? PackedKind::kGgufNvfp4 : PackedKind::kNone;
  }
  if (parts.raw("qweight") != nullptr) return PackedKind::kGptqOrAwq;
  if (const RawView* packed = parts.raw("weight_packed")) {
    return packed->type == "U8" ? PackedKind::kNvfp4 : PackedKind::kIntegers;
  }
  const RawView* weight = parts.raw("weight");
  if (weight == nullptr) return PackedKind::kNone;
  if (weight->type == "F8_E4M3") return PackedKind::kF8;
  if (weight->type == "I8") return PackedKind::kIntegers;
  return weight->type == "U8" && parts.raw("weight_scale") != nullptr ? PackedKind::kNvfp4 : PackedKind::kNone;
}

// A matrix of a format, to be written.
struct Blocks {
  DType dtype;
  size_t bytes = 0;
  std::unique_ptr<std::byte[]> memory;
  explicit Blocks(DType type, int64_t rows, int64_t columns) : dtype(type) {
    const Format& format = format_of(type);
    bytes = static_cast<size_t>(rows * (columns / format.block_elements)) * format.block_bytes;
    memory = std::make_unique<std::byte[]>(bytes);
  }
};

// ---- Integers ----

// The format whose blocks are these groups, or pieces of them; null: none.
const Format* format_for(const PackedIntegers& from, int64_t columns) {
  const int64_t group = columns / from.groups;
  if (!from.group_of.empty()) return nullptr;
  for (const int64_t block : {128, 64, 32}) {
    if (group % block == 0) return format_by_name(fmt::format("MLX{}_G{}", from.bits, block));
  }
  return nullptr;
}

// f32 scale and bias, then the codes as a stream.
void put_block(const uint8_t* codes, float scale, int32_t zero, const Format& format, std::byte* to) {
  store_as(to, scale);
  store_as(to + 4, zero == 0 ? 0.0f : -scale * static_cast<float>(zero));
  to += 8;
  const int bits = format.coding.bits;
  for (uint32_t e = 0; e < format.block_elements; e += 8, to += bits) {
    uint64_t eight = 0;
    for (int i = 0; i < 8; ++i) eight |= static_cast<uint64_t>(codes[e + static_cast<uint32_t>(i)]) << (bits * i);
    std::memcpy(to, &eight, static_cast<size_t>(bits));
  }
}

Blocks make_blocks(const PackedIntegers& from, int64_t rows, int64_t columns) {
  constexpr int64_t kRows = 16;  // that are taken from the words at once
  const Format* const format = format_for(from, columns);
  Blocks made(format == nullptr ? DType::kF32 : format->dtype, rows, columns);
  std::vector<uint8_t> codes(static_cast<size_t>(kRows * columns));
  const int64_t group = columns / from.groups;
  std::byte* to = made.memory.get();
  for (int64_t first = 0; first < rows; first += kRows) {
    const int64_t count = std::min(kRows, rows - first);
    from.codes(first, count, codes.data());
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* const row = codes.data() + r * columns;
      const float* const scales = from.scales.data() + (first + r) * from.groups;
      const int32_t* const zeros = from.zeros.data() + (first + r) * from.groups;
      for (int64_t c = 0; format != nullptr && c < columns; c += format->block_elements, to += format->block_bytes) {
        put_block(row + c, scales[c / group], zeros[c / group], *format, to);
      }
      for (int64_t c = 0; format == nullptr && c < columns; ++c, to += 4) {
        const int64_t g = from.group_of.empty() ? c / group : from.group_of[static_cast<size_t>(c)];
        store_as(to, scales[g] * static_cast<float>(row[c] - zeros[g]));
      }
    }
  }
  return made;
}

// ---- FP8 ----

// Rows and columns that share a scale, by the configuration.
struct ScaleBlock {
  int64_t rows = 128, columns = 128;
};
ScaleBlock scale_block(const PackedParts& parts) {
  if (parts.config() == nullptr) return {};
  const Json& config = *parts.config();
  const auto read = [](const Json& from, ScaleBlock fallback) {
    const bool pair = from.is_array() && from.size() == 2 && from[0].is_number_integer() && from[1].is_number_integer();
    if (!pair || from[0].get<int64_t>() < 1 || from[1].get<int64_t>() < 1) return fallback;
    return ScaleBlock{from[0].get<int64_t>(), from[1].get<int64_t>()};
  };
  if (const auto own = config.find("weight_block_size"); own != config.end()) return read(*own, {});
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object() || groups->empty() || !groups->begin()->is_object()) return {};
  const auto weights = groups->begin()->find("weights");
  if (weights == groups->begin()->end() || !weights->is_object()) return {};
  const auto block = weights->find("block_structure");
  return block == weights->end() ? ScaleBlock{} : read(*block, {});
}

Result<Blocks> make_f8(const PackedParts& parts) {
  const int64_t rows = parts.rows, columns = parts.columns;
  BATON_TRY(const RawView* codes, parts.raw("weight", "F8_E4M3", {rows, columns}));
  const char* part = parts.numbers("weight_scale_inv") != nullptr ? "weight_scale_inv" : "weight_scale";
  const TensorView* any = parts.numbers(part);
  if (any == nullptr) {
    return parts.refuse(part, "is missing: FP8 numbers mean nothing without their scales; the folder is incomplete");
  }
  ScaleBlock block = scale_block(parts);
  if (any->elements() == 1) block = {rows, columns};
  if (any->elements() == static_cast<uint64_t>(rows) && any->shape[0] == static_cast<uint64_t>(rows))
    block = {1, columns};
  const int64_t across = (columns + block.columns - 1) / block.columns;
  BATON_TRY(const std::vector<float> scales, parts.floats(part, {(rows + block.rows - 1) / block.rows, across}));
  const bool blocks_fit = columns % 32 == 0 && (across == 1 || block.columns % 32 == 0);
  Blocks made(blocks_fit ? DType::kF8_G32 : DType::kF32, rows, columns);
  std::byte* to = made.memory.get();
  const std::byte* from = codes->data.data();
  std::byte one[36];
  float values[32];
  for (int64_t r = 0; r < rows; ++r) {
    const float* const row_scales = scales.data() + r / block.rows * across;
    for (int64_t c = 0; blocks_fit && c < columns; c += 32, to += 36, from += 32) {
      store_as(to, row_scales[c / block.columns]);
      std::memcpy(to + 4, from, 32);
    }
    for (int64_t c = 0; !blocks_fit && c < columns; ++c, to += 4, ++from) {
      store_as(one, row_scales[c / block.columns]);
      std::fill_n(one + 4, 32, *from);
      format_of(DType::kF8_G32).decode(one, values, 32);
      store_as(to, values[0]);
    }
  }
  return made;
}

// ---- NVFP4 ----

constexpr int64_t kNvfp4Block = 64, kNvfp4Part = 16;

// Pairs in turn, low half first, to ours: the second eight of a part in the high halves.
void put_part(const std::byte* pairs, std::byte* to) {
  const auto code = [&](int i) { return static_cast<uint8_t>(pairs[i / 2]) >> (i % 2 * 4) & 15; };
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::byte>(code(i) | code(8 + i) << 4);
}

// ModelOpt: weight, weight_scale, and weight_scale_2, which multiplies; compressed-tensors: weight_packed and
// weight_global_scale, which divides.
Result<Blocks> make_nvfp4(const PackedParts& parts) {
  const int64_t rows = parts.rows, columns = parts.columns;
  const bool model_opt = parts.raw("weight_packed") == nullptr;
  const char* const part = model_opt ? "weight" : "weight_packed";
  if (columns % kNvfp4Block != 0) {
    return parts.unsupported(part,
                             fmt::format("has rows of {}, not a multiple of 64, which NVFP4 needs here", columns));
  }
  BATON_TRY(const RawView* codes, parts.raw(part, "U8", {rows, columns / 2}));
  BATON_TRY(const RawView* scales, parts.raw("weight_scale", "F8_E4M3", {rows, columns / kNvfp4Part}));
  BATON_TRY(const std::vector<float> of_all,
            parts.floats(model_opt ? "weight_scale_2" : "weight_global_scale", {1, 1}));
  const float d = model_opt ? of_all[0] : 1.0f / of_all[0];
  if (!std::isfinite(d)) return parts.refuse("weight_global_scale", fmt::format("is {}, which divides", of_all[0]));
  Blocks made(DType::kNVFP4_F32, rows, columns);
  std::byte* to = made.memory.get();
  const std::byte *from = codes->data.data(), *scale = scales->data.data();
  for (int64_t i = 0; i < rows * columns / kNvfp4Block; ++i, to += 40, from += 32, scale += 4) {
    store_as(to, d);
    std::memcpy(to + 4, scale, 4);
    for (int64_t j = 0; j < 4; ++j) put_part(from + 8 * j, to + 8 + 8 * j);
  }
  return made;
}

Result<Blocks> make_scaled_nvfp4(const PackedParts& parts) {
  const int64_t rows = parts.rows, columns = parts.columns;
  const TensorView& weight = *parts.numbers("weight");
  BATON_TRY(const std::vector<float> scale, parts.floats("scale", {1, 1}));
  const bool fits = weight.elements() == static_cast<uint64_t>(rows * columns) && columns % kNvfp4Block == 0 &&
                    weight.shape.back() == static_cast<uint64_t>(columns);
  if (!fits) return parts.refuse("weight", fmt::format("is not of {} rows of {}", rows, columns));
  Blocks made(DType::kNVFP4_F32, rows, columns);
  std::byte* to = made.memory.get();
  const std::byte* from = weight.data.data();
  for (int64_t i = 0; i < rows * columns / kNvfp4Block; ++i, to += 40, from += 36) {
    store_as(to, scale[0]);
    std::memcpy(to + 4, from, 36);
  }
  return made;
}

Result<Blocks> make_packed(PackedKind kind, const PackedParts& parts) {
  if (kind == PackedKind::kF8) return make_f8(parts);
  if (kind == PackedKind::kNvfp4) return make_nvfp4(parts);
  if (kind == PackedKind::kGgufNvfp4) return make_scaled_nvfp4(parts);
  if (kind == PackedKind::kIntegers) {
    BATON_TRY(const PackedIntegers integers, read_compressed_tensors(parts));
    return make_blocks(integers, parts.rows, parts.columns);
  }
  if (parts.raw("weight") != nullptr || parts.numbers("weight") != nullptr) {
    return parts.refuse("weight", "stands beside the qweight of the same matrix: one of the two is another model's");
  }
  const std::string method = parts.text("quant_method"), packing = parts.text("packing_format");
  const bool awq = method == "awq" || packing.find("awq") != std::string::npos;
  if (!awq && method != "gptq" && packing.find("gptq") == std::string::npos) {
    return parts.unsupported("qweight",
                             fmt::format("is of quantization_config.quant_method '{}'; gptq and awq are read", method));
  }
  BATON_TRY(const PackedIntegers integers, awq ? read_awq(parts) : read_gptq(parts));
  return make_blocks(integers, parts.rows, parts.columns);
}

}  // namespace

bool is_packed(const Container& container, std::string_view source) {
  return packed_kind(container, source) != PackedKind::kNone;
}

Result<PackedWeight> join_packed_weight(const Container& container, std::string_view source, std::string name,
                                        int64_t rows, int64_t columns,
                                        std::vector<std::unique_ptr<std::byte[]>>& owned) {
  const PackedParts parts(container, source, rows, columns);
  BATON_TRY(Blocks made, make_packed(packed_kind(container, source), parts));
  PackedWeight packed;
  packed.weight = {std::move(name), made.dtype, rows, columns, made.memory.get(), made.bytes, std::string(source)};
  packed.parts = parts.present();
  owned.push_back(std::move(made.memory));
  return packed;
}

}  // namespace baton
