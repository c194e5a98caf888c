// What is known of a model without loading it: from its file, and from how it is asked for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/text_model.h"

namespace baton::serve {

struct ModelFacts {
  std::string name;                       // what the interface calls it: never a path
  std::vector<std::string> aliases = {};  // other names it answers to
  std::vector<std::string> stops = {};    // default stop strings
  bool vectors = false;                   // it makes vectors, and writes no text
  std::string prefill_unit = {}, decode_unit = {}, strategy = {};
  std::vector<std::string> emulated_units = {};  // of those that are loaded for it; with them its figures are emulated
  // Of its file; facts_of fills these.
  std::string title = {};         // general.name, or the folder's
  std::string family = {};        // "qwen3"
  std::string format = {};        // "gguf", "safetensors"
  std::string quantization = {};  // the type that most of the matrices' bytes have
  std::string digest = {};        // 64 hex digits: of shapes, ends of weights, template; not of every byte
  std::string chat_template = {};
  bool tools = false, thinking = false;  // its template shows them, knows it
  uint64_t parameters = 0, context_tokens = 0, width = 0;
  int64_t created = 0;  // seconds since 1970: when the server learned of it
  // What it takes of a budget while it is loaded: weights as its units keep them (none told: as the file has them), and
  // of states the limit.
  uint64_t weight_bytes = 0, state_bytes_max = 0;  // the first: in the file
  std::optional<uint64_t> kept_bytes = {};
  uint64_t device_kept_bytes = 0;  // of these, in memory of devices

  uint64_t loaded_bytes() const { return kept_bytes.value_or(weight_bytes); }
  uint64_t bytes() const { return loaded_bytes() + state_bytes_max; }
  bool is_called(std::string_view other) const;
  bool is_emulated(std::string_view unit) const;
};

// Where there are emulated units, `emulated_units` beside what is said of a model: its times, speeds, energy and device
// memory are the emulators'. The one way in which an object of a model says so.
void say_emulated(nlohmann::ordered_json& of, const std::vector<std::string>& emulated_units);

// `context`: of the server, 0: the model's.
ModelFacts facts_of(const TextModel& text, uint64_t context);

}  // namespace baton::serve
