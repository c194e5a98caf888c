// Formulas: transformers' rope initialisers and ggml's rope, which agree where both have the kind.
#include "baton/model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "baton/model/config_reader.h"
#include "baton/model/model.h"

namespace baton {
namespace {

constexpr double kFactorMax = 1e6;

tl::unexpected<Error> bad(const std::string& file, std::string what) {
  return fail(Code::kInvalidInput, fmt::format("{}: {}", file, what));
}

Status check_divisors(const std::vector<float>& values, int32_t rotary, const std::string& what) {
  if (values.size() != static_cast<size_t>(rotary / 2)) {
    return fail(Code::kInvalidInput,
                fmt::format("{} has {} values; {} rotated dims need {}", what, values.size(), rotary, rotary / 2));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0 && values[i] <= kFactorMax)) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}[{}] is {}; it must be above 0 and at most {:g}", what, i, values[i], kFactorMax));
    }
  }
  return {};
}

Result<RopeKind> kind_of(const std::string& word, const std::string& file) {
  if (word == "default" || word == "none" || word.empty()) return RopeKind::kPlain;
  if (word == "su") return RopeKind::kLongRope;  // its first name
  for (const RopeKind kind : {RopeKind::kLinear, RopeKind::kYarn, RopeKind::kLlama3, RopeKind::kLongRope}) {
    if (word == to_string(kind)) return kind;
  }
  return fail(Code::kUnsupported,
              fmt::format("{}: rope scaling '{}' is not supported; there are: default, linear, yarn, llama3, longrope",
                          file, word));
}

// Fields that say nothing about the angles of a text: a text has one position for all streams.
constexpr std::string_view kIgnored[] = {"mrope_section", "mrope_interleaved", "finetuned", "partial_rotary_factor",
                                         // of kinds that do not look at them
                                         "factor", "attention_factor", "beta_fast", "beta_slow", "mscale",
                                         "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor",
                                         "short_factor", "long_factor", "original_max_position_embeddings"};

Status read_yarn(const ConfigReader& rope, RopeScaling& scaling) {
  BATON_TRY(scaling.beta_fast, rope.real("beta_fast", 0, kFactorMax, 32.0f));
  BATON_TRY(scaling.beta_slow, rope.real("beta_slow", 0, kFactorMax, 1.0f));
  if (scaling.beta_fast == 0) scaling.beta_fast = 32;
  if (scaling.beta_slow == 0) scaling.beta_slow = 1;
  BATON_TRY(scaling.truncate, rope.boolean("truncate", true));
  BATON_TRY(const float mscale, rope.real("mscale", 0, 1e3, 0.0f));
  BATON_TRY(const float mscale_all, rope.real("mscale_all_dim", 0, 1e3, 0.0f));
  const bool both = mscale != 0 && mscale_all != 0;
  scaling.magnitude = both ? yarn_magnitude(scaling.factor, mscale) / yarn_magnitude(scaling.factor, mscale_all)
                           : yarn_magnitude(scaling.factor);
  return {};
}

Status read_llama3(const ConfigReader& rope, const std::string& file, RopeScaling& scaling) {
  BATON_TRY(scaling.low, rope.real("low_freq_factor", 1e-3, kFactorMax));
  BATON_TRY(scaling.high, rope.real("high_freq_factor", 1e-3, kFactorMax));
  if (scaling.high <= scaling.low) {
    return bad(file,
               fmt::format("high_freq_factor {:g} must be above low_freq_factor {:g}", scaling.high, scaling.low));
  }
  return {};
}

Status read_longrope(const ConfigReader& rope, const std::string& file, int32_t rotary, RopeScaling& scaling) {
  BATON_TRY(scaling.short_factors, rope.reals("short_factor"));
  BATON_TRY(scaling.long_factors, rope.reals("long_factor"));
  BATON_OK(check_divisors(scaling.short_factors, rotary, file + ": field 'short_factor'"));
  BATON_OK(check_divisors(scaling.long_factors, rotary, file + ": field 'long_factor'"));
  const double original = scaling.original;
  scaling.magnitude = scaling.factor <= 1 || original <= 1
                          ? 1.0f
                          : static_cast<float>(std::sqrt(1 + std::log(scaling.factor) / std::log(original)));
  return {};
}

// "rope_scaling" before "rope_parameters"; one that is null or empty is none.
const Json* scaling_object(const ConfigReader& config) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const Json* found = config.value(field);
    if (found != nullptr && found->is_object() && !found->empty()) return found;
  }
  return nullptr;
}

Result<std::vector<float>> tensor_values(const Container& container, std::string_view name) {
  std::vector<float> values;
  const TensorView* tensor = container.find(name);
  if (tensor == nullptr) return values;
  const Format& format = format_of(tensor->dtype);
  values.resize(tensor->elements());
  if (values.size() > (1u << 20) || values.size() % format.block_elements != 0)
    return bad(container.path.string(), fmt::format("tensor '{}' has {} values", name, values.size()));
  format.decode(tensor->data.data(), values.data(), values.size());
  return values;
}

// The frequency, by its index, that makes `turns` turns within `original` tokens.
double yarn_index(double turns, double original, double theta, int32_t rotary) {
  return rotary * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void divide_yarn(const RopeScaling& scaling, float theta, int32_t rotary, std::vector<float>& divisors) {
  double first = yarn_index(scaling.beta_fast, scaling.original, theta, rotary);
  double last = yarn_index(scaling.beta_slow, scaling.original, theta, rotary);
  if (scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(rotary - 1));
  if (first == last) last += 0.001;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    const double kept = (1 - ramp) * scaling.extrapolation;
    divisors[i] = static_cast<float>(1 / ((1 - kept) / scaling.factor + kept));
  }
}

void divide_llama3(const RopeScaling& scaling, float theta, int32_t rotary, std::vector<float>& divisors) {
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double frequency = std::pow(static_cast<double>(theta), -2.0 * static_cast<double>(i) / rotary);
    const double turns = scaling.original * frequency / (2 * std::numbers::pi);
    if (turns > scaling.high) {
      divisors[i] = 1;
    } else if (turns < scaling.low) {
      divisors[i] = scaling.factor;
    } else {
      const double kept = (turns - scaling.low) / (scaling.high - scaling.low);
      divisors[i] = static_cast<float>(1 / ((1 - kept) / scaling.factor + kept));
    }
  }
}

}  // namespace

std::string_view to_string(RopeKind kind) {
  static constexpr std::string_view kWords[] = {"none", "linear", "yarn", "llama3", "longrope"};
  return kWords[static_cast<size_t>(kind)];
}

float yarn_magnitude(float factor, float mscale) {
  return factor <= 1 ? 1.0f : static_cast<float>(0.1 * mscale * std::log(factor) + 1);
}

Status read_rope(const ConfigReader& config, const std::string& file, float theta_default, ModelSpec& spec) {
  RopeScaling& scaling = spec.rope_scaling;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const Json* found = config.value(field);
    if (found != nullptr && !found->is_object())
      return bad(file,
                 fmt::format("field '{}' is of type {}; it must be an object or null", field, found->type_name()));
  }
  const Json* parameters = config.value("rope_parameters");  // theta may be there beside a rope_scaling
  const Json empty = Json::object();
  const Json* object = scaling_object(config);
  const std::string where = file + ": rope scaling";
  const ConfigReader rope(object != nullptr ? *object : empty, where);
  const ConfigReader beside(parameters != nullptr && parameters->is_object() ? *parameters : empty, where);
  BATON_TRY(const float top_theta, config.real("rope_theta", 1, 1e12, theta_default));
  BATON_TRY(const float beside_theta, beside.real("rope_theta", 1, 1e12, top_theta));
  BATON_TRY(spec.rope_theta, rope.real("rope_theta", 1, 1e12, beside_theta));
  BATON_TRY(const std::string old_word, rope.text("type", "default"));
  BATON_TRY(const std::string word, rope.text("rope_type", old_word));
  BATON_TRY(scaling.kind, kind_of(word, file));
  BATON_TRY(const int32_t inside,
            rope.integer("original_max_position_embeddings", 2, 1 << 30, std::max(2, spec.context_max)));
  BATON_TRY(scaling.original, config.integer("original_max_position_embeddings", 2, 1 << 30, inside));
  if (scaling.kind == RopeKind::kPlain) return rope.refuse_unread(kIgnored);
  const bool has_default = scaling.kind == RopeKind::kYarn || scaling.kind == RopeKind::kLongRope;
  const float ratio = std::max(1.0f, static_cast<float>(spec.context_max) / static_cast<float>(scaling.original));
  BATON_TRY(scaling.factor, rope.real("factor", 1, kFactorMax, has_default ? std::optional(ratio) : std::nullopt));
  if (scaling.kind == RopeKind::kYarn) BATON_OK(read_yarn(rope, scaling));
  if (scaling.kind == RopeKind::kLlama3) BATON_OK(read_llama3(rope, where, scaling));
  if (scaling.kind == RopeKind::kLongRope) BATON_OK(read_longrope(rope, where, spec.rotary, scaling));
  if (has_default) {
    BATON_TRY(scaling.magnitude, rope.real("attention_factor", 1e-3, 1e3, scaling.magnitude));
  }
  return rope.refuse_unread(kIgnored);
}

Status read_rope(const GgufReader& keys, const Container& container, ModelSpec& spec) {
  RopeScaling& scaling = spec.rope_scaling;
  const std::string file = container.path.string();
  // ggml's default is linear. Converted Phi-3 files say nothing of longrope, and have its tensors.
  const bool has_sets = container.find(kRopeTensors[1]) != nullptr && container.find(kRopeTensors[2]) != nullptr;
  BATON_TRY(const std::string word,
            keys.text("rope.scaling.type", to_string(has_sets ? RopeKind::kLongRope : RopeKind::kLinear)));
  BATON_TRY(scaling.kind, kind_of(word, file));
  BATON_TRY(const float old_factor, keys.real("rope.scale_linear", 0, kFactorMax, 0.0f));
  BATON_TRY(const float factor, keys.real("rope.scaling.factor", 0, kFactorMax, old_factor));
  scaling.factor = factor == 0 || scaling.kind == RopeKind::kPlain ? 1.0f : factor;
  BATON_TRY(scaling.original, keys.integer("rope.scaling.original_context_length", 0, 1 << 30, spec.context_max));
  if (scaling.original < 2) scaling.original = spec.context_max;
  BATON_TRY(const float attention, keys.real("rope.scaling.attn_factor", 0, 1e3, 1.0f));
  // transformers' attention_factor, all of the magnitude. llama.cpp computes what is usual instead, always; 1 is what
  // converters write that know nothing.
  BATON_TRY(const float yarn_attention, keys.real("rope.scaling.yarn_attn_factor", -1, 1e3, 1.0f));
  BATON_TRY(scaling.extrapolation, keys.real("rope.scaling.yarn_ext_factor", -1, 1, -1.0f));
  BATON_TRY(const float multiplier, keys.real("rope.scaling.yarn_log_multiplier", 0, 1e3, 0.0f));
  BATON_TRY(scaling.beta_fast, keys.real("rope.scaling.yarn_beta_fast", 1e-3, kFactorMax, 32.0f));
  BATON_TRY(scaling.beta_slow, keys.real("rope.scaling.yarn_beta_slow", 1e-3, kFactorMax, 1.0f));
  if (scaling.extrapolation < 0) scaling.extrapolation = 1;  // not set
  scaling.magnitude = attention == 0 ? 1.0f : attention;
  if (scaling.kind == RopeKind::kYarn && scaling.extrapolation > 0) {
    const bool said = yarn_attention > 0 && yarn_attention != 1;
    scaling.magnitude *= said ? yarn_attention : yarn_magnitude(scaling.factor);
    if (multiplier != 0 && !said) scaling.magnitude /= yarn_magnitude(scaling.factor, multiplier);
  }
  if (scaling.kind == RopeKind::kLlama3) {
    return bad(file, fmt::format("key '{}' is llama3; in GGUF its divisors are the tensor rope_freqs.weight",
                                 keys.name("rope.scaling.type")));
  }
  BATON_TRY(scaling.divisors, tensor_values(container, kRopeTensors[0]));
  BATON_TRY(scaling.short_factors, tensor_values(container, kRopeTensors[1]));
  BATON_TRY(scaling.long_factors, tensor_values(container, kRopeTensors[2]));
  const std::vector<float>* all[] = {&scaling.divisors, &scaling.short_factors, &scaling.long_factors};
  for (size_t i = 0; i < 3; ++i) {
    const std::string what = fmt::format("{}: tensor '{}'", file, kRopeTensors[i]);
    if (!all[i]->empty()) BATON_OK(check_divisors(*all[i], spec.rotary, what));
  }
  const bool long_tensors = !scaling.short_factors.empty() || !scaling.long_factors.empty();
  if (long_tensors != (scaling.kind == RopeKind::kLongRope) ||
      scaling.short_factors.size() != scaling.long_factors.size()) {
    return bad(file, fmt::format("rope scaling '{}' with {} short and {} long factors; longrope, and no other kind, "
                                 "has both tensors rope_factors_short and rope_factors_long",
                                 to_string(scaling.kind), scaling.short_factors.size(), scaling.long_factors.size()));
  }
  for (std::vector<float>* set : {&scaling.short_factors, &scaling.long_factors}) {
    for (float& value : *set) value *= scaling.factor;
  }
  if (scaling.kind == RopeKind::kLinear && scaling.factor == 1) scaling.kind = RopeKind::kPlain;
  return {};
}

std::vector<float> rope_divisors(const RopeScaling& scaling, float theta, int32_t rotary) {
  std::vector<float> divisors(static_cast<size_t>(rotary / 2), 1.0f);
  switch (scaling.kind) {
    case RopeKind::kPlain:
      break;
    case RopeKind::kLinear:
      std::fill(divisors.begin(), divisors.end(), scaling.factor);
      break;
    case RopeKind::kYarn:
      divide_yarn(scaling, theta, rotary, divisors);
      break;
    case RopeKind::kLlama3:
      divide_llama3(scaling, theta, rotary, divisors);
      break;
    case RopeKind::kLongRope:
      divisors = scaling.context > scaling.original ? scaling.long_factors : scaling.short_factors;
      break;
  }
  for (size_t i = 0; i < scaling.divisors.size(); ++i) divisors[i] *= scaling.divisors[i];
  if (std::all_of(divisors.begin(), divisors.end(), [](float value) { return value == 1; })) divisors.clear();
  return divisors;
}

}  // namespace baton
