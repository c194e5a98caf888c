// Vectors of texts: an embedding model (an encoder, or a decoder whose last hidden state stands for the text) on one
// unit, without an engine: a text goes through in one step and nothing is kept. Thread-safe: calls from several threads
// take turns, batch by batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/api/embed_spec.h"
#include "baton/api/text_model.h"
#include "baton/unit/unit.h"

namespace baton {

struct EmbedderOptions {
  std::filesystem::path model;
  std::vector<AdapterChoice> adapters = {};  // applied to it
  std::string unit = {};                     // as parse_unit reads it; empty: choose_embed_unit among `units`
  std::vector<std::string> units = {};       // to choose from; empty: all that are built in
  uint32_t threads = 0;                      // of a unit whose options say nothing; 0: the unit's choice
  std::optional<Pooling> pooling = {};       // instead of what the model's files say
  std::optional<bool> normalized = {};
  std::string cut_word = {};  // what asks for `truncates`, for the error of a text that is too long; empty: none
};

// A text; or its tokens, taken as they are: nothing is put around them.
using EmbedInput = std::variant<std::string, std::vector<int32_t>>;

struct EmbedRequest {
  std::vector<EmbedInput> inputs;
  // Values of a vector, its first, made of length 1 again where vectors have it (Matryoshka models are made for it);
  // 0: as EmbedSpec has it.
  uint32_t dimensions = 0;
  bool truncates = false;  // what is longer than tokens_max is cut; else it is an error
  // Of EmbedSpec::prompts, put in front of each text; empty: the model's default. `no_prompt`: none.
  std::string prompt = {};
  bool no_prompt = false;
  size_t first = 0;  // what errors call the first input
};

struct Embeddings {
  std::vector<std::vector<float>> vectors;  // in the order of the inputs
  std::vector<uint64_t> tokens;             // of each, as they were computed
  uint64_t tokens_all = 0;
};

// Inputs of a request, and tokens of all of them together.
inline constexpr size_t kEmbedInputsMax = 2048;
inline constexpr uint64_t kEmbedTokensMax = 1'000'000;

class Embedder {
 public:
  // Errors of loading, and of read_embed_spec and choose_embed_unit.
  static Result<std::unique_ptr<Embedder>> open(const EmbedderOptions& options);

  const Model& model() const { return *text_.model; }
  const TextModel& text() const { return text_; }
  const EmbedSpec& spec() const { return spec_; }
  uint32_t width() const { return static_cast<uint32_t>(model().program.output_width); }
  // Values of a vector, where a request does not say.
  uint32_t dimensions() const { return spec_.dimensions > 0 ? std::min(spec_.dimensions, width()) : width(); }
  bool encoder() const { return model().program.whole_sequence; }
  const std::string& placed() const { return placed_; }  // where it runs, and why there
  Placement placement() const { return executor_->placement(); }

  // Texts of about one length share a step. kInvalidInput names the input ("input 3: ..."). `cancelled` is asked before
  // each step: true ends it with kCancelled.
  Result<Embeddings> embed(const EmbedRequest& request, const std::function<bool()>& cancelled = {});

  // How well each document answers the query: the cosine of their vectors, with the prompts "query" and "document" (or
  // "passage") where the model has them, and `asked` names none. In the order of the documents. `tokens`, when not
  // null: of all texts. What `asked` has in its inputs is not read.
  Result<std::vector<float>> rerank(const std::string& query, std::span<const std::string> documents,
                                    const EmbedRequest& asked, uint64_t* tokens = nullptr,
                                    const std::function<bool()>& cancelled = {});
  Result<std::vector<float>> rerank(const std::string& query, std::span<const std::string> documents, bool truncates,
                                    uint64_t* tokens = nullptr, const std::function<bool()>& cancelled = {});

 private:
  Embedder(TextModel text, EmbedSpec spec) : text_(std::move(text)), spec_(std::move(spec)) {}
  Status load(const EmbedderOptions& options);
  Result<std::vector<int32_t>> tokens_of(const EmbedInput& input, std::string_view prompt, bool truncates) const;
  Result<std::string_view> prompt_of(const EmbedRequest& request) const;
  // Vectors of some texts, in one step each piece of at most so many.
  Status run_batch(std::span<const std::vector<int32_t>* const> texts, std::span<std::vector<float>* const> out);
  Status run_in_pieces(const std::vector<int32_t>& text, std::vector<float>& out);
  void pool(std::span<const float> rows, std::vector<float>& out) const;

  TextModel text_;
  EmbedSpec spec_;
  std::string placed_, cut_word_;
  std::mutex mutex_;  // of the executor
  std::unique_ptr<Unit> unit_;
  std::unique_ptr<Executor> executor_;
  std::vector<float> rows_;
};

// Makes a vector's length 1; one of zeros stays as it is.
void normalize_length(std::span<float> vector);
// Of vectors of one size; 0 where one has no length.
float cosine(std::span<const float> a, std::span<const float> b);

}  // namespace baton
