// The tensors of one packed matrix, by the last part of their names, with their shapes checked.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/model/container.h"

namespace baton {

class PackedParts {
 public:
  // `source`: "<module>.weight".
  PackedParts(const Container& container, std::string_view source, int64_t row_count, int64_t column_count)
      : rows(row_count), columns(column_count), container_(container), module_(source.substr(0, source.rfind('.'))) {}

  const int64_t rows, columns;

  // Null when absent. Of types without a decoder, and of those with one.
  const RawView* raw(std::string_view part) const {
    const auto found = container_.raw.find(name(part));
    return found == container_.raw.end() ? nullptr : &found->second;
  }
  const TensorView* numbers(std::string_view part) const { return container_.find(name(part)); }

  // Of this type and shape, or an Error.
  Result<const RawView*> raw(std::string_view part, std::string_view type, std::vector<int64_t> shape) const {
    const RawView* found = raw(part);
    if (found == nullptr) return refuse(part, "is missing beside the others of this matrix; the folder is incomplete");
    if (found->type != type) return refuse(part, fmt::format("is of type {}, not {}", found->type, type));
    BATON_OK(check(part, found->shape, shape));
    return found;
  }
  // Decoded, [rows of `shape`][columns of `shape`]; any shape with as many values where one dimension is 1.
  Result<std::vector<float>> floats(std::string_view part, std::vector<int64_t> shape) const {
    const TensorView* found = numbers(part);
    if (found == nullptr) {
      return refuse(part, raw(part) == nullptr
                              ? std::string("is missing beside the others of this matrix; the folder is incomplete")
                              : fmt::format("is of type {}; scales are F32, F16 or BF16", raw(part)->type));
    }
    const Format& format = format_of(found->dtype);
    if (format.block_elements != 1) return refuse(part, fmt::format("is {}, not F32, F16 or BF16", format.name));
    uint64_t wanted = 1;
    for (const int64_t length : shape) wanted *= static_cast<uint64_t>(length);
    const bool flat = std::count(shape.begin(), shape.end(), 1) + 1 >= static_cast<int64_t>(shape.size());
    if (!flat || found->elements() != wanted) BATON_OK(check(part, found->shape, shape));
    std::vector<float> values(wanted);
    format.decode(found->data.data(), values.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) return refuse(part, fmt::format("has {} as scale {}", values[i], i));
    }
    return values;
  }

  // The names of those that are there.
  std::vector<std::string> present() const {
    std::vector<std::string> names;
    for (const std::string_view part :
         {"weight", "qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale", "weight_scale_inv",
          "weight_scale_2", "weight_global_scale", "weight_zero_point", "weight_g_idx", "weight_shape", "input_scale",
          "input_zero_point", "input_global_scale", "activation_scale", "scale"}) {
      if (raw(part) != nullptr || numbers(part) != nullptr) names.push_back(name(part));
    }
    return names;
  }

  tl::unexpected<Error> refuse(std::string_view part, std::string_view why) const {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' {}", container_.path.string(), name(part), why));
  }
  tl::unexpected<Error> unsupported(std::string_view part, std::string_view why) const {
    return fail(Code::kUnsupported, fmt::format("{}: tensor '{}' {}", container_.path.string(), name(part), why));
  }

  // config.json's "quantization_config", null when absent.
  const Json* config() const {
    for (const char* field : {"quantization_config", "compression_config"}) {
      const auto found = container_.config.is_object() ? container_.config.find(field) : container_.config.end();
      if (container_.config.is_object() && found != container_.config.end() && found->is_object()) return &*found;
    }
    return nullptr;
  }
  // A text of it, empty when absent or no text.
  std::string text(const char* field) const {
    const Json* const all = config();
    if (all == nullptr) return {};
    const auto found = all->find(field);
    return found != all->end() && found->is_string() ? found->get<std::string>() : std::string();
  }

 private:
  std::string name(std::string_view part) const { return fmt::format("{}.{}", module_, part); }
  Status check(std::string_view part, const std::vector<uint64_t>& shape, const std::vector<int64_t>& wanted) const {
    if (std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end(),
                   [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); }))
      return {};
    return refuse(part, fmt::format("has shape [{}]; a matrix of {} rows of {} needs [{}]", fmt::join(shape, ", "),
                                    rows, columns, fmt::join(wanted, ", ")));
  }

  const Container& container_;
  const std::string module_;
};

}  // namespace baton
