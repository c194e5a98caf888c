// What can be chosen about a unit: a list of options as data, and values checked against it. Nothing else changes what
// a unit computes: no environment variable does.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/quant/format.h"

namespace baton {

// One option, as `baton units --help-options` shows it.
struct UnitOption {
  std::string_view key;
  std::string values = {};                      // "on|off": one of these; a text: what it is, "FOLDER"; not of numbers
  uint64_t least = 0, most = 0;                 // a whole number from here to here; `most` 0: no number
  std::string_view meaning = {};                // with the unit of measure
  std::string otherwise = {};                   // the default, in words
  bool (*accepts)(std::string_view) = nullptr;  // of a text
  bool lists = false;                           // a text that goes on behind a comma, up to the next word with a "="
  bool bare = false;                            // its value may stand alone, as "cuda:1"; of one option of a unit

  static UnitOption one_of(std::string_view key, std::string values, std::string_view meaning, std::string otherwise);
  static UnitOption number(std::string_view key, uint64_t least, uint64_t most, std::string_view meaning,
                           std::string otherwise);
  static UnitOption text(
      std::string_view key, std::string what, std::string_view meaning, std::string otherwise,
      bool (*accepts)(std::string_view) = [](std::string_view text) { return !text.empty(); });
  // "on|off", "1..1024", "1..", "FOLDER".
  std::string range() const;
};
// Threads of the host, for units that have some, and the cores they are kept on (baton/base/affinity.h).
UnitOption threads_option();
UnitOption cores_option();
// Types of keys and values (state/rows.h), for units that have several.
inline constexpr std::string_view kKvOption = "kv";
UnitOption kv_option(std::string otherwise);

class UnitOptions;
// What they say of kv_option.
Result<DType> kv_of(const UnitOptions& given, DType otherwise);
// In the name of an arithmetic (unit.h): `what`, with the type where it is not the unit's own. And back: the word,
// empty where the name has none.
std::string with_kv_word(std::string what, DType kv, DType own);
std::string_view kv_word_of(std::string_view arithmetic);
// How much further than its arithmetic alone types of keys and values may bring a unit's logits from those of `ref`
// with its own, f32. Estimates; docs/kv.md has what was measured.
float kv_logit_tolerance(DType kv);

// Values by key: what was given, nothing else. A value has no comma in it, but a list's.
class UnitOptions {
 public:
  // From "key=value,key=value". kInvalidInput names the unit and the key, and lists what there is.
  static Result<UnitOptions> parse(std::string_view unit, std::string_view words, std::span<const UnitOption> known);

  // Empty, 0: not given.
  std::string_view text(std::string_view key) const;
  uint64_t number(std::string_view key) const;
  // As if it had not been given.
  void leave_out(std::string_view key) {
    std::erase_if(values_, [&](const auto& value) { return value.first == key; });
  }
  // In order of keys: equal for equal options. What may stand alone does.
  std::string words() const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::string bare_;  // the key of the value that stands alone
};

}  // namespace baton
