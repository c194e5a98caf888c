// Texts to tokens, tokens to steps, hidden states to vectors.
#include "baton/api/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <system_error>

#include "baton/api/units.h"

namespace baton {
namespace {

// Rows of hidden states of a step, where all of them are asked for.
constexpr uint64_t kBatchTokens = 4096;
constexpr size_t kBatchTexts = 64;

// What a unit says to a model.
EmbedUnit asked(const std::string& name, const Model& model) {
  const auto unit = create_unit(name);
  if (!unit) return {name, unit.error().message};
  const Caps& caps = (*unit)->caps();
  if (caps.decode_seats_max == 0) return {name, fmt::format("{}: only prefills for others", name)};
  const Status can = check_program(name, caps, model.program);
  return {name, can ? std::string() : can.error().message, caps.emulated};
}

std::vector<std::string> names_of_units() {
  std::vector<std::string> names;
  for (const UnitEntry* entry : unit_entries()) names.emplace_back(entry->name);
  return names;
}

}  // namespace

void normalize_length(std::span<float> vector) {
  double squares = 0;
  for (const float value : vector) squares += double{value} * value;
  if (squares <= 0) return;
  const double scale = 1 / std::sqrt(squares);
  for (float& value : vector) value = static_cast<float>(value * scale);
}

float cosine(std::span<const float> a, std::span<const float> b) {
  BATON_CHECK(a.size() == b.size());
  double both = 0, first = 0, second = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += double{a[i]} * b[i];
    first += double{a[i]} * a[i];
    second += double{b[i]} * b[i];
  }
  return first > 0 && second > 0 ? static_cast<float>(both / std::sqrt(first * second)) : 0.0f;
}

Result<std::unique_ptr<Embedder>> Embedder::open(const EmbedderOptions& options) try {
  BATON_TRY(TextModel text, load_text_model(options.model, 0, ModelUse::kVectors, options.adapters));
  BATON_TRY(EmbedSpec spec, read_embed_spec(*text.model));
  if (options.pooling) spec.pooling = *options.pooling;
  if (options.normalized) spec.normalized = *options.normalized;
  if (spec.lower_case && text.tokenizer) {
    BATON_TRY(text.tokenizer, load_tokenizer(*text.model->container, true));
  }
  std::unique_ptr<Embedder> embedder(new Embedder(std::move(text), std::move(spec)));
  embedder->cut_word_ = options.cut_word;
  BATON_OK(embedder->load(options));
  return embedder;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("{}: not enough memory to load it", options.model.string()));
} catch (const std::system_error& error) {
  return fail(Code::kOutOfMemory,
              fmt::format("cannot start the threads of a unit: {}: take fewer", error.code().message()));
}

Status Embedder::load(const EmbedderOptions& options) {
  std::string name = options.unit;
  if (name.empty()) {
    std::vector<EmbedUnit> units;
    for (const std::string& each : options.units.empty() ? names_of_units() : options.units)
      units.push_back(asked(each, model()));
    BATON_TRY(const EmbedPlace place, choose_embed_unit(encoder(), model().weight_bytes(), units));
    name = units[place.unit].name;
    placed_ = place.why;
  } else {
    placed_ = fmt::format("{}: as asked", name);
  }
  BATON_TRY(unit_, create_unit(name));
  auto executor = unit_->load(text_.model, options.threads);
  if (!executor) {
    return fail(with_units_that_can(std::move(executor).error(), text_.model->program, *unit_)
                    .in(fmt::format("unit {}", name)));
  }
  executor_ = std::move(*executor);
  return {};
}

Result<std::string_view> Embedder::prompt_of(const EmbedRequest& request) const {
  const std::string& name = request.prompt.empty() ? spec_.default_prompt : request.prompt;
  if (request.no_prompt || name.empty()) return std::string_view();
  const auto found = spec_.prompts.find(name);
  if (found != spec_.prompts.end()) return std::string_view(found->second);
  std::string names;
  for (const auto& [known, text] : spec_.prompts) names += (names.empty() ? "" : ", ") + known;
  return fail(Code::kInvalidInput,
              fmt::format("the model has no prompt '{}'; there are: {}", name, names.empty() ? "none" : names));
}

Result<std::vector<int32_t>> Embedder::tokens_of(const EmbedInput& input, std::string_view prompt,
                                                 bool truncates) const {
  const auto too_long = [&](size_t tokens) {
    return fail(Code::kInvalidInput,
                fmt::format("{} tokens: the model takes {}; shorten it{}", tokens, spec_.tokens_max,
                            cut_word_.empty() ? "" : ", or have it cut with " + cut_word_));
  };
  if (const auto* given = std::get_if<std::vector<int32_t>>(&input)) {
    if (given->empty()) return fail(Code::kInvalidInput, "no tokens");
    std::vector<int32_t> ids = *given;
    if (ids.size() > spec_.tokens_max && !truncates) return too_long(ids.size());
    ids.resize(std::min<uint64_t>(ids.size(), spec_.tokens_max));
    const int32_t first_position = model().spec.encoder.first_position;
    for (const int32_t id : ids) {
      if (first_position > 0 && id == first_position - 1) {
        return fail(Code::kInvalidInput,
                    fmt::format("token {} is the model's padding, which has no position: texts are "
                                "not padded here; leave it out",
                                id));
      }
      if (id >= 0 && id < model().program.vocab) continue;
      return fail(Code::kInvalidInput,
                  fmt::format("token {} is outside the vocabulary of {}", id, model().program.vocab));
    }
    return ids;
  }
  const Tokenizer& tokenizer = *text_.tokenizer;
  const std::string text = std::string(prompt).append(std::get<std::string>(input));
  BATON_TRY(std::vector<int32_t> ids, tokenizer.encode(text, false));
  const uint64_t ends = uint64_t{tokenizer.add_bos()} + uint64_t{tokenizer.add_eos()};
  if (ids.size() + ends > spec_.tokens_max) {
    if (!truncates || ends >= spec_.tokens_max) return too_long(ids.size() + ends);
    ids.resize(spec_.tokens_max - ends);
  }
  ids = tokenizer.with_ends(std::move(ids));
  if (ids.empty()) return fail(Code::kInvalidInput, "an empty text has no tokens");
  return ids;
}

Result<Embeddings> Embedder::embed(const EmbedRequest& request, const std::function<bool()>& cancelled) try {
  if (request.inputs.size() > kEmbedInputsMax) {
    return fail(Code::kInvalidInput,
                fmt::format("{} inputs: at most {} at once", request.inputs.size(), kEmbedInputsMax));
  }
  if (request.dimensions > width()) {
    return fail(Code::kInvalidInput,
                fmt::format("dimensions {}: the model's vectors have {}", request.dimensions, width()));
  }
  const auto is_text = [](const EmbedInput& input) { return std::holds_alternative<std::string>(input); };
  if (!text_.tokenizer && std::any_of(request.inputs.begin(), request.inputs.end(), is_text))
    return no_tokenizer(text_);
  BATON_TRY(const std::string_view prompt, prompt_of(request));
  Embeddings made;
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    auto ids = tokens_of(request.inputs[i], prompt, request.truncates);
    if (!ids) return fail(std::move(ids).error().in(fmt::format("input {}", request.first + i)));
    made.tokens.push_back(ids->size());
    made.tokens_all += ids->size();
    texts.push_back(*std::move(ids));
    if (made.tokens_all <= kEmbedTokensMax) continue;
    return fail(Code::kInvalidInput, fmt::format("input {}: more than {} tokens in all; send fewer inputs at once",
                                                 request.first + i, kEmbedTokensMax));
  }
  made.vectors.resize(texts.size());
  // Long ones first: those of about one length go together.
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return texts[a].size() > texts[b].size(); });
  for (size_t next = 0; next < order.size();) {
    std::vector<const std::vector<int32_t>*> batch;
    std::vector<std::vector<float>*> out;
    uint64_t tokens = 0;
    for (; next < order.size() && batch.size() < kBatchTexts; ++next) {
      const std::vector<int32_t>& text = texts[order[next]];
      if (!batch.empty() && tokens + text.size() > kBatchTokens) break;
      tokens += text.size();
      batch.push_back(&text);
      out.push_back(&made.vectors[order[next]]);
    }
    const std::scoped_lock lock(mutex_);
    if (cancelled && cancelled()) return fail(Code::kCancelled, "cancelled");
    BATON_OK(run_batch(batch, out));
  }
  for (size_t i = 0; i < made.vectors.size(); ++i) {
    std::vector<float>& vector = made.vectors[i];
    if (request.dimensions > 0) vector.resize(request.dimensions);
    if (spec_.normalized) normalize_length(vector);
    // The model's own cut is behind the norm, as sentence-transformers has it.
    if (request.dimensions == 0) vector.resize(dimensions());
    if (std::all_of(vector.begin(), vector.end(), [](float value) { return std::isfinite(value); })) continue;
    return fail(Code::kDevice, fmt::format("input {}: its vector holds values that are no numbers", request.first + i));
  }
  return made;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for the vectors; send fewer inputs at once");
}

Status Embedder::run_batch(std::span<const std::vector<int32_t>* const> texts,
                           std::span<std::vector<float>* const> out) {
  // Only a decoder can be cut, and must be where more than its last state is wanted of a long text.
  if (!encoder() && spec_.pooling != Pooling::kLast && texts[0]->size() > kBatchTokens) {
    for (size_t i = 0; i < texts.size(); ++i) BATON_OK(run_in_pieces(*texts[i], *out[i]));
    return {};
  }
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<Seat> seats;
  size_t rows = 0;
  for (const std::vector<int32_t>* text : texts) {
    BATON_TRY(auto state, executor_->new_state(text->size()));
    Seat seat{state.get(), *text};
    seat.rows_out = spec_.pooling == Pooling::kLast ? 1 : static_cast<uint32_t>(text->size());
    rows += seat.rows_out;
    seats.push_back(seat);
    states.push_back(std::move(state));
  }
  rows_.resize(rows * width());
  BATON_OK(executor_->step(seats, rows_, {}));
  std::span<const float> left(rows_);
  for (size_t i = 0; i < seats.size(); ++i) {
    const size_t values = size_t{seats[i].rows_out} * width();
    pool(left.first(values), *out[i]);
    left = left.subspan(values);
  }
  return {};
}

Status Embedder::run_in_pieces(const std::vector<int32_t>& text, std::vector<float>& out) {
  BATON_TRY(const auto state, executor_->new_state(text.size()));
  std::vector<double> sums(width(), 0.0);
  for (size_t done = 0; done < text.size();) {
    const size_t count = std::min<size_t>(kBatchTokens, text.size() - done);
    const Seat seat{state.get(), std::span(text).subspan(done, count), static_cast<uint32_t>(count)};
    rows_.resize(count * width());
    BATON_OK(executor_->step({&seat, 1}, rows_, {}));
    if (spec_.pooling == Pooling::kFirst && done == 0) out.assign(rows_.begin(), rows_.begin() + width());
    for (size_t i = 0; i < rows_.size(); ++i) sums[i % width()] += rows_[i];
    done += count;
  }
  if (spec_.pooling == Pooling::kFirst) return {};
  out.resize(width());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(sums[i] / static_cast<double>(text.size()));
  return {};
}

// Rows of one text to its vector.
void Embedder::pool(std::span<const float> rows, std::vector<float>& out) const {
  const size_t size = width(), count = rows.size() / size;
  if (spec_.pooling != Pooling::kMean) {
    const auto row = spec_.pooling == Pooling::kFirst ? rows.first(size) : rows.last(size);
    out.assign(row.begin(), row.end());
    return;
  }
  std::vector<double> sums(size, 0.0);
  for (size_t i = 0; i < rows.size(); ++i) sums[i % size] += rows[i];
  out.resize(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<float>(sums[i] / static_cast<double>(count));
}

Result<std::vector<float>> Embedder::rerank(const std::string& query, std::span<const std::string> documents,
                                            bool truncates, uint64_t* tokens, const std::function<bool()>& cancelled) {
  EmbedRequest asked;
  asked.truncates = truncates;
  return rerank(query, documents, asked, tokens, cancelled);
}

Result<std::vector<float>> Embedder::rerank(const std::string& query, std::span<const std::string> documents,
                                            const EmbedRequest& asked, uint64_t* tokens,
                                            const std::function<bool()>& cancelled) {
  const auto with_prompt = [&](std::initializer_list<const char*> names) {
    EmbedRequest request;
    request.dimensions = asked.dimensions;
    request.truncates = asked.truncates;
    request.prompt = asked.prompt;
    request.no_prompt = asked.no_prompt;
    for (const char* name : names) {
      if (request.prompt.empty() && spec_.prompts.contains(name)) request.prompt = name;
    }
    return request;
  };
  if (!text_.tokenizer) return no_tokenizer(text_);
  EmbedRequest one = with_prompt({"query"}), many = with_prompt({"document", "passage"});
  one.inputs.emplace_back(query);
  for (const std::string& document : documents) many.inputs.emplace_back(document);
  auto question = embed(one, cancelled);
  if (!question) return fail(std::move(question).error().in("query"));
  auto read = embed(many, cancelled);
  if (!read) return fail(std::move(read).error().in("documents"));
  std::vector<float> scores;
  for (const std::vector<float>& vector : read->vectors) scores.push_back(cosine(question->vectors[0], vector));
  if (tokens != nullptr) *tokens = question->tokens_all + read->tokens_all;
  return scores;
}

}  // namespace baton
