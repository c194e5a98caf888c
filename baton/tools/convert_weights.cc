// Rows in GGUF's order, parts of a matrix put together.
#include "baton/tools/convert_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "baton/model/arch.h"

namespace baton {
namespace {

std::string replace_layer(std::string_view pattern, int32_t layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

// Row (or column) `index` of the GGUF file is which one of the Hugging Face file.
int64_t source_index(int64_t index, GgufOrder order, const ModelSpec& spec) {
  const int64_t key_heads = spec.linear_key_heads, repeat = key_heads > 0 ? spec.linear_value_heads / key_heads : 1;
  // Tiled head h' = r * key_heads + k holds grouped head h = k * repeat + r.
  const auto grouped = [&](int64_t tiled) { return (tiled % key_heads) * repeat + tiled / key_heads; };
  const auto in_heads = [&](int64_t i, int64_t head_size) {
    return grouped(i / head_size) * head_size + i % head_size;
  };
  switch (order) {
    case GgufOrder::kSame:
      return index;
    case GgufOrder::kValueRowsAfterKeys: {
      const int64_t keys = 2 * key_heads * spec.linear_key_dim;
      return index < keys ? index : keys + in_heads(index - keys, spec.linear_value_dim);
    }
    case GgufOrder::kValueRows:
    case GgufOrder::kValueColumns:
      return in_heads(index, spec.linear_value_dim);
    case GgufOrder::kValueHeads:
      return grouped(index);
    case GgufOrder::kRotaryRowsQ:
    case GgufOrder::kRotaryRowsK: {
      // Row 2i + s of a head comes from row i + s * head_dim / 2.
      const int64_t within = index % spec.head_dim;
      return index - within + within / 2 + (within % 2) * (spec.head_dim / 2);
    }
  }
  return index;
}

std::vector<float> decoded(const Weight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.columns));
  format_of(weight.dtype).decode(weight.data, values.data(), values.size());
  return values;
}

std::vector<float> reordered(const Weight& weight, GgufOrder order, const ModelSpec& spec) {
  std::vector<float> from = decoded(weight);
  if (order == GgufOrder::kSame) return from;
  std::vector<float> to(from.size());
  const int64_t columns = weight.columns;
  // A vector has its heads along the columns.
  const bool along_columns = order == GgufOrder::kValueColumns || weight.rows == 1;
  for (int64_t row = 0; row < weight.rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t from_row = along_columns ? row : source_index(row, order, spec);
      const int64_t from_column = along_columns ? source_index(column, order, spec) : column;
      to[static_cast<size_t>(row * columns + column)] = from[static_cast<size_t>(from_row * columns + from_column)];
    }
  }
  return to;
}

// Quantisers have no code for NaN or infinity, and scales are f16: what cannot be kept is refused, not changed.
Status check_range(const Weight& weight, const std::vector<float>& values, DType dtype) {
  const bool wide = dtype == DType::kF32 || dtype == DType::kBF16;
  const float limit = wide ? std::numeric_limits<float>::max() : 65504.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) <= limit) continue;
    return fail(Code::kInvalidInput,
                fmt::format("{}: holds {}, which {} cannot; the file is damaged or needs another type", weight.source,
                            values[i], to_string(dtype)));
  }
  return {};
}

// Where a weight's name belongs: its role, and what the tensor is called in GGUF. Of an expert's, that of all of them.
struct Place {
  const TensorRole* role = nullptr;
  std::string name;
  bool expert = false;
};

class Places {
 public:
  Places(const Architecture& architecture, int32_t layers) {
    for (const TensorRole& role : architecture.roles) {
      const bool layered = role.ours.find("{}") != std::string_view::npos;
      for (int32_t layer = 0; layer < (layered ? layers : 1); ++layer)
        places_.emplace(replace_layer(role.ours, layer), Place{&role, replace_layer(role.gguf, layer)});
    }
  }
  // Null when there is none.
  std::optional<Place> of(const std::string& weight) const {
    if (const auto found = places_.find(weight); found != places_.end()) return found->second;
    const size_t dot = weight.rfind('.');
    if (dot == std::string::npos || weight.find_first_not_of("0123456789", dot + 1) != std::string::npos)
      return std::nullopt;
    const auto found = places_.find(weight.substr(0, dot));
    if (found == places_.end()) return std::nullopt;
    Place place = found->second;
    place.expert = true;
    return place;
  }

 private:
  std::map<std::string, Place> places_;
};

constexpr size_t kPartsApart = 8;  // weights from one part of a tensor to the next, at most

// The matrix or vector at `first` of the model's, and those that follow it and are parts of the same tensor.
struct JoinedWeights {
  std::vector<const Weight*> parts;
  const TensorRole* role = nullptr;
  std::string name;  // in GGUF
  int64_t rows = 0, columns = 0;
  int64_t matrices = 0;  // of experts, one upon the other; else 0
};

Result<JoinedWeights> join_weights(const Places& places, const Model& model, size_t first, std::vector<bool>& taken) {
  const auto place = places.of(model.weights[first].name);
  if (!place) return fail(Code::kInternal, fmt::format("weight '{}' has no tensor role", model.weights[first].name));
  JoinedWeights joined;
  joined.role = place->role;
  joined.name = place->name;
  for (size_t i = first, last = first; i < std::min(model.weights.size(), last + kPartsApart); ++i) {
    const auto other = places.of(model.weights[i].name);
    if (!other) break;
    // A bias comes between the parts of a matrix.
    if (other->name != joined.name) continue;
    joined.parts.push_back(&model.weights[i]);
    taken[i] = true;
    last = i;
  }
  const bool vector = joined.parts[0]->rows == 1 && !place->expert;
  joined.rows = vector ? 1 : 0;
  joined.columns = vector ? 0 : joined.parts[0]->columns;
  for (const Weight* part : joined.parts)
    (vector ? joined.columns : joined.rows) += vector ? part->columns : part->rows;
  if (place->expert) joined.matrices = static_cast<int64_t>(joined.parts.size());
  return joined;
}

}  // namespace

Status add_weights(GgufWriter& writer, const Model& model, DType matrix_type, ConvertReport& report) {
  const Architecture& architecture = *architecture_of(*model.container);
  const Places places(architecture, model.spec.layers);
  std::vector<bool> taken(model.weights.size(), false);
  for (size_t i = 0; i < model.weights.size(); ++i) {
    if (taken[i] || model.weights[i].source.empty()) continue;  // of no tensor: said by keys, or written apart
    BATON_TRY(JoinedWeights joined, join_weights(places, model, i, taken));
    const TensorRule rule = joined.role->rule;
    const bool vector = joined.rows == 1 || rule == TensorRule::kConv || joined.role->ours.ends_with(".router");
    DType dtype = vector ? DType::kF32 : matrix_type;
    if (joined.columns % format_of(dtype).block_elements != 0) {
      dtype = DType::kF16;
      report.notes.push_back(fmt::format("{}: rows of {} do not fit {}'s blocks; written as F16",
                                         joined.parts[0]->source, joined.columns, to_string(matrix_type)));
    }
    std::vector<uint64_t> shape = {static_cast<uint64_t>(joined.columns)};
    if (joined.rows > 1 || rule == TensorRule::kConv || rule == TensorRule::kMatrix || rule == TensorRule::kTurned ||
        rule == TensorRule::kTurnedExperts)
      shape.insert(shape.begin(), static_cast<uint64_t>(joined.rows));
    if (joined.matrices != 0) {
      shape[0] /= static_cast<uint64_t>(joined.matrices);
      shape.insert(shape.begin(), static_cast<uint64_t>(joined.matrices));
    }
    const std::string name = joined.name;
    writer.add_tensor(name, dtype, shape,
                      [joined = std::move(joined), &model, dtype]() -> Result<std::vector<std::byte>> {
                        BATON_TRY(const uint64_t row_size, row_bytes(dtype, static_cast<uint64_t>(joined.columns)));
                        std::vector<float> values;
                        for (const Weight* part : joined.parts) {
                          const std::vector<float> more = reordered(*part, joined.role->order, model.spec);
                          BATON_OK(check_range(*part, more, dtype));
                          values.insert(values.end(), more.begin(), more.end());
                        }
                        std::vector<std::byte> bytes(row_size * static_cast<uint64_t>(joined.rows));
                        format_of(dtype).encode(values.data(), bytes.data(), values.size());
                        return bytes;
                      });
    ++report.tensors;
  }
  return {};
}

Result<std::vector<float>> gguf_values(const Model& model, const Weight& weight) {
  if (weight.source.empty()) return decoded(weight);  // made by the architecture itself, in both
  const Places places(*architecture_of(*model.container), model.spec.layers);
  const auto place = places.of(weight.name);
  if (!place) return fail(Code::kInternal, fmt::format("weight '{}' has no tensor role", weight.name));
  return reordered(weight, place->role->order, model.spec);
}

}  // namespace baton
