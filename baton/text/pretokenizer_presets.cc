// The split rules that GGUF files name in tokenizer.ggml.pre. The patterns are those of the models' own tokenizer.json
// where they are known; alternatives are tried left to right; \s+(?!\S) gives the last space of a run to the next word.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "baton/text/pretokenizer.h"

namespace baton {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+)"
    R"((?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s)"
    R"(*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlamaBpe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n])"
    R"(+|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n])"
    R"(+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4})"
    R"((?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-)"
    R"(\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-)"
    R"(\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-)"
    R"(\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77})"
    R"(\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-)"
    R"(\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-)"
    R"(\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4})"
    R"(\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128})"
    R"(\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184})"
    R"(\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-)"
    R"(\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06})"
    R"(\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-)"
    R"(\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr std::string_view kDeepseekMarks =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepseekHan = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kDeepseek3Han = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)"
    R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)"
    R"(|[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutuScripts =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014})"
    R"(\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5})"
    R"(\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll)"
    R"(|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|)"
    R"('m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{L)"
    R"(u}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s)"
    R"(+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll)"
    R"(|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|)"
    R"('m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimi =
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm)"
    R"(}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{L)"
    R"(o}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p)"
    R"({L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S))"
    R"(|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+)"
    R"((?!\S)|\s+)";
constexpr std::string_view kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kAfmoeScripts =
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{ff65}-)"
    R"(\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f}\x{aa60}-\x)"
    R"({aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+)";
constexpr std::string_view kExaone =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p)"
    R"({N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kMinicpm =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s)"
    R"(+(?!\S)|\s+)";
constexpr std::string_view kOneDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeAscii = R"([0-9][0-9][0-9])";
constexpr std::string_view kNewLine = R"([\r\n])";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";
constexpr std::string_view kSpaceLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpaceMarks = R"(\s?\p{P}+)";
constexpr std::string_view kEndSpace = R"(\s+$)";
constexpr std::string_view kFalconMarks = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kDefaultMarks = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kSentinel = R"(<sentinel:[0-9]+>)";
constexpr std::string_view kImage = R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)";
constexpr std::string_view kBlanks = R"(([\t\n]|    |  ))";
constexpr std::string_view kOneMark = R"([\p{P}!-/:-@\[-`{-~])";

// Beside patterns, steps that no pattern can do in linear time.
constexpr std::string_view kGroupsOfNumbers = "N";     // runs of \p{N}, in threes from the right
constexpr std::string_view kGroupsOfDigits = "Nd";     // of \p{Nd}
constexpr std::string_view kGroupsAtBounds = "Nd\\b";  // of \p{Nd}, where no word goes on behind them

enum Flags : unsigned {
  kPlain = 0,
  kNfc = 1,  // the model's own tokenizer composes; llama.cpp does not
  kIgnoreMerges = 2,
  kAddBos = 4,
  kAddEnds = 8,
  kCharacters = 16,
};

struct Preset {
  std::vector<std::string_view> names;
  std::vector<std::string_view> steps;
  unsigned flags = kPlain;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset>& table = *new std::vector<Preset>{
      {{"gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "jais", "trillion", "granite-docling", "exaone4"},
       {kGpt2}},
      {{"mpt", "olmo", "modern-bert"}, {kGpt2}, kNfc},
      {{"jina-v1-en", "jina-v2-code", "roberta-bpe"}, {kGpt2}, kAddEnds},
      {{"default", ""}, {kDefaultMarks, kGpt2, kDigits, kThreeAscii}},
      {{"smollm", "smollm2", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {kOneDigit, kGpt2}},
      {{"qwen2", "deepseek-r1-qwen", "f2llmv2"}, {kQwen2}, kNfc},
      {{"stablelm2", "kormo", "megrez", "hunyuan", "solar-open", "grok-2"}, {kQwen2}},
      {{"qwen35", "qwen3.5"}, {kQwen35}, kNfc},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {kLlamaBpe},
       kIgnoreMerges | kAddBos},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlamaBpe}},
      {{"jais-2"}, {kJais2}},
      {{"minicpm5"}, {kThreeDigits, kMinicpm}, kIgnoreMerges},
      {{"deepseek-llm"}, {kNewLine, kDeepseekLetters, kDeepseekMarks, kEndSpace, kDeepseekHan, kDigits}},
      {{"deepseek-coder"}, {kNewLine, kSpaceLetters, kSpaceMarks, kDeepseekHan, kOneDigit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {kThreeDigits, kDeepseek3Han, kDeepseek3}},
      {{"spark2_5"}, {kThreeDigits, kDeepseek3Han, kSpark, kOneDigit}},
      {{"youtu"}, {kYoutuScripts, kYoutu}, kIgnoreMerges},
      {{"falcon"}, {kFalconMarks, kGpt2, kThreeAscii}},
      {{"poro-chat", "bloom", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, kOneDigit}},
      {{"tekken"}, {kTekken}, kIgnoreMerges | kAddBos},
      {{"chameleon"}, {kSentinel, kImage, kBlanks, kOneDigit, kOneMark, kGpt2}, kAddBos},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kGpt4o}},
      {{"granite-embed-multi-97m"}, {kGpt4o}, kIgnoreMerges},
      {{"tiny_aya", "cohere2moe"}, {kGroupsAtBounds, kGpt4o}},
      {{"kimi-k2"}, {kKimi}},
      {{"superbpe"}, {kDigits, kGroupsOfDigits}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
      {{"seed-coder"}, {kSeedCoder}},
      {{"ufakzeka"}, {kUfakzeka}},
      {{"afmoe"}, {kGroupsOfNumbers, kAfmoeScripts, kDeepseek3}},
      {{"laguna"}, {kLines, kQwen2}},
      {{"exaone-moe"}, {kExaone}},
      {{"gemma4", "granite-embed-multi-311m"}, {kLines}, kCharacters | kAddBos},
      {{"sarvam-moe"}, {kLines}, kCharacters},
  };
  return table;
}

bool is_group(std::string_view step) {
  return step == kGroupsOfNumbers || step == kGroupsOfDigits || step == kGroupsAtBounds;
}

}  // namespace

bool is_own_pattern(std::string_view pattern) {
  return std::any_of(presets().begin(), presets().end(), [&](const Preset& preset) {
    return std::find(preset.steps.begin(), preset.steps.end(), pattern) != preset.steps.end();
  });
}

std::vector<std::string> pretokenizer_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    for (const std::string_view name : preset.names) {
      if (!name.empty()) names.emplace_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<PretokenizerPreset> pretokenizer_preset(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (std::find(preset.names.begin(), preset.names.end(), name) == preset.names.end()) continue;
    PretokenizerPreset made;
    for (const std::string_view pattern : preset.steps) {
      PretokenizerStep step;
      if (is_group(pattern)) step.kind = PretokenizerStep::Kind::kDigitGroups;
      step.pattern = pattern;
      made.steps.push_back(std::move(step));
    }
    made.normalize_nfc = (preset.flags & kNfc) != 0;
    made.ignore_merges = (preset.flags & kIgnoreMerges) != 0;
    made.add_bos = (preset.flags & kAddBos) != 0;
    made.add_ends = (preset.flags & kAddEnds) != 0;
    made.characters = (preset.flags & kCharacters) != 0;
    return made;
  }
  return fail(Code::kUnsupported, fmt::format("tokenizer.ggml.pre '{}': no such split rule here; there are {}", name,
                                              fmt::join(pretokenizer_preset_names(), ", ")));
}

}  // namespace baton
