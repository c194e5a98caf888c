// The table of fault points: how often each was reached, and when it fires.
#include "baton/base/fault.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

constexpr std::array kPoints = {
#define BATON_FAULT_POINT(point, name) FaultPoint::point,
#include "baton/base/fault_list.inc"
#undef BATON_FAULT_POINT
};
constexpr std::array<std::string_view, kPoints.size()> kNames = {
#define BATON_FAULT_POINT(point, name) name,
#include "baton/base/fault_list.inc"
#undef BATON_FAULT_POINT
};

struct Record {
  std::atomic<uint64_t> at{0}, every{0}, reached{0}, fired{0};
};
constinit std::array<Record, kPoints.size()> records;
constinit std::atomic<bool> environment_read{false};

Record& record_of(FaultPoint point) { return records[static_cast<size_t>(point)]; }

Result<FaultPlan> parse_plan(std::string_view text) {
  FaultPlan plan;
  uint64_t* number = &plan.at;
  if (text.empty() || text == "once") {
    plan.at = 1;
    return plan;
  }
  if (text.starts_with("every=")) number = &plan.every;
  const std::string_view digits = text.substr(text.find('=') + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *number);
  const bool known = text.starts_with("every=") || text.starts_with("at=");
  if (known && error == std::errc() && end == digits.data() + digits.size() && *number > 0) return plan;
  return fail(Code::kInvalidInput, "fault '" + std::string(text) + "': once, at=N or every=N");
}

void read_environment() {
  if (environment_read.exchange(true)) return;
  const char* text = std::getenv("BATON_FAULT");
  if (text != nullptr) BATON_CHECK(arm_faults(text));
}

}  // namespace

std::span<const FaultPoint> fault_points() { return kPoints; }
std::string_view to_string(FaultPoint point) { return kNames[static_cast<size_t>(point)]; }

Status arm_faults(std::string_view text) {
  std::vector<std::pair<FaultPoint, FaultPlan>> parsed;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const std::string_view name = entry.substr(0, entry.find(':'));
    size_t index = 0;
    while (index < kNames.size() && kNames[index] != name) ++index;
    if (index == kNames.size()) return fail(Code::kInvalidInput, "there is no fault '" + std::string(name) + "'");
    BATON_TRY(const FaultPlan plan, parse_plan(entry.substr(std::min(entry.size(), name.size() + 1))));
    parsed.emplace_back(kPoints[index], plan);
  }
  for (const auto& [point, plan] : parsed) arm_fault(point, plan);
  return {};
}

void arm_fault(FaultPoint point, FaultPlan plan) {
  environment_read = true;  // a test's own word is the last
  Record& record = record_of(point);
  record.at = record.every = 0;
  record.reached = record.fired = 0;
  record.every = plan.every;
  record.at = plan.at;
}

void disarm_faults() {
  for (const FaultPoint point : kPoints) arm_fault(point, {});
}

uint64_t faults_reached(FaultPoint point) { return record_of(point).reached; }
uint64_t faults_fired(FaultPoint point) { return record_of(point).fired; }

bool fault_fires(FaultPoint point) {
  read_environment();
  Record& record = record_of(point);
  const uint64_t time = ++record.reached, every = record.every;
  const bool fires = time == record.at || (every > 0 && time % every == 0);
  if (fires) ++record.fired;
  return fires;
}

}  // namespace baton
