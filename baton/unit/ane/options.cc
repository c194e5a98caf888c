// The options of unit ane.
#include "baton/unit/ane/options.h"

#include <fmt/format.h>

#include <cstdlib>

#include "baton/unit/host/kernel_sets.h"

namespace baton::ane {
namespace {

std::string chips() {
  std::string text = "none";
  for (const apple::ChipPreset& preset : apple::chip_presets()) text += fmt::format("|{}", preset.name);
  return text;
}

}  // namespace

std::vector<UnitOption> option_list() {
  const auto one_of = UnitOption::one_of;
  return {
      one_of("device", "auto|emulator|hardware", "what does the work; auto: hardware that passes its start-up check",
             "auto: on a Mac hardware, else the emulator"),
      one_of("dispatch", "batch|sequential", "a call takes `columns` tokens, or one", "batch"),
      one_of("columns", "32|64|128", "tokens of a call, compiled into the kernels", "32"),
      one_of("pipeline", "on|off", "host work of a chunk beside device work of the next", "on"),
      one_of("head", "eager|lazy", "when the output head is loaded; lazy: for units that only prefill", "eager"),
      UnitOption::number("kernels", 1, UINT32_MAX, "kernels loaded at a time; the rest runs on the host", "118"),
      UnitOption::number("kernel_bytes", 1, UINT64_MAX, "bytes of weights of a kernel at most", "64 or 76 MB"),
      one_of("range", "refuse|clamp", "weights beyond fp16", "refuse"),
      UnitOption::text("cache", "FOLDER|off", "where compiled kernels are kept",
                       "Library/Caches/baton/ane at home; off in the emulator"),
      one_of("donors", "on|off", "one compile for kernels of a shape", "off"),
      one_of("mode", "strict|lenient", "emulator: refuses what only some systems refuse", "strict"),
      one_of("profile", "m1|modern|m3", "emulator: whose numerics", "m1"),
      one_of("tables", "exact|perturbed", "emulator: activation functions a little wrong", "exact"),
      UnitOption::number("compiles", 1, UINT32_MAX, "emulator: compiles of a process at most", "no limit"),
      one_of("chip", chips(), "emulator: whose times are told", "none"),
      one_of("host_kernels", host::kernel_set_names("|"), "instruction set of the host's part", "the first"),
      threads_option(),
  };
}

AneOptions options_of(const UnitOptions& given) {
  const auto is = [&](std::string_view key, std::string_view value) { return given.text(key) == value; };
  AneOptions o;
  o.device = is("device", "emulator")   ? Device::kEmulator
             : is("device", "hardware") ? Device::kHardware
                                        : Device::kAuto;
  if (is("dispatch", "sequential")) o.dispatch = Dispatch::kSequential;
  if (const uint64_t columns = given.number("columns"); columns > 0) o.columns = static_cast<int64_t>(columns);
  o.pipeline = !is("pipeline", "off");
  o.lazy_head = is("head", "lazy");
  if (const uint64_t kernels = given.number("kernels"); kernels > 0) o.kernels_max = static_cast<uint32_t>(kernels);
  o.weight_bytes_max = given.number("kernel_bytes");
  if (is("range", "clamp")) o.out_of_range = apple::OutOfRange::kClamp;
  o.cache = !is("cache", "off");
  if (o.cache) o.cache_folder = given.text("cache");
  o.donors = is("donors", "on");
  if (is("mode", "lenient")) o.mode = apple::Mode::kLenient;
  if (is("profile", "modern")) o.numerics.profile = apple::Profile::kModern;
  if (is("profile", "m3")) o.numerics.profile = apple::Profile::kM3;
  o.numerics.perturbed_tables = is("tables", "perturbed");
  o.compiles_max = static_cast<uint32_t>(given.number("compiles"));
  o.chip = apple::chip_preset(given.text("chip"));
  o.host_kernels = given.text("host_kernels");
  o.threads = static_cast<uint32_t>(given.number("threads"));
  return o;
}

Result<AneOptions> parse_options(std::string_view words) {
  BATON_TRY(const UnitOptions given, UnitOptions::parse("ane", words, option_list()));
  return options_of(given);
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
  return fail(Code::kUnsupported, fmt::format("{} (ane:device=emulator runs the emulation instead, which measures "
                                              "nothing of this machine)",
                                              opened.error().message));
}

}  // namespace baton::ane
