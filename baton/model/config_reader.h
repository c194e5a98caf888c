// Typed, bounded reading of hyper-parameters from config.json or GGUF metadata. Errors name the file, the field, the
// value found and what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/container.h"

namespace baton {

// Over a JSON object (config.json's text_config or root).
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string file) : object_(object), file_(std::move(file)) {}

  bool has(std::string_view field) const;
  // In [low, high]; the default when absent or null, an Error when absent without one.
  Result<int32_t> integer(std::string_view field, int64_t low, int64_t high,
                          std::optional<int32_t> fallback = {}) const;
  // Finite, in [low, high].
  Result<float> real(std::string_view field, double low, double high, std::optional<float> fallback = {}) const;
  Result<bool> boolean(std::string_view field, bool fallback) const;
  Result<std::string> text(std::string_view field, std::string_view fallback) const;

 private:
  const Json* find(std::string_view field) const;
  const Json& object_;
  std::string file_;
};

// Over GGUF keys under "<architecture>.".
class GgufReader {
 public:
  GgufReader(const Container& container, std::string architecture)
      : container_(container), prefix_(std::move(architecture) + ".") {}

  Result<int32_t> integer(std::string_view key, int64_t low, int64_t high, std::optional<int32_t> fallback = {}) const;
  Result<float> real(std::string_view key, double low, double high, std::optional<float> fallback = {}) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;  // empty when absent

 private:
  const Container& container_;
  std::string prefix_;
};

// Stop tokens of generation_config.json / config.json (one id or a list), or of tokenizer.ggml.{eos,eot,eom}_token_id.
Result<std::vector<int32_t>> read_stop_ids(const Container& container, const Json& text_config);

}  // namespace baton
