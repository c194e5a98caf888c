// From logits to a token: logit bias and penalties, then greedy, or the chain top-k, top-p, min-p, temperature
// (llama.cpp's default order: each filter sees the probabilities of the survivors of the one before, before
// temperature), then a draw. Ids that are banned, or that the constraint does not allow, are not among the candidates.
// The same seed and logits give the same tokens on every platform: draws are of integers (draw_weight.h). One sampler
// belongs to one sequence; single-threaded.
//
// The bias is added to the logits as they left the model (OpenAI's API). Behind it,
// penalties, for a token that was drawn c > 0 times in the window:
//   logit = logit > 0 ? logit / repeat : logit * repeat     (Keskar et al. 2019, arXiv:1909.05858, as llama.cpp)
//   logit = logit - c * frequency - presence                (OpenAI's API, as llama.cpp)
// The window is the last `repeat_last_n` tokens that this sampler drew. Tokens of the prompt do not count: in a
// conversation the ones every turn repeats, end of turn first, are the template's, and an answer must be able to end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "baton/base/random.h"
#include "baton/base/status.h"
#include "baton/sample/constraint.h"
#include "baton/sample/logprobs.h"

namespace baton {

struct SamplerParams {
  float temperature = 0.0f;  // <= 0 is refused unless exactly 0: greedy
  int32_t top_k = 0;         // keep this many; 0: all
  float top_p = 1.0f;        // keep the fewest tokens, most likely first, whose sum reaches this; 1: all
  float min_p = 0.0f;        // keep tokens at least this likely relative to the likeliest; 0: all
  uint64_t seed = 0;
  float repeat_penalty = 1.0f;        // above 0; 1: off, below 1 rewards repetition
  float presence_penalty = 0.0f;      // -100 to 100; 0: off
  float frequency_penalty = 0.0f;     // the same
  int32_t repeat_last_n = 64;         // tokens of the answer the penalties look at; 0: none, -1: all
  std::vector<int32_t> banned_ids{};  // never drawn: padding rows, or eos under --ignore-eos
  // Added to the logits of these ids, each of which is there once; from -100 to 100.
  std::vector<std::pair<int32_t, float>> logit_bias{};
  // Of this sequence alone: each copy that draws needs one of its own. Null: none.
  std::shared_ptr<TokenConstraint> constraint{};
  std::optional<uint32_t> logprobs{};  // of each token that is drawn, beside so many alternatives; up to kLogprobsMax
};

class Sampler {
 public:
  // Scratch is sized to `vocab_size` here; nothing allocates later but the constraint and logprobs. kInvalidInput names
  // the parameter that is out of range, or a ban on every id.
  static Result<Sampler> create(SamplerParams params, int32_t vocab_size);

  // logits: [vocab_size]. Greedy ties go to the lower id. kDevice for a logit that is NaN or infinite (a banned id's
  // too: it means that the unit computed nonsense); kInvalidInput for a wrong length, and where the constraint allows
  // no id that may be drawn; kOutOfMemory. Nothing was drawn then, and the next call is as if this one had not been;
  // but a constraint that did not accept what it had allowed fails each call until `reset`. `logprobs` (may be null)
  // receives those of the token where the parameters ask for them. O(vocab), plus a sort of what top_k or top_p keep.
  Result<int32_t> sample(std::span<const float> logits, std::optional<Logprobs>* logprobs = nullptr);
  // For who draws by itself what `sample` would, where there is no constraint: the numbers of the next draws, each of
  // which takes one unless it is greedy, and that `id` came of the next.
  void show_numbers(std::span<uint64_t> next) const;
  // Whether there are penalties; what they look at now, the oldest first: at most repeat_last_n ids, which is above 0.
  bool has_penalties() const { return !drawn_.empty(); }
  std::vector<int32_t> window() const;
  void drew(int32_t id);
  // Begins the sequence of draws again, with an empty window; the constraint too.
  void reset(uint64_t seed);
  const SamplerParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  Sampler(SamplerParams params, int32_t vocab_size);
  // Asks the constraint, where there is one.
  Status find_allowed();
  // Calls use(id) for each id that may be drawn, in order.
  template <class Use>
  void for_allowed(Use&& use) const;
  int32_t greedy(std::span<const float> logits) const;
  int32_t draw(std::span<const float> logits, Random& random);
  // `logits`, or `adjusted_` when the bias or penalties change any.
  std::span<const float> adjust(std::span<const float> logits);
  // `id` joins the window; the oldest leaves it.
  void remember(int32_t id);
  // Each gives how many of the first `count` candidates stay.
  size_t keep_top_k(size_t count);
  size_t keep_top_p(size_t count, float top);
  void sort_front(size_t kept, size_t count, size_t from = 0);

  SamplerParams params_;
  Random random_;
  std::vector<uint8_t> banned_;        // by id
  std::vector<Candidate> candidates_;  // scratch
  std::vector<uint64_t> weights_;      // scratch, beside candidates_

  std::vector<float> adjusted_;  // scratch; empty without bias and penalties

  // Of the constraint; empty without one.
  std::vector<uint32_t> open_;     // a bit for each id that is not banned
  std::vector<uint32_t> allowed_;  // of the draw under way: those of `open_` that the constraint allows
  bool broken_ = false;            // it did not accept what it had allowed

  // Of the penalties; empty when they are off.
  std::vector<uint32_t> drawn_;  // by id: times in the window
  std::vector<int32_t> window_;  // a ring of repeat_last_n; empty when all count
  uint64_t remembered_ = 0;      // tokens drawn so far
};

// The likeliest id (lower on ties) and by how much it leads: what decides whether two units may differ.
struct Top2 {
  int32_t id = -1;
  int32_t second_id = -1;  // -1: only one id
  float gap = 0.0f;        // logit difference, >= 0
};
// kInvalidInput for no logits, kDevice for NaN or infinity.
Result<Top2> top2_gap(std::span<const float> logits);

}  // namespace baton
