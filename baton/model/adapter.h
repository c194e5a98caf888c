// LoRA adapters: for some matrices W of a model two narrow ones, so that y = W x + scale * B (A x). They stay what they
// are beside the model's own weights, whatever type those have: the Program gets ops for them (ModelBuilder::add_op),
// and a matrix without an adapter costs nothing.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/arch.h"

namespace baton {

// What a user asks for: a PEFT folder (adapter_config.json, adapter_model.safetensors) or a GGUF adapter.
struct AdapterChoice {
  std::filesystem::path path;
  float scale = 1;  // times the adapter's own
};

// "PATH" or "PATH=SCALE"; a path with a '=' needs a scale. kInvalidInput says what is wrong.
Result<AdapterChoice> parse_adapter(std::string_view text);

class Adapter {
 public:
  struct Pair {
    int64_t rank = 0, columns = 0, rows = 0;
    std::vector<float> a;  // [rank, columns]
    std::vector<float> b;  // [rows, rank], the scale multiplied in
    std::string name;      // the file's, for messages
    float scale = 1;       // what was multiplied
  };

  // Errors name the file and the field or tensor. What this does not compute is refused: DoRA, biases, other ranks or
  // scales for some modules, adapters of embeddings.
  static Result<Adapter> open(const AdapterChoice& choice);

  // The pair of a role's matrix, null when there is none. An Error where it is for files of the other kind, which order
  // this matrix's rows in another way.
  Result<const Pair*> find(const TensorRole& role, int32_t layer, bool model_is_gguf) const;
  // An Error where a GGUF adapter is for models of another architecture than this one's name in GGUF files.
  Status check_architecture(std::string_view gguf_name) const;
  const std::vector<Pair>& pairs() const { return pairs_; }
  const std::string& file() const { return file_; }
  uint64_t digest() const { return digest_; }  // of all pairs

 private:
  Status read_peft(const AdapterChoice& choice);
  Status read_gguf(const AdapterChoice& choice);
  Status add_pairs(const Container& container, float scale, std::string_view a_end, std::string_view b_end,
                   int64_t rank);

  std::string file_, architecture_;
  bool is_gguf_ = false;
  uint64_t digest_ = 0;
  std::vector<Pair> pairs_;
  std::map<std::string, size_t, std::less<>> index_;  // by the module's name in roles; GGUF: the tensor's
};

}  // namespace baton
