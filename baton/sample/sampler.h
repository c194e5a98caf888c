// From logits to a token: penalties, then greedy, or the chain top-k, top-p, min-p, temperature (llama.cpp's default
// order: each filter sees the probabilities of the survivors of the one before, before temperature), then a draw. The
// same seed and logits give the same tokens on every platform, up to the last bit of exp(). One sampler belongs to one
// sequence; single-threaded.
//
// Penalties, for a token that was drawn c > 0 times in the window:
//   logit = logit > 0 ? logit / repeat : logit * repeat     (Keskar et al. 2019, arXiv:1909.05858, as llama.cpp)
//   logit = logit - c * frequency - presence                (OpenAI's API, as llama.cpp)
// The window is the last `repeat_last_n` tokens that this sampler drew. Tokens of the prompt do not count: in a
// conversation the ones every turn repeats, end of turn first, are the template's, and an answer must be able to end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "baton/base/random.h"
#include "baton/base/status.h"

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
};

class Sampler {
 public:
  // Scratch is sized to `vocab_size` here; nothing allocates later. kInvalidInput names the parameter that is out of
  // range, or a ban on every id.
  static Result<Sampler> create(SamplerParams params, int32_t vocab_size);

  // logits: [vocab_size]. Greedy ties go to the lower id. kDevice for a logit that is NaN or infinite (a banned id's
  // too: it means that the unit computed nonsense); kInvalidInput for a wrong length. O(vocab), plus a sort of what
  // top_k or top_p keep.
  Result<int32_t> sample(std::span<const float> logits);
  // Begins the sequence of draws again, with an empty window.
  void reset(uint64_t seed);
  const SamplerParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  Sampler(SamplerParams params, int32_t vocab_size);
  int32_t greedy(std::span<const float> logits) const;
  int32_t draw(std::span<const float> logits);
  // `logits`, or `penalised_` when penalties change any.
  std::span<const float> penalise(std::span<const float> logits);
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
  std::vector<float> probabilities_;   // scratch, beside candidates_

  // Of the penalties; empty when they are off.
  std::vector<uint32_t> drawn_;   // by id: times in the window
  std::vector<int32_t> window_;   // a ring of repeat_last_n; empty when all count
  uint64_t remembered_ = 0;       // tokens drawn so far
  std::vector<float> penalised_;  // scratch
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
