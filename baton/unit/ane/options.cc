// Words of BATON_ANE.
#include "baton/unit/ane/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <span>

namespace baton::ane {
namespace {

struct Choice {
  std::string_view value;
  void (*apply)(AneOptions&);
};

struct Word {
  std::string_view name;
  std::span<const Choice> choices;
};

constexpr Choice kDevices[] = {{"auto", [](AneOptions& o) { o.device = Device::kAuto; }},
                               {"emulator", [](AneOptions& o) { o.device = Device::kEmulator; }},
                               {"hardware", [](AneOptions& o) { o.device = Device::kHardware; }}};
constexpr Choice kDispatches[] = {{"batch", [](AneOptions& o) { o.dispatch = Dispatch::kBatch; }},
                                  {"sequential", [](AneOptions& o) { o.dispatch = Dispatch::kSequential; }}};
constexpr Choice kColumns[] = {{"32", [](AneOptions& o) { o.columns = 32; }},
                               {"64", [](AneOptions& o) { o.columns = 64; }},
                               {"128", [](AneOptions& o) { o.columns = 128; }}};
constexpr Choice kPipelines[] = {{"on", [](AneOptions& o) { o.pipeline = true; }},
                                 {"off", [](AneOptions& o) { o.pipeline = false; }}};
constexpr Choice kModes[] = {{"strict", [](AneOptions& o) { o.mode = apple::Mode::kStrict; }},
                             {"lenient", [](AneOptions& o) { o.mode = apple::Mode::kLenient; }}};
constexpr Choice kProfiles[] = {{"m1", [](AneOptions& o) { o.numerics.profile = apple::Profile::kM1; }},
                                {"modern", [](AneOptions& o) { o.numerics.profile = apple::Profile::kModern; }},
                                {"m3", [](AneOptions& o) { o.numerics.profile = apple::Profile::kM3; }}};
constexpr Choice kTables[] = {{"exact", [](AneOptions& o) { o.numerics.perturbed_tables = false; }},
                              {"perturbed", [](AneOptions& o) { o.numerics.perturbed_tables = true; }}};
constexpr Choice kRanges[] = {{"refuse", [](AneOptions& o) { o.out_of_range = apple::OutOfRange::kRefuse; }},
                              {"clamp", [](AneOptions& o) { o.out_of_range = apple::OutOfRange::kClamp; }}};
constexpr Choice kDonors[] = {{"off", [](AneOptions& o) { o.donors = false; }},
                              {"on", [](AneOptions& o) { o.donors = true; }}};
constexpr Choice kHeads[] = {{"eager", [](AneOptions& o) { o.lazy_head = false; }},
                             {"lazy", [](AneOptions& o) { o.lazy_head = true; }}};
constexpr Word kWords[] = {{"device", kDevices},     {"dispatch", kDispatches}, {"columns", kColumns},
                           {"pipeline", kPipelines}, {"head", kHeads},          {"mode", kModes},
                           {"profile", kProfiles},   {"tables", kTables},       {"range", kRanges},
                           {"donors", kDonors}};

std::string values_of(const Word& word) {
  std::string text;
  for (const Choice& choice : word.choices) text += fmt::format("{}{}", text.empty() ? "" : "|", choice.value);
  return text;
}

std::string chips() {
  std::string text = "none";
  for (const apple::ChipPreset& preset : apple::chip_presets()) text += fmt::format("|{}", preset.name);
  return text;
}

Result<uint64_t> number(std::string_view name, std::string_view value) {
  uint64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size() || out == 0) {
    return fail(Code::kInvalidInput, fmt::format("ane options: {}={}: a number above 0", name, value));
  }
  return out;
}

Status apply(std::string_view name, std::string_view value, AneOptions* options) {
  for (const Word& word : kWords) {
    if (word.name != name) continue;
    for (const Choice& choice : word.choices) {
      if (choice.value != value) continue;
      choice.apply(*options);
      return {};
    }
    return fail(Code::kInvalidInput, fmt::format("ane options: {}={}: one of {}", name, value, values_of(word)));
  }
  if (name == "chip") {
    options->chip = apple::chip_preset(value);
    if (options->chip != nullptr || value == "none") return {};
    return fail(Code::kInvalidInput, fmt::format("ane options: chip={}: one of {}", value, chips()));
  }
  if (name == "cache") {
    options->cache = value != "off";
    options->cache_folder = options->cache ? value : std::string_view();
    return {};
  }
  if (name == "kernels") {
    BATON_TRY(const uint64_t count, number(name, value));
    options->kernels_max = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
    return {};
  }
  if (name == "compiles") {
    BATON_TRY(const uint64_t count, number(name, value));
    options->compiles_max = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
    return {};
  }
  if (name == "kernel_bytes") {
    BATON_TRY(options->weight_bytes_max, number(name, value));
    return {};
  }
  return fail(Code::kInvalidInput, fmt::format("ane options: there is no '{}'; known: {}", name, options_help()));
}

}  // namespace

std::string options_help() {
  std::string text;
  for (const Word& word : kWords) text += fmt::format("{}={} ", word.name, values_of(word));
  return text + fmt::format("chip={} cache=FOLDER|off kernels=N compiles=N kernel_bytes=N", chips());
}

Result<AneOptions> parse_options(std::string_view text) {
  AneOptions options;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return fail(Code::kInvalidInput, fmt::format("ane options: '{}': write name=value; {}", item, options_help()));
    }
    BATON_OK(apply(item.substr(0, equals), item.substr(equals + 1), &options));
  }
  return options;
}

Result<AneOptions> options_from_environment() {
  const char* text = std::getenv("BATON_ANE");
  return parse_options(text == nullptr ? "" : text);
}

std::filesystem::path cache_folder(const AneOptions& options, bool hardware) {
  if (!options.cache || !options.cache_folder.empty() || !hardware) {
    return options.cache ? options.cache_folder : std::filesystem::path{};
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == 0) return {};
  return std::filesystem::path(home) / "Library/Caches/baton/ane";
}

Result<bool> choose_hardware(Device device, bool is_mac, const std::function<Status()>& open) {
  if (device == Device::kEmulator) return false;
  const Status opened = open();
  if (opened) return true;
  if (device == Device::kAuto && !is_mac) return false;
  return fail(Code::kUnsupported,
              fmt::format("{} (BATON_ANE=device=emulator runs the emulation instead, which measures "
                          "nothing of this machine)",
                          opened.error().message));
}

}  // namespace baton::ane
