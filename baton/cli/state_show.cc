// What a state file holds: header, makers, tokens and sections, without a model.
#include "baton/cli/state_show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "baton/base/file.h"
#include "baton/cli/command.h"
#include "baton/cli/state_key.h"
#include "baton/state/seal_list.h"
#include "baton/tools/foreign.h"

namespace baton::cli {
namespace {

OrderedJson section_json(SlotKind kind, int32_t layer, DType type, const Dims& dims, uint64_t bytes) {
  return {{"layer", layer}, {"kind", to_string(kind)}, {"type", to_string(type)}, {"dims", dims}, {"bytes", bytes}};
}

OrderedJson listing_json(const SealListing& listing, const StateKey* key) {
  OrderedJson json;
  json["format"] = "seal";
  json["mac"] = !listing.keyed ? "none" : key == nullptr ? "not checked: give --state-key" : "right";
  json["position"] = listing.position;
  json["fingerprint_model"] = fmt::format("{:016x}", listing.identity.model);
  json["fingerprint_quantization"] = fmt::format("{:016x}", listing.identity.quantization);
  json["fingerprint_tokenizer"] = fmt::format("{:016x}", listing.identity.tokenizer);
  json["makers"] = OrderedJson::array();
  for (size_t i = 0; i < listing.provenance.makers.size(); ++i) {
    const StateMaker& maker = listing.provenance.makers[i];
    json["makers"].push_back({{"unit", maker.unit},
                              {"arithmetic", maker.arithmetic},
                              {"emulated", is_emulated(maker.arithmetic)},
                              {"tokens", listing.provenance.tokens_of(i)}});
  }
  json["steps"] = to_lines(listing.provenance);
  json["tokens"] = listing.tokens;
  json["sections"] = OrderedJson::array();
  for (const SealedSection& section : listing.sections)
    json["sections"].push_back(
        section_json(section.kind, section.layer, section.dtype, section.dims, section.bytes.size()));
  return json;
}

OrderedJson listing_json(const ForeignState& state) {
  OrderedJson json;
  json["format"] = to_string(state.format);
  json["position"] = state.position;
  for (const auto& [name, value] : state.facts) json["header"][name] = value;
  json["tokens"] = state.tokens.empty() ? OrderedJson(nullptr) : OrderedJson(state.tokens);
  json["logits"] = state.logits.size() / sizeof(float);
  json["sections"] = OrderedJson::array();
  for (const ForeignSection& section : state.sections) {
    OrderedJson item = section_json(section.kind, section.layer, section.dtype, section.dims, section.bytes.size());
    if (section.ring_start != 0) item["ring_start"] = section.ring_start;
    json["sections"].push_back(std::move(item));
  }
  return json;
}

// The first and the last; JSON has all.
std::string tokens_text(const OrderedJson& tokens) {
  constexpr size_t kFirst = 8, kLast = 4;
  if (!tokens.is_array()) return "not in the file";
  std::string text = fmt::format("{}:", tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == kFirst && tokens.size() > kFirst + kLast) {
      text += " ...";
      i = tokens.size() - kLast;
    }
    text += " " + tokens[i].dump();
  }
  return text;
}

std::string listing_text(const OrderedJson& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    if (key == "sections" || key == "makers") continue;
    if (key == "steps") {
      for (const auto& line : value) text += fmt::format("{:<26} {}\n", "made by", line.get<std::string>());
      continue;
    }
    if (key == "tokens") {
      text += fmt::format("{:<26} {}\n", key, tokens_text(value));
      continue;
    }
    text += fmt::format("{:<26} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const auto& section : json["sections"]) {
    text += fmt::format("  layer {:<4} {:<10} {:<5} {:<22} {:>12} bytes\n", section["layer"].dump(),
                        section["kind"].get<std::string>(), section["type"].get<std::string>(), section["dims"].dump(),
                        section["bytes"].dump());
  }
  return text;
}

}  // namespace

int show_state(const ShowStateFlags& flags) {
  const auto file = MappedFile::open(flags.in);
  if (!file) return report(file.error());
  OrderedJson json;
  const auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
  if (is_seal(file->bytes())) {
    const auto listing = list_seal(file->bytes());
    if (!listing) return report(Error(listing.error()).in(flags.in));
    if (*key) {
      if (const Status known = check_mac(file->bytes(), **key); !known)
        return report(Error(known.error()).in(flags.in));
    }
    json = listing_json(*listing, pointer_to(*key));
  } else {
    const auto state = parse_foreign(file->bytes());
    if (!state) return report(Error(state.error()).in(flags.in));
    json = listing_json(*state);
  }
  if (flags.json) {
    print_json(json);
  } else {
    print(listing_text(json));
  }
  return kOk;
}

}  // namespace baton::cli
