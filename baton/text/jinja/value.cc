// Values in memory: the heap, texts with origins, dictionaries.
#include "baton/text/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "baton/text/hash.h"
#include "baton/text/utf8.h"

namespace baton::jinja {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 10;

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

}  // namespace baton::jinja
