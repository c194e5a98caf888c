// What the files of an embedding model say of its vectors, as sentence-transformers writes them: modules.json (which
// steps), 1_Pooling/config.json, sentence_bert_config.json (the longest text, else tokenizer_config.json's; lower
// case), config_sentence_transformers.json (what is put in front of queries and documents, how many values a vector
// keeps). And where such a model runs.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "baton/model/model.h"

namespace baton {

// Which hidden states a text's vector is made of.
enum class Pooling : uint8_t { kMean, kFirst, kLast };
std::string_view to_string(Pooling pooling);

struct EmbedSpec {
  Pooling pooling = Pooling::kMean;
  bool normalized = true;                                   // vectors have length 1
  uint64_t tokens_max = 0;                                  // of a text, what the tokenizer puts around it included
  std::map<std::string, std::string, std::less<>> prompts;  // by name
  std::string default_prompt;                               // a name; empty: none
  bool lower_case = false;                                  // texts become that before the tokenizer sees them
  uint32_t dimensions = 0;                                  // values kept of a vector of length 1, the first; 0: all
};

// GGUF files say pooling_type. Without: the mean of an encoder's states, the last of a decoder's, normalised.
// kUnsupported names a step that is not computed here, kInvalidInput the file and the field.
Result<EmbedSpec> read_embed_spec(const Model& model);

// ---- Where it runs.

// A unit that a model could run on.
struct EmbedUnit {
  std::string name;     // as parse_unit reads it
  std::string refusal;  // why it cannot run the model, or is not on this machine; empty: it can
  bool emulated = false;
};
struct EmbedPlace {
  size_t unit = 0;  // index
  std::string why;
};
// Below this many bytes of weights a neural engine is the quickest and takes the least energy.
inline constexpr uint64_t kSmallEncoderBytes = 500'000'000;
// Small encoders on `ane` where it is, is no emulated one, and can; else `cpu`; else the first that can. Pure.
// kUnsupported, with every refusal, where none can.
Result<EmbedPlace> choose_embed_unit(bool encoder, uint64_t weight_bytes, std::span<const EmbedUnit> units);

}  // namespace baton
