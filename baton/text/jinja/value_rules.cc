// What Python says of values: names of types, truth, equality and order; and values from JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "baton/text/jinja/value.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

tl::unexpected<Error> too_deep() {
  return fail(Code::kInvalidInput, fmt::format("values nested deeper than {}", kDepthMax));
}

Result<Value> from_json_at(Heap* heap, const nlohmann::ordered_json& json, bool content, int depth) {
  if (depth > kDepthMax) return too_deep();
  using JsonType = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case JsonType::null:
      return Value::none();
    case JsonType::boolean:
      return Value::of_bool(json.get<bool>());
    case JsonType::number_integer:
      return Value::of_int(json.get<int64_t>());
    case JsonType::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) {
        return fail(Code::kInvalidInput, fmt::format("the integer {} is above 64 bits", number));
      }
      return Value::of_int(static_cast<int64_t>(number));
    }
    case JsonType::number_float:
      return Value::of_float(json.get<double>());
    case JsonType::string: {
      const auto& bytes = json.get_ref<const std::string&>();
      if (!is_utf8(bytes)) return fail(Code::kInvalidInput, "a string is not UTF-8");
      if (bytes.size() > UINT32_MAX / 2) return fail(Code::kInvalidInput, "a string is above 2 GiB");
      return make_text(heap, bytes, content);
    }
    case JsonType::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        BATON_TRY(const Value value, from_json_at(heap, item, content, depth + 1));
        items.push_back(value);
      }
      return make_list(heap, items);
    }
    case JsonType::object: {
      std::vector<Dict::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        if (!is_utf8(key)) return fail(Code::kInvalidInput, "a key is not UTF-8");
        BATON_TRY(const Value value, from_json_at(heap, item, content, depth + 1));
        entries.push_back({make_text(heap, key, content), value});
      }
      return make_dict(heap, entries);
    }
    default:
      return fail(Code::kInvalidInput, "a value is not JSON");
  }
}

}  // namespace

Result<Value> from_json(Heap* heap, const nlohmann::ordered_json& json, bool content) {
  return from_json_at(heap, json, content, 0);
}

std::string_view type_name(const Value& value) {
  switch (value.type) {
    case Type::kUndefined:
      return "undefined";
    case Type::kNone:
      return "None";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kText:
      return "string";
    case Type::kList:
      switch (value.list->kind) {
        case ListKind::kList:
          return "list";
        case ListKind::kTuple:
          return "tuple";
        case ListKind::kGenerator:
          return "generator";
        case ListKind::kView:
          return "dict view";
        case ListKind::kRange:
          return "range";
      }
      return "list";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "namespace";
    case Type::kFunction:
      return "function";
    case Type::kLoop:
      return "loop";
  }
  return "unknown";
}

bool is_true(const Value& value) {
  switch (value.type) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
      return value.boolean;
    case Type::kInt:
      return value.integer != 0;
    case Type::kFloat:
      return value.real != 0.0;
    case Type::kText:
      return value.text->size > 0;
    case Type::kList:
      return value.list->kind == ListKind::kGenerator || value.list->count > 0;
    case Type::kDict:
      return value.dict->count > 0;
    default:
      return true;
  }
}

Result<bool> equal(const Value& a, const Value& b, int depth) {
  if (depth > kDepthMax) return too_deep();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_float() == b.as_float();
  }
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kText:
      return a.view() == b.view();
    case Type::kList: {
      if (a.list == b.list) return true;
      if (a.list->kind != b.list->kind || a.list->kind == ListKind::kGenerator) return false;
      if (a.list->count != b.list->count) return false;
      for (size_t i = 0; i < a.list->count; ++i) {
        BATON_TRY(const bool same, equal(a.list->items[i], b.list->items[i], depth + 1));
        if (!same) return false;
      }
      return true;
    }
    case Type::kDict: {
      if (a.dict == b.dict) return true;
      if (a.dict->count != b.dict->count) return false;
      for (const Dict::Entry& entry : a.dict->span()) {
        const Value* other = b.dict->find(entry.key);
        if (other == nullptr) return false;
        BATON_TRY(const bool same, equal(entry.value, *other, depth + 1));
        if (!same) return false;
      }
      return true;
    }
    case Type::kNamespace:
      return a.space == b.space;
    case Type::kFunction:
      return a.function == b.function;
    case Type::kLoop:
      return a.loop == b.loop;
    default:
      return false;
  }
}

Result<int> compare(const Value& a, const Value& b, int depth) {
  if (depth > kDepthMax) return too_deep();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
    if (std::isnan(a.as_float()) || std::isnan(b.as_float())) {
      return fail(Code::kInvalidInput, "NaN has no order");
    }
    return a.as_float() < b.as_float() ? -1 : a.as_float() > b.as_float();
  }
  if (a.is_text() && b.is_text()) {
    // The byte order of UTF-8 is the order of code points.
    const int order = a.view().compare(b.view());
    return order < 0 ? -1 : order > 0;
  }
  if (a.is(Type::kList) && b.is(Type::kList) && a.list->kind == b.list->kind &&
      (a.list->kind == ListKind::kList || a.list->kind == ListKind::kTuple)) {
    const size_t common = std::min(a.list->count, b.list->count);
    for (size_t i = 0; i < common; ++i) {
      BATON_TRY(const bool same, equal(a.list->items[i], b.list->items[i], depth + 1));
      if (!same) return compare(a.list->items[i], b.list->items[i], depth + 1);
    }
    return a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
  }
  return fail(Code::kInvalidInput, fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

}  // namespace baton::jinja
