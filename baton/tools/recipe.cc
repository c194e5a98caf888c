// The recipes, rule by rule.
#include "baton/tools/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr Recipe kRecipes[] = {
    {"Q2_K", DType::kQ2_K, 10, "2.6 bits for most, 3 to 4 for attention output and ffn_down"},
    {"Q3_K_S", DType::kQ3_K, 11, "3.4 bits throughout"},
    {"Q3_K_M", DType::kQ3_K, 12, "3.4 bits, 4 to 5 for attn_v, attn_output and ffn_down"},
    {"Q3_K_L", DType::kQ3_K, 13, "3.4 bits, 5 for attn_v, attn_output and ffn_down"},
    {"IQ4_XS", DType::kIQ4_XS, 30, "4.25 bits on a non-linear grid"},
    {"MXFP4", DType::kMXFP4, 38, "4.25 bits of microscaling FP4"},
    {"Q4_0", DType::kQ4_0, 2, "4.5 bits, one scale"},
    {"IQ4_NL", DType::kIQ4_NL, 25, "4.5 bits on a non-linear grid"},
    {"Q4_K_S", DType::kQ4_K, 14, "4.5 bits, 5.5 for the first attn_v and ffn_down"},
    {"Q4_K_M", DType::kQ4_K, 15, "4.5 bits, 6.6 for half of attn_v and ffn_down"},
    {"H4_K_M", DType::kQ4_K, 15, "the size of Q4_K_M, bits moved to what hybrid models feel most"},
    {"Q4_1", DType::kQ4_1, 3, "5 bits, scale and minimum"},
    {"Q5_0", DType::kQ5_0, 8, "5.5 bits, one scale"},
    {"Q5_K_S", DType::kQ5_K, 16, "5.5 bits throughout"},
    {"Q5_K_M", DType::kQ5_K, 17, "5.5 bits, 6.6 for half of attn_v and ffn_down"},
    {"Q5_1", DType::kQ5_1, 9, "6 bits, scale and minimum"},
    {"Q6_K", DType::kQ6_K, 18, "6.6 bits throughout"},
    {"Q8_0", DType::kQ8_0, 7, "8.5 bits throughout"},
    {"F16", DType::kF16, 1, "half precision"},
    {"BF16", DType::kBF16, 32, "bfloat16"},
    {"F32", DType::kF32, 0, "single precision"},
};
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

bool same_letters(std::string_view a, std::string_view b) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return upper(x) == upper(y); });
}
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

enum class Kind { kEmbedding, kOutput, kValue, kKey, kAttentionOutput, kDown, kOther };

// attn_qkv and attn_kv_b hold values too.
Kind kind_of(std::string_view name) {
  if (name == "output.weight") return Kind::kOutput;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Kind::kEmbedding;
  for (const std::string_view part : {"attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"}) {
    if (contains(name, part)) return Kind::kValue;
  }
  if (contains(name, "attn_k.weight")) return Kind::kKey;
  if (contains(name, "attn_output.weight")) return Kind::kAttentionOutput;
  if (contains(name, "ffn_down")) return Kind::kDown;
  return Kind::kOther;
}

// The number in "blk.12.", or -1.
int64_t layer_of(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  int64_t layer = -1;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + 4, end, layer);
  return error == std::errc{} && at != end && *at == '.' ? layer : -1;
}

// The first and last eighth, and every third between.
bool wants_more_bits(uint64_t i, uint64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

class Chooser {
 public:
  Chooser(const Recipe& recipe, const RecipeFacts& facts, std::span<const RecipeTensor> tensors)
      : name_(recipe.name), base_(recipe.base), facts_(facts), grouped_(grouping() >= 4) {
    for (const RecipeTensor& tensor : tensors) {
      const Kind kind = kind_of(tensor.name);
      values_ += kind == Kind::kValue;
      tied_ &= kind != Kind::kOutput;
    }
  }

  DType choose(const RecipeTensor& tensor) {
    const Kind kind = kind_of(tensor.name);
    if (kind == Kind::kOutput || (kind == Kind::kEmbedding && tied_)) {
      if (tensor.shape.back() % format_of(base_).block_elements != 0) return DType::kQ8_0;
      return base_ == DType::kQ8_0 ? base_ : DType::kQ6_K;
    }
    switch (kind) {
      case Kind::kValue:
        return value(value_++);
      case Kind::kKey:
        return facts_.experts == 8 ? DType::kQ8_0 : base_;
      case Kind::kAttentionOutput:
        return attention_output();
      case Kind::kDown: {
        const int64_t layer = layer_of(tensor.name);
        const uint64_t counted = down_++;
        return down(facts_.experts > 1 && layer >= 0 ? static_cast<uint64_t>(layer) : counted, facts_.layers);
      }
      default:
        return base_;
    }
  }

 private:
  uint64_t grouping() const { return facts_.kv_heads == 0 ? 0 : facts_.heads / facts_.kv_heads; }
  bool is(std::string_view name) const { return name_ == name; }
  bool is_iq4() const { return is("IQ4_NL") || is("IQ4_XS"); }

  DType value(uint64_t i) const {
    DType chosen = base_;
    if (is("Q2_K")) chosen = grouped_ ? DType::kQ4_K : DType::kQ3_K;
    if (is("Q3_K_M")) chosen = i < 2 ? DType::kQ5_K : DType::kQ4_K;
    if (is("Q3_K_L")) chosen = DType::kQ5_K;
    if (is_iq4() && grouped_) chosen = DType::kQ5_K;
    if ((is("Q4_K_M") || is("Q5_K_M")) && wants_more_bits(i, values_)) chosen = DType::kQ6_K;
    if (is("Q4_K_S") && i < 4) chosen = DType::kQ5_K;
    if (facts_.is_70b && (chosen == DType::kQ3_K || chosen == DType::kQ4_K)) chosen = DType::kQ5_K;
    return facts_.experts == 8 ? DType::kQ8_0 : chosen;
  }

  DType attention_output() const {
    if (facts_.experts == 8) {
      const bool small = is("Q2_K") || is("Q3_K_S") || is("Q3_K_M") || is("Q4_K_S") || is("Q4_K_M") || is_iq4();
      return small ? DType::kQ5_K : base_;
    }
    if (is("Q2_K")) return DType::kQ3_K;
    if (is("Q3_K_M")) return DType::kQ4_K;
    return is("Q3_K_L") ? DType::kQ5_K : base_;
  }

  DType down(uint64_t i, uint64_t n) const {
    if (is("Q2_K")) return DType::kQ3_K;
    if (is("Q3_K_M")) return i < n / 16 ? DType::kQ5_K : DType::kQ4_K;
    if (is("Q3_K_L")) return DType::kQ5_K;
    if ((is("Q4_K_M") || is("Q5_K_M")) && wants_more_bits(i, n)) return DType::kQ6_K;
    const bool first = i < n / 8;
    if (first && is("Q4_K_S")) return DType::kQ5_K;
    if (first && is_iq4() && !facts_.has_importance) return DType::kQ5_K;
    if (first && is("Q4_0") && facts_.has_importance) return DType::kQ4_1;
    if (first && is("Q5_0") && facts_.has_importance) return DType::kQ5_1;
    return base_;
  }

  std::string_view name_;
  DType base_;
  RecipeFacts facts_;
  bool grouped_, tied_ = true;
  uint64_t values_ = 0, value_ = 0, down_ = 0;
};

// Rows that super-blocks of 256 do not fit take a format of 32, and F16 when they do not fit that either.
DType fitting(DType dtype, uint64_t columns) {
  const auto fits = [&](DType type) { return columns % format_of(type).block_elements == 0; };
  if (fits(dtype)) return dtype;
  static constexpr std::pair<DType, DType> kShorter[] = {
      {DType::kQ2_K, DType::kQ4_0}, {DType::kQ3_K, DType::kQ4_0}, {DType::kQ4_K, DType::kQ5_0},
      {DType::kQ5_K, DType::kQ5_1}, {DType::kQ6_K, DType::kQ8_0}, {DType::kIQ4_XS, DType::kIQ4_NL}};
  for (const auto& [from, to] : kShorter) {
    if (from == dtype && fits(to)) return to;
  }
  return DType::kF16;
}

// H4_K_M, from the most to the least gain per bit: tensors whose name has `part` go up to `dtype`, layer by layer,
// while the file stays within Q4_K_M's size.
struct Raise {
  std::string_view part;
  DType dtype;
};
constexpr Raise kRaises[] = {
    {"attn_v.weight", DType::kQ6_K},    {"ssm_alpha.weight", DType::kQ8_0},   {"ssm_beta.weight", DType::kQ8_0},
    {"ssm_out.weight", DType::kQ5_K},   {"attn_output.weight", DType::kQ5_K}, {"attn_k.weight", DType::kQ5_K},
    {"attn_q.weight", DType::kQ5_K},    {"attn_qkv.weight", DType::kQ5_K},    {"attn_gate.weight", DType::kQ5_K},
    {"ffn_down.weight", DType::kQ5_K},  {"ssm_out.weight", DType::kQ6_K},     {"ffn_gate.weight", DType::kQ4_K},
    {"ffn_up.weight", DType::kQ4_K},    {"attn_output.weight", DType::kQ6_K}, {"attn_qkv.weight", DType::kQ6_K},
    {"attn_gate.weight", DType::kQ6_K}, {"ffn_down.weight", DType::kQ6_K}};

uint64_t bytes_of(const RecipeTensor& tensor, DType dtype) {
  uint64_t elements = 1;
  for (const uint64_t length : tensor.shape) elements *= length;
  return elements / format_of(dtype).block_elements * format_of(dtype).block_bytes;
}

// `choices`: Q4_K_M's, replaced.
void move_bits(std::span<const RecipeTensor> tensors, std::vector<TypeChoice>& choices) {
  int64_t spare = 0;  // bytes
  const auto change = [&](size_t i, DType wanted) {
    const DType dtype = fitting(wanted, tensors[i].shape.back());
    const auto gain = static_cast<int64_t>(bytes_of(tensors[i], choices[i].dtype)) -
                      static_cast<int64_t>(bytes_of(tensors[i], dtype));
    if (spare + gain < 0) return;
    spare += gain;
    choices[i] = {dtype, wanted};
  };
  std::vector<bool> movable(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Kind kind = kind_of(tensors[i].name);
    movable[i] = is_quantizable(tensors[i]) && !tensors[i].fixed && kind != Kind::kEmbedding && kind != Kind::kOutput;
    if (!movable[i]) continue;
    // IQ4_XS is a little smaller than Q4_K, but its form for short rows is worse than Q4_K's.
    const bool wide = contains(tensors[i].name, "ffn_up") || contains(tensors[i].name, "ffn_gate");
    change(i, wide && tensors[i].shape.back() % kSuperBlock == 0 ? DType::kIQ4_XS : DType::kQ4_K);
  }
  for (const Raise& raise : kRaises) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (movable[i] && contains(tensors[i].name, raise.part)) change(i, raise.dtype);
    }
  }
}

// The number under `key`, or the first of an array of numbers.
Result<std::optional<uint64_t>> first_number(const GgufMetadata& gguf, const std::string& key) {
  const GgufValue* value = gguf.find(key);
  if (value == nullptr || !std::holds_alternative<std::shared_ptr<GgufArray>>(*value)) {
    return gguf.unsigned_integer(key);
  }
  const GgufArray& array = *std::get<std::shared_ptr<GgufArray>>(*value);
  if (const auto* items = std::get_if<std::vector<uint64_t>>(&array.items); items != nullptr && !items->empty()) {
    return items->front();
  }
  if (const auto* items = std::get_if<std::vector<int64_t>>(&array.items); items != nullptr && !items->empty()) {
    if (items->front() >= 0) return static_cast<uint64_t>(items->front());
  }
  return fail(Code::kInvalidInput, fmt::format("key '{}' must be a number or an array of numbers", key));
}

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe* recipe_by_name(std::string_view name) {
  for (const auto& [alias, meant] : kAliases) {
    if (same_letters(alias, name)) name = meant;
  }
  for (const Recipe& recipe : kRecipes) {
    if (same_letters(recipe.name, name)) return &recipe;
  }
  return nullptr;
}

Result<RecipeFacts> recipe_facts(const GgufMetadata& gguf) {
  BATON_TRY(const auto architecture, gguf.text("general.architecture"));
  if (!architecture) return fail(Code::kInvalidInput, "key 'general.architecture' is missing: not a model's file");
  const auto number = [&](std::string_view key) {
    return first_number(gguf, fmt::format("{}.{}", *architecture, key));
  };
  RecipeFacts facts;
  BATON_TRY(const auto layers, number("block_count"));
  BATON_TRY(const auto heads, number("attention.head_count"));
  BATON_TRY(const auto kv_heads, number("attention.head_count_kv"));
  BATON_TRY(const auto experts, number("expert_count"));
  if (!layers) return fail(Code::kInvalidInput, fmt::format("key '{}.block_count' is missing", *architecture));
  facts.layers = *layers;
  facts.heads = heads.value_or(0);
  facts.kv_heads = kv_heads.value_or(facts.heads);
  facts.experts = experts.value_or(0);
  facts.is_70b =
      facts.layers == 80 && (*architecture == "qwen2" || *architecture == "deci" || *architecture == "olmo" ||
                             (*architecture == "llama" && facts.heads != facts.kv_heads));
  return facts;
}

bool is_quantizable(const RecipeTensor& tensor) {
  const auto outer = std::span(tensor.shape).first(tensor.shape.size() - 1);
  if (std::none_of(outer.begin(), outer.end(), [](uint64_t length) { return length > 1; })) return false;
  const std::string_view name = tensor.name;
  if (!name.ends_with("weight") || name == "position_embd.weight" || name == "token_types.weight") return false;
  for (const std::string_view part : {"_norm.weight",
                                      "ffn_gate_inp.weight",
                                      "ffn_gate_tid2eid.weight",
                                      "altup",
                                      "laurel",
                                      "per_layer_model_proj",
                                      "ssm_conv1d",
                                      "shortconv.conv.weight",
                                      "indexer.k_proj.weight",
                                      "indexer.q_proj.weight",
                                      "time_mix_first.weight",
                                      "time_mix_w0.weight",
                                      "time_mix_w1.weight",
                                      "time_mix_w2.weight",
                                      "time_mix_v0.weight",
                                      "time_mix_v1.weight",
                                      "time_mix_v2.weight",
                                      "time_mix_a0.weight",
                                      "time_mix_a1.weight",
                                      "time_mix_a2.weight",
                                      "time_mix_g1.weight",
                                      "time_mix_g2.weight",
                                      "time_mix_decay_w1.weight",
                                      "time_mix_decay_w2.weight",
                                      "time_mix_lerp_fused.weight",
                                      "attn_rel_b.weight",
                                      ".position_embd",
                                      ".rel_pos",
                                      ".patch_embd",
                                      ".patch_merger"}) {
    if (contains(name, part)) return false;
  }
  return true;
}

std::vector<TypeChoice> choose_types(const Recipe& recipe, bool pure, const RecipeFacts& facts,
                                     std::span<const RecipeTensor> tensors) {
  const bool moved = recipe.name == "H4_K_M" && !pure;
  Chooser chooser(moved ? *recipe_by_name("Q4_K_M") : recipe, facts, tensors);
  const bool plain = pure || format_of(recipe.base).block_elements == 1;
  std::vector<TypeChoice> choices;
  choices.reserve(tensors.size());
  for (const RecipeTensor& tensor : tensors) {
    if (!is_quantizable(tensor)) {
      choices.push_back({tensor.dtype, tensor.dtype});
      continue;
    }
    const DType wanted = tensor.fixed ? *tensor.fixed : plain ? recipe.base : chooser.choose(tensor);
    choices.push_back({fitting(wanted, tensor.shape.back()), wanted});
  }
  if (moved) move_bits(tensors, choices);
  return choices;
}

bool recipe_order(std::string_view a, std::string_view b) {
  const int64_t layer_a = layer_of(a), layer_b = layer_of(b);
  return layer_a != layer_b ? layer_a < layer_b : a < b;
}

}  // namespace baton
