// Columns from tokens, and state memory to and from the dense arrays of features.
#include "baton/unit/apple/mlpackage/prefill_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/quant/format.h"

namespace baton::apple {
namespace {

constexpr uint16_t kOne = 0x3c00;

uint16_t half_at(DType dtype, const std::byte* row, uint64_t index) {
  if (dtype == DType::kF16) return load_as<uint16_t>(row + 2 * index);
  return f32_to_f16(load_as<float>(row + 4 * index));
}
void put_half(DType dtype, std::byte* row, uint64_t index, uint16_t value) {
  if (dtype == DType::kF16) {
    store_as<uint16_t>(row + 2 * index, value);
  } else {
    store_as<float>(row + 4 * index, f16_to_f32(value));
  }
}
bool is_finite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

// function(memory, slot) for the slots of the layers.
template <class Function>
Status each_slot(const Program& program, const LayerRange& layers, std::span<const SlotMemory> memories,
                 const Function& function) {
  BATON_CHECK(memories.size() == program.slots.size());
  for (size_t i = 0; i < memories.size(); ++i) {
    const Slot& slot = program.slots[i];
    if (slot.layer < layers.begin || slot.layer >= layers.end) continue;
    const DType dtype = memories[i].dtype;
    if (dtype != DType::kF16 && dtype != DType::kF32) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: a state of type {}", segment_name(slot.kind, slot.layer), to_string(dtype)));
    }
    BATON_OK(function(memories[i], slot));
  }
  return {};
}

}  // namespace

Result<HalfArrays> token_inputs(const Model& model, const PrefillShape& shape, uint64_t position,
                                std::span<const int32_t> tokens) {
  const auto seq = static_cast<size_t>(shape.seq), count = tokens.size();
  BATON_CHECK(count > 0 && count <= seq);
  const bool past_fits = shape.past == 0 ? position == 0 : position <= static_cast<uint64_t>(shape.past);
  BATON_CHECK(past_fits);
  HalfArrays out;
  const Weight& table = model.weights[static_cast<size_t>(model.program.ops.front().weights[Op::kMatrix])];
  const Format& format = format_of(table.dtype);
  const auto columns = static_cast<size_t>(table.columns);
  const size_t row_size = table.bytes / static_cast<size_t>(table.rows), pad = seq - count;
  std::vector<uint16_t>& hidden = out["hidden"];
  hidden.resize(columns * seq);
  std::vector<float> row(columns);
  for (size_t t = 0; t < seq; ++t) {
    if (t == 0 || t > pad) {
      const size_t token = t > pad ? t - pad : 0;
      format.decode(table.data + static_cast<size_t>(tokens[token]) * row_size, row.data(), columns);
    }
    for (size_t c = 0; c < columns; ++c) {
      hidden[c * seq + t] = f32_to_f16(row[c]);
      if (!is_finite(hidden[c * seq + t])) {
        return fail(Code::kInvalidInput, fmt::format("the embedding of a token holds {}, which fp16 cannot; run this "
                                                     "model on another unit",
                                                     row[c]));
      }
    }
  }
  std::vector<uint16_t>& keep = out["keep"];
  keep.assign(seq, 0);
  std::fill(keep.begin() + static_cast<std::ptrdiff_t>(pad), keep.end(), kOne);
  if (shape.past > 0) {
    std::vector<uint16_t>& past = out["past_keep"];
    past.assign(static_cast<size_t>(shape.past), 0);
    std::fill_n(past.begin(), position, kOne);
  }
  BATON_TRY(const Op* rope, common_rope(model.program));
  if (rope == nullptr) return out;
  const auto half = static_cast<size_t>(rope->rotary / 2);
  std::vector<uint16_t>&cosines = out["rope_cos"], &sines = out["rope_sin"];
  cosines.resize(half * seq);
  sines.resize(half * seq);
  const float* factors =
      rope->weights[Op::kRopeFactors] >= 0
          ? reinterpret_cast<const float*>(model.weights[static_cast<size_t>(rope->weights[Op::kRopeFactors])].data)
          : nullptr;
  for (size_t i = 0; i < half; ++i) {
    double frequency = std::pow(static_cast<double>(rope->rope_theta), -2.0 * static_cast<double>(i) / rope->rotary);
    if (factors != nullptr) frequency /= factors[i];
    for (size_t t = 0; t < seq; ++t) {
      const double at = t >= pad ? static_cast<double>(position + t - pad) : 0.0;
      cosines[i * seq + t] = f32_to_f16(static_cast<float>(rope->rope_magnitude * std::cos(at * frequency)));
      sines[i * seq + t] = f32_to_f16(static_cast<float>(rope->rope_magnitude * std::sin(at * frequency)));
    }
  }
  return out;
}

Status add_state_inputs(const Program& program, const LayerRange& layers, const PrefillShape& shape,
                        std::span<const SlotMemory> memories, uint64_t position, HalfArrays* inputs) {
  return each_slot(program, layers, memories, [&](const SlotMemory& memory, const Slot& slot) -> Status {
    const bool grows = has_tokens_dim(slot.kind);
    Dims dims = memory.dims;
    if (grows) dims[1] = static_cast<uint64_t>(shape.past);
    std::vector<uint16_t>& to = (*inputs)[state_feature(slot.kind, slot.layer)];
    to.assign(dims[0] * dims[1] * dims[2], 0);
    const uint64_t rows = grows ? position : dims[1];
    for (uint64_t a = 0; a < dims[0]; ++a) {
      for (uint64_t b = 0; b < rows; ++b) {
        const std::byte* const row = memory.at(a, b);
        for (uint64_t c = 0; c < dims[2]; ++c) {
          const uint16_t half = half_at(memory.dtype, row, c);
          if (!is_finite(half)) {
            return fail(Code::kDevice,
                        fmt::format("{}: a value of the state is beyond fp16", segment_name(slot.kind, slot.layer)));
          }
          to[(a * dims[1] + b) * dims[2] + c] = half;
        }
      }
    }
    return {};
  });
}

Status store_state_outputs(const Program& program, const LayerRange& layers, const PrefillShape& shape,
                           const HalfArrays& outputs, uint64_t position, uint64_t tokens,
                           std::span<const SlotMemory> memories) {
  return each_slot(program, layers, memories, [&](const SlotMemory& memory, const Slot& slot) -> Status {
    const bool grows = has_tokens_dim(slot.kind);
    const std::string name = state_feature(slot.kind, slot.layer) + "_out";
    const auto found = outputs.find(name);
    Dims dims = memory.dims;
    if (grows) dims[1] = static_cast<uint64_t>(shape.seq);
    if (found == outputs.end() || found->second.size() != dims[0] * dims[1] * dims[2]) {
      return fail(Code::kDevice,
                  fmt::format("output '{}' is missing or has another size than {}", name, dims[0] * dims[1] * dims[2]));
    }
    const uint64_t rows = grows ? tokens : dims[1], skip = dims[1] - rows, first = grows ? position : 0;
    BATON_CHECK(!grows || position + tokens <= memory.dims[1]);
    for (uint64_t a = 0; a < dims[0]; ++a) {
      for (uint64_t b = 0; b < rows; ++b) {
        std::byte* const row = memory.at(a, first + b);
        for (uint64_t c = 0; c < dims[2]; ++c) {
          const uint16_t half = found->second[(a * dims[1] + skip + b) * dims[2] + c];
          if (!is_finite(half)) {
            return fail(Code::kDevice,
                        fmt::format("output '{}' is not finite: the model leaves fp16's range here", name));
          }
          put_half(memory.dtype, row, c, half);
        }
      }
    }
    return {};
  });
}

Status run_chunks(const Model& model, const PrefillShape& shape, std::span<const LayerRange> chunks,
                  const PackageCall& call, uint64_t position, std::span<const int32_t> tokens,
                  std::span<const SlotMemory> slots, std::span<float> hidden) {
  BATON_TRY(HalfArrays inputs, token_inputs(model, shape, position, tokens));
  std::vector<uint16_t> stream = std::move(inputs["hidden"]);
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    HalfArrays own = inputs;
    const size_t values = stream.size();
    own["hidden"] = std::move(stream);
    if (shape.past > 0) BATON_OK(add_state_inputs(model.program, chunks[chunk], shape, slots, position, &own));
    BATON_TRY(HalfArrays outputs, call(chunk, own));
    const auto found = outputs.find("hidden_out");
    if (found == outputs.end() || found->second.size() != values)
      return fail(Code::kDevice, "output 'hidden_out' is missing or has another size");
    stream = std::move(found->second);
    BATON_OK(store_state_outputs(model.program, chunks[chunk], shape, outputs, position, tokens.size(), slots));
  }
  if (hidden.empty()) return {};
  const auto seq = static_cast<size_t>(shape.seq), width = stream.size() / seq;
  BATON_CHECK(hidden.size() == tokens.size() * width);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t c = 0; c < width; ++c) {
      const uint16_t half = stream[c * seq + seq - tokens.size() + t];
      if (!is_finite(half))
        return fail(Code::kDevice, "output 'hidden_out' is not finite: the model leaves fp16's range");
      hidden[t * width + c] = f16_to_f32(half);
    }
  }
  return {};
}

}  // namespace baton::apple
