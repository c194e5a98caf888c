// Rotary positions scaled beyond the length a model was trained for: read from a Hugging Face configuration or GGUF
// keys and tensors, and turned into what kRope takes, one divisor per frequency and one magnitude.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton {

struct Container;
struct ModelSpec;
class ConfigReader;
class GgufReader;

enum class RopeKind : uint8_t {
  kPlain,
  kLinear,    // all frequencies divided by `factor`
  kYarn,      // Peng et al., "YaRN", 2023: slow ones divided, fast ones kept, a ramp between
  kLlama3,    // long wavelengths divided, short ones kept, those between blended (Llama 3.1)
  kLongRope,  // Ding et al., "LongRoPE", 2024: a divisor for each frequency, two sets of them
};
std::string_view to_string(RopeKind kind);  // as GGUF and Hugging Face name it

struct RopeScaling {
  RopeKind kind = RopeKind::kPlain;
  float factor = 1;
  int32_t original = 0;  // context the model was trained for
  float magnitude = 1;   // rotated values become that much longer (attention factor, mscale)
  float beta_fast = 32, beta_slow = 1, extrapolation = 1;  // kYarn: turns where the ramp begins and ends, and its share
  bool truncate = true;                                    // kYarn: the ramp's ends are rounded outwards
  float low = 0, high = 0;                                 // kLlama3: turns within `original`
  std::vector<float> short_factors, long_factors;          // kLongRope: up to `original` tokens, and beyond
  std::vector<float> divisors;  // of GGUF's rope_freqs.weight, on top of all others; or empty
  int64_t context = 0;          // what kLongRope chooses by; set by build_model
};

// `config` is the object with rope_theta, rope_scaling or rope_parameters (the first that is not empty is used, as
// transformers does). Sets spec.rope_theta and spec.rope_scaling; `rotary` must be set. Kinds, fields and values that
// cannot be applied are refused by name.
Status read_rope(const ConfigReader& config, const std::string& file, float theta_default, ModelSpec& spec);

// From <architecture>.rope.* and the tensors rope_freqs, rope_factors_short and rope_factors_long.
Status read_rope(const GgufReader& keys, const Container& container, ModelSpec& spec);

// rotary / 2 divisors of the frequencies theta^(-2i/rotary); empty when all are 1.
std::vector<float> rope_divisors(const RopeScaling& scaling, float theta, int32_t rotary);

// 0.1 ln(factor) mscale + 1, and 1 for factors up to 1: yarn's magnitude when the file does not say.
float yarn_magnitude(float factor, float mscale = 1);

inline constexpr std::string_view kRopeTensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                                    "rope_factors_long.weight"};

}  // namespace baton
