// RAPL by reading files, NVML by its library, found at run time.
#include "baton/bench/energy_meter.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

namespace baton {
namespace {

using Counters = std::vector<std::unique_ptr<EnergyCounter>>;

Result<double> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  double value = 0;
  if (in >> value) return value;
  std::error_code error;
  const bool there = std::filesystem::exists(file, error);
  return fail(Code::kNotFound,
              fmt::format("{} {}", file.string(), there ? "is not readable (root only by default)" : "is not there"));
}

class RaplCounter final : public EnergyCounter {
 public:
  RaplCounter(std::string source, std::filesystem::path file, double range_uj, double now_uj)
      : source_(std::move(source)), file_(std::move(file)), range_uj_(range_uj), last_uj_(now_uj) {}
  const std::string& source() const override { return source_; }
  double step_ms() const override { return 1; }
  Result<double> joules() override {
    BATON_TRY(const double now_uj, number_in(file_));
    if (now_uj < last_uj_ && range_uj_ <= 0) {
      return fail(Code::kDevice, fmt::format("{} fell, and its range is not known", file_.string()));
    }
    total_uj_ += now_uj >= last_uj_ ? now_uj - last_uj_ : now_uj + range_uj_ - last_uj_;
    last_uj_ = now_uj;
    return total_uj_ * 1e-6;
  }

 private:
  const std::string source_;
  const std::filesystem::path file_;
  const double range_uj_;
  double last_uj_, total_uj_ = 0;
};

std::string nvml_error(const NvmlCalls& calls, int code) {
  const char* text = calls.error_string != nullptr ? calls.error_string(code) : nullptr;
  return text != nullptr ? text : fmt::format("error {}", code);
}

// NVML is shut down as often as it was started.
class NvmlSession {
 public:
  explicit NvmlSession(const NvmlCalls& calls) : calls_(calls) {}
  NvmlSession(const NvmlSession&) = delete;
  NvmlSession& operator=(const NvmlSession&) = delete;
  ~NvmlSession() {
    if (started_) calls_.shutdown();
  }
  Status start() {
    if (const int code = calls_.init(); code != 0) {
      return fail(Code::kNotFound, fmt::format("no NVML: {}", nvml_error(calls_, code)));
    }
    started_ = true;
    return {};
  }
  const NvmlCalls& calls() const { return calls_; }

 private:
  const NvmlCalls calls_;
  bool started_ = false;
};

class NvmlCounter final : public EnergyCounter {
 public:
  NvmlCounter(std::unique_ptr<NvmlSession> session, std::string source, void* device)
      : session_(std::move(session)), source_(std::move(source)), device_(device) {}
  Status open() {
    BATON_TRY(first_, read());
    return {};
  }
  const std::string& source() const override { return source_; }
  double step_ms() const override { return 100; }
  Result<double> joules() override {
    BATON_TRY(const double now, read());
    return now - first_;
  }

 private:
  Result<double> read() {
    unsigned long long millijoules = 0;
    const NvmlCalls& calls = session_->calls();
    if (const int code = calls.energy_millijoules(device_, &millijoules); code != 0) {
      return fail(Code::kDevice, fmt::format("{}: no energy counter: {}", source_, nvml_error(calls, code)));
    }
    return static_cast<double>(millijoules) * 1e-3;
  }

  const std::unique_ptr<NvmlSession> session_;
  const std::string source_;
  void* const device_;
  double first_ = 0;
};

}  // namespace

// The library stays loaded to the end of the process: its functions may have started threads.
Result<NvmlCalls> load_nvml(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(Code::kNotFound, fmt::format("no NVML: {} is not there", library));
  NvmlCalls calls;
  std::string lacks;
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(handle, name);
    if (symbol == nullptr) lacks = name;
    std::memcpy(&function, &symbol, sizeof(symbol));
  };
  find(calls.init, "nvmlInit_v2");
  find(calls.shutdown, "nvmlShutdown");
  find(calls.error_string, "nvmlErrorString");
  find(calls.count, "nvmlDeviceGetCount_v2");
  find(calls.handle, "nvmlDeviceGetHandleByIndex_v2");
  find(calls.name, "nvmlDeviceGetName");
  find(calls.energy_millijoules, "nvmlDeviceGetTotalEnergyConsumption");
  if (!lacks.empty()) return fail(Code::kUnsupported, fmt::format("no NVML: {} has no {}", library, lacks));
  find(calls.clock_mhz, "nvmlDeviceGetClockInfo");
  find(calls.clock_mhz_max, "nvmlDeviceGetMaxClockInfo");
  find(calls.clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  return calls;
}

Result<Counters> open_rapl(const std::filesystem::path& powercap) {
  Counters counters;
  std::error_code error;
  if (!std::filesystem::is_directory(powercap, error)) {
    return fail(Code::kNotFound, fmt::format("no RAPL: {} is not there", powercap.string()));
  }
  std::vector<std::filesystem::path> domains;
  for (auto entry = std::filesystem::directory_iterator(powercap, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("intel-rapl:") && std::count(name.begin(), name.end(), ':') == 1)
      domains.push_back(entry->path());
  }
  if (error) return fail(Code::kNotFound, fmt::format("no RAPL: {}: {}", powercap.string(), error.message()));
  std::sort(domains.begin(), domains.end());
  std::string why;
  for (const auto& domain : domains) {
    std::string name;
    std::ifstream(domain / "name") >> name;
    if (name.empty()) name = domain.filename().string();
    if (!name.starts_with("package") && !name.starts_with("intel-rapl:")) continue;
    const auto now = number_in(domain / "energy_uj");
    if (!now) {
      why = now.error().message;
      continue;
    }
    const double range = number_in(domain / "max_energy_range_uj").value_or(0);
    counters.push_back(std::make_unique<RaplCounter>("RAPL " + name, domain / "energy_uj", range, *now));
  }
  // A part of the packages would be a figure that is too low.
  if (!why.empty()) return fail(Code::kNotFound, "no RAPL: " + why);
  if (counters.empty()) return fail(Code::kNotFound, fmt::format("no RAPL: no package below {}", powercap.string()));
  return counters;
}

Result<Counters> open_nvml(const NvmlCalls& calls) {
  NvmlSession session(calls);
  BATON_OK(session.start());
  unsigned count = 0;
  if (const int code = calls.count(&count); code != 0) {
    return fail(Code::kNotFound, fmt::format("no NVML: {}", nvml_error(calls, code)));
  }
  if (count == 0) return fail(Code::kNotFound, "no NVML: no device");
  Counters counters;
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    if (const int code = calls.handle(i, &device); code != 0) {
      return fail(Code::kNotFound, fmt::format("no NVML: device {}: {}", i, nvml_error(calls, code)));
    }
    char name[96] = {};
    if (calls.name(device, name, sizeof(name)) != 0) name[0] = '\0';
    auto own = std::make_unique<NvmlSession>(calls);
    BATON_OK(own->start());
    auto counter = std::make_unique<NvmlCounter>(
        std::move(own), fmt::format("NVML {} #{}", name[0] != '\0' ? name : "device", i), device);
    if (auto opened = counter->open(); !opened) return fail(Code::kNotFound, "no NVML: " + opened.error().message);
    counters.push_back(std::move(counter));
  }
  return counters;
}

EnergyMeter::EnergyMeter(const EnergyPlaces& places) {
  const auto add = [&](Result<Counters> opened) {
    if (!opened) {
      missing_.push_back(std::move(opened).error().message);
      return;
    }
    for (auto& counter : *opened) counters_.push_back(std::move(counter));
  };
  add(open_rapl(places.powercap));
  if (auto calls = load_nvml(places.nvml_library)) {
    add(open_nvml(*calls));
  } else {
    missing_.push_back(std::move(calls).error().message);
  }
}

double EnergyMeter::step_ms() const {
  double most = 0;
  for (const auto& counter : counters_) most = std::max(most, counter->step_ms());
  return most;
}

std::vector<std::string> EnergyMeter::sources() const {
  std::vector<std::string> names;
  for (const auto& counter : counters_) names.push_back(counter->source());
  return names;
}

std::string EnergyMeter::reason() const {
  if (!failure_.empty()) return failure_;
  std::string text;
  for (const std::string& line : missing_) text += (text.empty() ? "" : "; ") + line;
  return text;
}

void EnergyMeter::start() {
  failure_.clear();
  start_.clear();
  for (const auto& counter : counters_) {
    const auto now = counter->joules();
    if (!now) failure_ = now.error().message;
    start_.push_back(now.value_or(0));
  }
}

std::vector<EnergyReading> EnergyMeter::readings() {
  std::vector<EnergyReading> readings;
  for (size_t i = 0; i < counters_.size() && failure_.empty(); ++i) {
    const auto now = counters_[i]->joules();
    if (!now) {
      failure_ = now.error().message;
      return {};
    }
    readings.push_back({counters_[i]->source(), *now - (i < start_.size() ? start_[i] : 0)});
  }
  if (!failure_.empty()) return {};
  return readings;
}

std::optional<double> EnergyMeter::joules() {
  const auto all = readings();
  if (all.empty()) return std::nullopt;
  double sum = 0;
  for (const EnergyReading& reading : all) sum += reading.joules;
  return sum;
}

}  // namespace baton
