// Values: memory, texts with origins, dictionaries, Python's equality, order and truth.
#include "baton/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "baton/text/hash.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 10;

tl::unexpected<Error> too_deep() {
  return fail(Code::kInvalidInput, fmt::format("values nested deeper than {}", kDepthMax));
}

// Keys that are equal in Python hash equal here. False: not hashable, or a type that no template uses as a key.
bool hash_key(const Value& key, uint64_t* hash) {
  switch (key.type) {
    case Type::kText:
      *hash = hash_bytes(key.view(), table_seed());
      return true;
    case Type::kNone:
      *hash = 2;
      return true;
    case Type::kBool:
    case Type::kInt:
      *hash = mix_bits(static_cast<uint64_t>(key.as_int()) ^ table_seed());
      return true;
    case Type::kFloat:
      if (key.real == std::floor(key.real) && std::fabs(key.real) < 9e18) {
        *hash = mix_bits(static_cast<uint64_t>(static_cast<int64_t>(key.real)) ^ table_seed());
      } else {
        *hash = mix_bits(std::bit_cast<uint64_t>(key.real) ^ table_seed());
      }
      return true;
    default:
      return false;
  }
}

bool same_key(const Value& a, const Value& b) {
  if (a.is_text() || b.is_text()) return a.is_text() && b.is_text() && a.view() == b.view();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  return a.as_float() == b.as_float();
}

}  // namespace

void* Heap::allocate(size_t bytes) {
  bytes = (bytes + 15) & ~size_t{15};
  bytes_used_ += bytes;
  if (bytes > left_) {
    const size_t block = std::max(bytes, kBlockBytes);
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block));
    if (bytes >= kBlockBytes) return blocks_.back().get();
    next_ = blocks_.back().get();
    left_ = block;
  }
  void* given = next_;
  next_ += bytes;
  left_ -= bytes;
  return given;
}

Text Text::slice(size_t begin, size_t count) const {
  Text part = *this;
  part.data = data + begin;
  part.size = static_cast<uint32_t>(count);
  part.run_offset = static_cast<uint32_t>(run_offset + begin);
  return part;
}

bool Text::content_at(size_t at) const {
  if (run_count == 0) return content;
  const size_t where = run_offset + at;
  const Run* found = std::partition_point(runs, runs + run_count, [&](const Run& run) { return run.end <= where; });
  return found != runs + run_count && found->content;
}

void TextBuilder::append(std::string_view bytes, bool content) {
  if (bytes.empty() || overflowed_) return;
  if (bytes.size() > bytes_max_ - bytes_.size()) {
    overflowed_ = true;
    return;
  }
  bytes_.append(bytes);
  const auto end = static_cast<uint32_t>(bytes_.size());
  if (!runs_.empty() && runs_.back().content == content) {
    runs_.back().end = end;
  } else {
    runs_.push_back({end, content});
  }
}

void TextBuilder::append(const Text& text) {
  text.for_each_run([&](std::string_view bytes, bool is_content) { append(bytes, is_content); });
}

void TextBuilder::append_char(uint32_t code, bool content) {
  std::string bytes;
  append_utf8(code, &bytes);
  append(bytes, content);
}

Text TextBuilder::finish(Heap* heap) const {
  Text text;
  text.data = heap->copy(std::span<const char>(bytes_)).data();
  text.size = static_cast<uint32_t>(bytes_.size());
  if (runs_.size() == 1) {
    text.content = runs_[0].content;
  } else if (runs_.size() > 1) {
    text.runs = heap->copy(std::span<const Text::Run>(runs_)).data();
    text.run_count = static_cast<uint32_t>(runs_.size());
  }
  return text;
}

Value make_text(Heap* heap, std::string_view bytes, bool content) {
  Text text;
  text.data = heap->copy(std::span<const char>(bytes)).data();
  text.size = static_cast<uint32_t>(bytes.size());
  text.content = content;
  return Value::of_text(heap->make(text));
}

Value make_text(Heap* heap, const Text& text) { return Value::of_text(heap->make(text)); }

Value make_list(Heap* heap, std::span<const Value> items, ListKind kind) {
  return Value::of_list(heap->make(List{heap->copy(items).data(), items.size(), kind, nullptr}));
}

Value make_dict(Heap* heap, std::span<const Dict::Entry> entries) {
  std::vector<Dict::Entry> kept;
  kept.reserve(entries.size());
  const size_t bucket_count = std::bit_ceil(std::max<size_t>(4, entries.size() * 2));
  auto* buckets = static_cast<uint32_t*>(heap->allocate(bucket_count * sizeof(uint32_t)));
  std::fill_n(buckets, bucket_count, 0u);
  for (const Dict::Entry& entry : entries) {
    uint64_t hash = 0;
    if (!hash_key(entry.key, &hash)) continue;  // callers refuse such keys
    for (size_t i = hash & (bucket_count - 1);; i = (i + 1) & (bucket_count - 1)) {
      if (buckets[i] == 0) {
        kept.push_back(entry);
        buckets[i] = static_cast<uint32_t>(kept.size());
        break;
      }
      if (same_key(kept[buckets[i] - 1].key, entry.key)) {
        kept[buckets[i] - 1].value = entry.value;
        break;
      }
    }
  }
  Dict dict;
  dict.count = kept.size();
  dict.entries = heap->copy(std::span<const Dict::Entry>(kept)).data();
  dict.buckets = buckets;
  dict.bucket_mask = bucket_count - 1;
  return Value::of_dict(heap->make(dict));
}

const Value* Dict::find(const Value& key) const {
  uint64_t hash = 0;
  if (count == 0 || !hash_key(key, &hash)) return nullptr;
  for (size_t i = hash & bucket_mask;; i = (i + 1) & bucket_mask) {
    if (buckets[i] == 0) return nullptr;
    const Entry& entry = entries[buckets[i] - 1];
    if (same_key(entry.key, key)) return &entry.value;
  }
}

const Value* Dict::find(std::string_view key) const {
  Text text;
  text.data = key.data();
  text.size = static_cast<uint32_t>(key.size());
  return find(Value::of_text(&text));
}

Value* Namespace::find(std::string_view name) const {
  for (Entry* entry = first; entry != nullptr; entry = entry->next) {
    if (entry->name == name) return &entry->value;
  }
  return nullptr;
}

void Namespace::set(Heap* heap, std::string_view name, Value value) {
  if (Value* found = find(name)) {
    *found = value;
    return;
  }
  Entry** last = &first;
  while (*last != nullptr) last = &(*last)->next;
  *last = heap->make(Entry{name, value, nullptr});
}

namespace {

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
