// The values of the template language: Python's types as far as chat templates see them. All live in one Heap that is
// freed as a whole after a rendering, so values are small, immutable (but namespaces) and copied freely.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "baton/base/status.h"

namespace baton::jinja {

// Memory for one rendering. Counts what it gives out; the runtime checks the sum at every step.
class Heap {
 public:
  void* allocate(size_t bytes);
  template <class T>
  T* make(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T))) T(value);
  }
  template <class T>
  std::span<T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    T* to = static_cast<T*>(allocate(items.size_bytes()));
    if (!items.empty()) std::memcpy(static_cast<void*>(to), items.data(), items.size_bytes());
    return {to, items.size()};
  }
  size_t bytes_used() const { return bytes_used_; }

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t bytes_used_ = 0;
};

// UTF-8 that knows which of its bytes came from message content. A slice shares the bytes and the runs.
struct Text {
  struct Run {
    uint32_t end;  // byte offset in the text that the runs were made for
    bool content;
  };

  const char* data = "";
  uint32_t size = 0;
  bool content = false;  // of the whole text, when there are no runs
  bool markup = false;   // Markup: joins with plain text escape that text
  const Run* runs = nullptr;
  uint32_t run_count = 0;
  uint32_t run_offset = 0;  // where `data` begins in what the runs describe

  std::string_view view() const { return {data, size}; }
  Text slice(size_t begin, size_t count) const;
  bool content_at(size_t at) const;
  // f(std::string_view bytes, bool content) for each stretch of one origin.
  template <class F>
  void for_each_run(F f) const;
};

// Makes texts, keeping origins. Past `bytes_max` further text is dropped and `overflowed` says so.
class TextBuilder {
 public:
  explicit TextBuilder(size_t bytes_max) : bytes_max_(bytes_max) {}
  void append(std::string_view bytes, bool content);
  void append(const Text& text);
  void append_literal(std::string_view bytes) { append(bytes, false); }
  void append_char(uint32_t code, bool content);
  size_t size() const { return bytes_.size(); }
  bool overflowed() const { return overflowed_; }
  Text finish(Heap* heap) const;
  const std::string& bytes() const { return bytes_; }
  std::span<const Text::Run> runs() const { return runs_; }

 private:
  size_t bytes_max_;
  std::string bytes_;
  std::vector<Text::Run> runs_;
  bool overflowed_ = false;
};

struct List;
struct Dict;
struct Namespace;
struct Function;
struct Loop;

enum class Type : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kText, kList, kDict, kNamespace, kFunction, kLoop };

struct Value {
  Type type = Type::kUndefined;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const Text* text;  // kUndefined: what was not found, or null
    const List* list;
    const Dict* dict;
    Namespace* space;
    const Function* function;
    const Loop* loop;
  };

  Value() : text(nullptr) {}
  static Value undefined(const Text* name = nullptr) {
    Value v;
    v.text = name;
    return v;
  }
  static Value none() { return of(Type::kNone); }
  static Value of_bool(bool b) {
    Value v = of(Type::kBool);
    v.boolean = b;
    return v;
  }
  static Value of_int(int64_t i) {
    Value v = of(Type::kInt);
    v.integer = i;
    return v;
  }
  static Value of_float(double d) {
    Value v = of(Type::kFloat);
    v.real = d;
    return v;
  }
  static Value of_text(const Text* t) {
    Value v = of(Type::kText);
    v.text = t;
    return v;
  }
  static Value of_list(const List* l) {
    Value v = of(Type::kList);
    v.list = l;
    return v;
  }
  static Value of_dict(const Dict* d) {
    Value v = of(Type::kDict);
    v.dict = d;
    return v;
  }
  static Value of(Type type) {
    Value v;
    v.type = type;
    return v;
  }

  bool is(Type t) const { return type == t; }
  bool is_undefined() const { return type == Type::kUndefined; }
  bool is_none() const { return type == Type::kNone; }
  bool is_text() const { return type == Type::kText; }
  bool is_integral() const { return type == Type::kInt || type == Type::kBool; }  // bool is an int, as in Python
  bool is_number() const { return is_integral() || type == Type::kFloat; }
  int64_t as_int() const { return type == Type::kBool ? (boolean ? 1 : 0) : integer; }
  double as_float() const { return type == Type::kFloat ? real : static_cast<double>(as_int()); }
  std::string_view view() const { return text->view(); }
};

// kGenerator: what Python makes lazily; it can be iterated but has no length, index or text. kView: of a dict. kRange:
// has length and index, but its text (its three numbers) is not kept.
enum class ListKind : uint8_t { kList, kTuple, kGenerator, kView, kRange };

struct List {
  const Value* items = nullptr;
  size_t count = 0;
  ListKind kind = ListKind::kList;
  const Text* failure = nullptr;  // kGenerator: going through it fails with this; only then is it an error
  std::span<const Value> span() const { return {items, count}; }
  bool has_items() const { return kind == ListKind::kList || kind == ListKind::kTuple || kind == ListKind::kRange; }
};

// Insertion order; found by hash.
struct Dict {
  struct Entry {
    Value key, value;
  };
  const Entry* entries = nullptr;
  size_t count = 0;
  const uint32_t* buckets = nullptr;  // entry index + 1, 0: empty; [bucket_mask + 1]
  size_t bucket_mask = 0;

  std::span<const Entry> span() const { return {entries, count}; }
  const Value* find(const Value& key) const;  // null: not there, or not a key type
  const Value* find(std::string_view key) const;
};

struct Namespace {
  struct Entry {
    std::string_view name;
    Value value;
    Entry* next;
  };
  Entry* first = nullptr;
  Value* find(std::string_view name) const;
  void set(Heap* heap, std::string_view name, Value value);
};

// The `loop` of a for statement, one per iteration.
struct Loop {
  size_t index0 = 0;
  std::span<const Value> items;
  size_t depth0 = 0;
  const Value** changed = nullptr;  // what loop.changed saw last; shared by the iterations
};

// ---- Making values.

Value make_text(Heap* heap, std::string_view bytes, bool content = false);  // copies
Value make_text(Heap* heap, const Text& text);
Value make_list(Heap* heap, std::span<const Value> items, ListKind kind = ListKind::kList);
// Later entries win, at the place of the first, as in Python.
Value make_dict(Heap* heap, std::span<const Dict::Entry> entries);
// Every string becomes content. kInvalidInput: not UTF-8, nested too deep, integers outside 64 bits.
Result<Value> from_json(Heap* heap, const nlohmann::ordered_json& json, bool content);

// ---- Python's views of values. Depth-limited where they recurse: kInvalidInput.

std::string_view type_name(const Value& value);  // as Python names the type
bool is_true(const Value& value);
Result<bool> equal(const Value& a, const Value& b, int depth = 0);
// Negative, 0, positive; kInvalidInput for types without order.
Result<int> compare(const Value& a, const Value& b, int depth = 0);
// str() and repr().
Status append_str(const Value& value, TextBuilder* out);
Status append_repr(const Value& value, TextBuilder* out, int depth = 0);
std::string float_repr(double value);  // Python's repr: shortest that reads back

struct JsonFormat {
  int64_t indent = -1;  // -1: one line
  bool has_indent_text = false;
  Text indent_text;  // indent given as a string
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
// json.dumps. kInvalidInput for what JSON cannot hold.
Status append_json(const Value& value, const JsonFormat& format, TextBuilder* out, int depth = 0);

constexpr int kDepthMax = 100;  // of nested lists and dicts

template <class F>
void Text::for_each_run(F f) const {
  if (run_count == 0) {
    if (size > 0) f(view(), content);
    return;
  }
  size_t at = run_offset;
  const size_t end = size_t{run_offset} + size;
  // The first run that ends after `at`.
  const Run* low = runs;
  for (size_t count = run_count; count > 0;) {
    const size_t half = count / 2;
    if (low[half].end <= at) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  for (const Run* run = low; at < end; ++run) {
    const size_t stop = run->end < end ? run->end : end;
    f(std::string_view(data + (at - run_offset), stop - at), run->content);
    at = stop;
  }
}

}  // namespace baton::jinja
