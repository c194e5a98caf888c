// Typed access to GGUF metadata: any integer width is accepted, another kind or range is an error that names the key.
#include <fmt/format.h>

#include "baton/model/container.h"

namespace baton {
namespace {

std::string_view kind_of(const GgufValue& value) {
  static constexpr std::string_view kKinds[] = {"an unsigned integer", "an integer", "a real number",
                                                "a boolean",           "a text",     "an array"};
  return kKinds[value.index()];
}

tl::unexpected<Error> wrong_kind(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return fail(Code::kInvalidInput, fmt::format("key '{}' is {}, but must be {}", key, kind_of(value), wanted));
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &entries[found->second].second;
}

Result<std::optional<uint64_t>> GgufMetadata::unsigned_integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) {
    if (*number >= 0) return static_cast<uint64_t>(*number);
    return fail(Code::kInvalidInput, fmt::format("key '{}' is {}, but must not be negative", key, *number));
  }
  return wrong_kind(key, *value, "an unsigned integer");
}

Result<std::optional<double>> GgufMetadata::real(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  return wrong_kind(key, *value, "a real number");
}

Result<std::optional<bool>> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* truth = std::get_if<bool>(value)) return *truth;
  return wrong_kind(key, *value, "a boolean");
}

Result<std::optional<std::string_view>> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* words = std::get_if<std::string_view>(value)) return *words;
  return wrong_kind(key, *value, "a text");
}

Result<const GgufArray*> GgufMetadata::array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (const auto* items = std::get_if<std::shared_ptr<GgufArray>>(value)) return items->get();
  return wrong_kind(key, *value, "an array");
}

}  // namespace baton
