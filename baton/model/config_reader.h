// Typed, bounded reading of hyper-parameters from config.json or GGUF metadata. Errors name the file, the field, the
// value found and what is allowed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/container.h"

namespace baton {

// Over a JSON object (config.json's text_config or root), which outlives the reader. Remembers what was asked for.
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string file) : object_(object), file_(std::move(file)) {}

  // Null when absent or null.
  const Json* value(std::string_view field) const;
  // Whether the object has no such field: one that is null is there, and may say another thing than none.
  bool absent(std::string_view field) const;
  // In [low, high]; the default when absent or null, an Error when absent without one.
  Result<int32_t> integer(std::string_view field, int64_t low, int64_t high,
                          std::optional<int32_t> fallback = {}) const;
  // Finite, in [low, high].
  Result<float> real(std::string_view field, double low, double high, std::optional<float> fallback = {}) const;
  Result<bool> boolean(std::string_view field, bool fallback) const;
  Result<std::string> text(std::string_view field, std::string_view fallback) const;
  Result<std::vector<float>> reals(std::string_view field) const;  // an array of numbers; an Error when absent

  // An Error naming a field that nobody asked for: what it stands for would be left out in silence. Fields in
  // `harmless`, values that switch nothing on (null, 0, empty), and false where that is the default (harmless.h), pass.
  Status refuse_unread(std::span<const std::string_view> harmless) const;

 private:
  const Json& object_;
  std::string file_;
  mutable std::set<std::string, std::less<>> read_;
};

// Over GGUF keys under "<architecture>.". Remembers what was asked for.
class GgufReader {
 public:
  GgufReader(const Container& container, std::string architecture)
      : container_(container), prefix_(std::move(architecture) + ".") {}

  Result<int32_t> integer(std::string_view key, int64_t low, int64_t high, std::optional<int32_t> fallback = {}) const;
  Result<float> real(std::string_view key, double low, double high, std::optional<float> fallback = {}) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;  // empty when absent
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key, std::string_view fallback) const;
  bool is_list(std::string_view key) const;  // whether there is an array
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }

  // As ConfigReader's, for the keys of this architecture.
  Status refuse_unread(std::span<const std::string_view> harmless) const;

 private:
  const std::string& asked(std::string_view key) const { return *read_.insert(name(key)).first; }
  const Container& container_;
  std::string prefix_;
  mutable std::set<std::string, std::less<>> read_;
};

// An array of all ends of an answer, for files with more than the three that have keys of their own.
inline constexpr char kStopIdsKey[] = "tokenizer.ggml.eos_token_ids";
// Stop tokens of generation_config.json / config.json (one id or a list), or of tokenizer.ggml.{eos,eot,eom}_token_id
// and kStopIdsKey.
Result<std::vector<int32_t>> read_stop_ids(const Container& container, const Json& text_config);

}  // namespace baton
