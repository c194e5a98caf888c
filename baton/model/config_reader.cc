// Hyper-parameters from JSON and GGUF, with bounds.
#include "baton/model/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/model/container_text.h"
#include "baton/model/harmless.h"

namespace baton {
namespace {

tl::unexpected<Error> bad_field(const std::string& file, std::string_view field, const std::string& found,
                                const std::string& allowed) {
  return fail(Code::kInvalidInput, fmt::format("{}: field '{}' is {}; it must be {}", file, field, found, allowed));
}

std::string shortened(const Json& value) {
  std::string text = value.is_structured() ? std::string(value.type_name())
                                           : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Null, 0 and what is empty: the part of a model that such a field would switch on is not there. Not so false: it
// switches off what is on where nothing is said (is_causal), so that it takes a list of those that are off.
bool switches_nothing(const Json& value) {
  if (value.is_number()) return value.get<double>() == 0;
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}
bool switches_nothing(const GgufValue& value) {
  return std::visit(
      [](const auto& item) {
        using Item = std::decay_t<decltype(item)>;
        if constexpr (std::is_same_v<Item, bool>) {
          return false;
        } else if constexpr (std::is_arithmetic_v<Item>) {
          return item == 0;
        } else if constexpr (std::is_same_v<Item, std::string_view>) {
          return item.empty();
        } else {
          return std::visit(
              [](const auto& items) {
                using One = typename std::decay_t<decltype(items)>::value_type;
                return std::all_of(items.begin(), items.end(), [](const One& one) { return one == One{}; });
              },
              item->items);
        }
      },
      value);
}

bool is_false(const Json& value) { return value.is_boolean() && !value.get<bool>(); }
bool is_false(const GgufValue& value) {
  const bool* const truth = std::get_if<bool>(&value);
  return truth != nullptr && !*truth;
}

// An entry that ends with '*' stands for all names that begin with it, one that begins with '*' for all that end so.
bool is_listed(std::string_view name, std::span<const std::string_view> list) {
  return std::any_of(list.begin(), list.end(), [&](std::string_view entry) {
    if (entry.ends_with('*')) return name.starts_with(entry.substr(0, entry.size() - 1));
    if (entry.starts_with('*')) return name.ends_with(entry.substr(1));
    return name == entry;
  });
}

tl::unexpected<Error> unread(std::string what) {
  return fail(Code::kUnsupported, what +
                                      ", which nothing here reads: the answers could be another model's than the "
                                      "file's; remove it when it does not matter to the model");
}

}  // namespace

const Json* ConfigReader::value(std::string_view field) const {
  read_.emplace(field);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(field);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::absent(std::string_view field) const { return !object_.is_object() || !object_.contains(field); }

Result<int32_t> ConfigReader::integer(std::string_view field, int64_t low, int64_t high,
                                      std::optional<int32_t> fallback) const {
  const std::string allowed = fmt::format("an integer from {} to {}", low, high);
  const Json* value = this->value(field);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return bad_field(file_, field, "missing", allowed);
  }
  if (!value->is_number_integer()) return bad_field(file_, field, shortened(*value), allowed);
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return bad_field(file_, field, shortened(*value), allowed);
  }
  const int64_t number = value->get<int64_t>();
  if (number < low || number > high) return bad_field(file_, field, std::to_string(number), allowed);
  return static_cast<int32_t>(number);
}

Result<float> ConfigReader::real(std::string_view field, double low, double high, std::optional<float> fallback) const {
  const std::string allowed = fmt::format("a number from {:g} to {:g}", low, high);
  const Json* value = this->value(field);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return bad_field(file_, field, "missing", allowed);
  }
  if (!value->is_number()) return bad_field(file_, field, shortened(*value), allowed);
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) return bad_field(file_, field, fmt::format("{:g}", number), allowed);
  return static_cast<float>(number);
}

Result<bool> ConfigReader::boolean(std::string_view field, bool fallback) const {
  const Json* value = this->value(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return bad_field(file_, field, shortened(*value), "true or false");
  return value->get<bool>();
}

Result<std::string> ConfigReader::text(std::string_view field, std::string_view fallback) const {
  const Json* value = this->value(field);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return bad_field(file_, field, shortened(*value), "a string");
  return value->get<std::string>();
}

Result<std::vector<float>> ConfigReader::reals(std::string_view field) const {
  const Json* value = this->value(field);
  if (value == nullptr) return bad_field(file_, field, "missing", "an array of numbers");
  if (!value->is_array()) return bad_field(file_, field, shortened(*value), "an array of numbers");
  std::vector<float> out;
  for (const Json& item : *value) {
    if (!item.is_number()) return bad_field(file_, field, "an array of other values", "an array of numbers");
    out.push_back(item.get<float>());
  }
  return out;
}

Status ConfigReader::refuse_unread(std::span<const std::string_view> harmless) const {
  if (!object_.is_object()) return {};
  for (const auto& [field, value] : object_.items()) {
    if (read_.contains(field) || switches_nothing(value) || is_listed(field, harmless)) continue;
    if (is_false(value) && is_listed(field, off_by_default())) continue;
    return unread(fmt::format("{}: field '{}' is {}", file_, shown(field), shortened(value)));
  }
  return {};
}

Result<int32_t> GgufReader::integer(std::string_view key, int64_t low, int64_t high,
                                    std::optional<int32_t> fallback) const {
  const std::string& name = asked(key);
  const std::string allowed = fmt::format("an integer from {} to {}", low, high);
  auto value = container_.gguf.unsigned_integer(name);
  if (!value) return fail(std::move(value).error().in(container_.path.string()));
  if (!*value) {
    if (fallback) return *fallback;
    return bad_field(container_.path.string(), name, "missing", allowed);
  }
  const uint64_t number = **value;
  if (number > static_cast<uint64_t>(high) || static_cast<int64_t>(number) < low) {
    return bad_field(container_.path.string(), name, std::to_string(number), allowed);
  }
  return static_cast<int32_t>(number);
}

Result<float> GgufReader::real(std::string_view key, double low, double high, std::optional<float> fallback) const {
  const std::string& name = asked(key);
  const std::string allowed = fmt::format("a number from {:g} to {:g}", low, high);
  auto value = container_.gguf.real(name);
  if (!value) return fail(std::move(value).error().in(container_.path.string()));
  if (!*value) {
    if (fallback) return *fallback;
    return bad_field(container_.path.string(), name, "missing", allowed);
  }
  if (!(**value >= low && **value <= high)) {
    return bad_field(container_.path.string(), name, fmt::format("{:g}", **value), allowed);
  }
  return static_cast<float>(**value);
}

Result<std::vector<int64_t>> GgufReader::integers(std::string_view key) const {
  const std::string& name = asked(key);
  auto array = container_.gguf.array(name);
  if (!array) return fail(std::move(array).error().in(container_.path.string()));
  std::vector<int64_t> out;
  if (*array == nullptr) return out;
  const bool numbers = std::visit(
      [&](const auto& items) {
        using Item = std::decay_t<decltype(items[0])>;
        if constexpr (std::is_integral_v<Item> && !std::is_same_v<Item, bool>) {
          for (const auto item : items) out.push_back(static_cast<int64_t>(item));
          return true;
        } else if constexpr (std::is_same_v<std::decay_t<decltype(items)>, std::vector<bool>>) {
          for (const bool item : items) out.push_back(item ? 1 : 0);
          return true;
        } else {
          return false;
        }
      },
      (*array)->items);
  if (!numbers) return bad_field(container_.path.string(), name, "an array of another kind", "an array of integers");
  return out;
}

bool GgufReader::is_list(std::string_view key) const {
  const auto array = container_.gguf.array(name(key));
  return array && *array != nullptr;
}

Result<bool> GgufReader::boolean(std::string_view key, bool fallback) const {
  auto value = container_.gguf.boolean(asked(key));
  if (!value) return fail(std::move(value).error().in(container_.path.string()));
  return value->value_or(fallback);
}

Result<std::string> GgufReader::text(std::string_view key, std::string_view fallback) const {
  auto value = container_.gguf.text(asked(key));
  if (!value) return fail(std::move(value).error().in(container_.path.string()));
  return std::string(value->value_or(fallback));
}

Status GgufReader::refuse_unread(std::span<const std::string_view> harmless) const {
  for (const auto& [key, value] : container_.gguf.entries) {
    if (!key.starts_with(prefix_) || read_.contains(key) || switches_nothing(value)) continue;
    const std::string_view name = key.substr(prefix_.size());
    if (is_listed(name, harmless) || (is_false(value) && is_listed(name, off_by_default()))) continue;
    return unread(
        fmt::format("{}: key '{}' is {}", container_.path.string(), shown(key), is_false(value) ? "false" : "set"));
  }
  return {};
}

Result<std::vector<int32_t>> read_stop_ids(const Container& container, const Json& text_config) {
  std::vector<int32_t> ids;
  const std::string file = container.path.string();
  const auto add = [&](int64_t id) -> Status {
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return bad_field(file, "eos_token_id", std::to_string(id), "a token id");
    }
    if (std::find(ids.begin(), ids.end(), static_cast<int32_t>(id)) == ids.end())
      ids.push_back(static_cast<int32_t>(id));
    return {};
  };
  if (container.kind == ContainerKind::kGguf) {
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      auto id = container.gguf.unsigned_integer(key);
      if (!id) return fail(std::move(id).error().in(file));
      if (*id) BATON_OK(add(static_cast<int64_t>(std::min<uint64_t>(**id, uint64_t{1} << 40))));
    }
    BATON_TRY(const std::vector<int64_t> all, GgufReader(container, "tokenizer.ggml").integers("eos_token_ids"));
    for (const int64_t id : all) BATON_OK(add(id));
    return ids;
  }
  for (const Json* object : {&container.generation_config, &text_config, &container.config}) {
    if (!object->is_object()) continue;
    const auto found = object->find("eos_token_id");
    if (found == object->end() || found->is_null()) continue;
    const Json list = found->is_array() ? *found : Json::array({*found});
    for (const Json& item : list) {
      if (!item.is_number_integer())
        return bad_field(file, "eos_token_id", shortened(*found), "a token id or a list of them");
      BATON_OK(add(item.get<int64_t>()));
    }
  }
  return ids;
}

}  // namespace baton
