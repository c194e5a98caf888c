// Samples of clocks and of the reasons that NVML gives for them.
#include "baton/bench/clock_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

namespace baton {
namespace {

constexpr int kOfProcessors = 1;  // NVML_CLOCK_SM
constexpr uint64_t kIdle = 1;     // nvmlClocksThrottleReasonGpuIdle
constexpr struct {
  uint64_t bit;
  const char* text;
} kReasons[] = {
    {0x2, "set by its owner"},      {0x4, "power cap"}, {0x8, "hardware slowdown"},
    {0x10, "kept equal to others"}, {0x20, "heat"},     {0x40, "heat (hardware)"},
    {0x80, "power brake"},          {0x100, "display"},
};

std::string grouped(uint32_t number) {
  return number < 1000 ? fmt::format("{}", number) : fmt::format("{},{:03}", number / 1000, number % 1000);
}

}  // namespace

std::string ClockFall::reasons_text() const {
  std::string text;
  uint64_t rest = reasons;
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(name);
    rest &= ~bit;
  }
  if (rest != 0) text += fmt::format("{}bits {:#x}", text.empty() ? "" : ", ", rest);
  return text;
}

std::string ClockFall::text() const {
  return fmt::format("{}: clocks fell: {} -> {} MHz, {}", source, grouped(mhz_max), grouped(mhz_lowest),
                     reasons_text());
}

ClockWatch::ClockWatch(const std::string& nvml_library) {
  const auto calls = load_nvml(nvml_library);
  if (!calls) return;
  calls_ = *calls;
  open();
}

ClockWatch::ClockWatch(const NvmlCalls& calls, uint32_t every_ms) : calls_(calls), every_ms_(every_ms) { open(); }

void ClockWatch::open() {
  if (calls_.clock_mhz == nullptr || calls_.clock_mhz_max == nullptr || calls_.clock_reasons == nullptr) return;
  if (calls_.init() != 0) return;
  started_ = true;
  unsigned count = 0;
  if (calls_.count(&count) != 0) return;
  for (unsigned i = 0; i < count; ++i) {
    Board board;
    char name[96] = {};
    unsigned most = 0;
    if (calls_.handle(i, &board.device) != 0 || calls_.clock_mhz_max(board.device, kOfProcessors, &most) != 0) continue;
    if (calls_.name(board.device, name, sizeof(name)) != 0) name[0] = '\0';
    board.fall.source = fmt::format("NVML {} #{}", name[0] != '\0' ? name : "device", i);
    board.fall.mhz_max = most;
    boards_.push_back(std::move(board));
  }
}

ClockWatch::~ClockWatch() {
  static_cast<void>(stop());
  if (started_) calls_.shutdown();
}

// The lock is held.
void ClockWatch::look() {
  for (Board& board : boards_) {
    unsigned now = 0;
    unsigned long long reasons = 0;
    if (calls_.clock_mhz(board.device, kOfProcessors, &now) != 0) continue;
    if (calls_.clock_reasons(board.device, &reasons) != 0) continue;
    ClockFall& fall = board.fall;
    if (reasons == 0 || (reasons & kIdle) != 0 || now == 0 || now >= fall.mhz_max) continue;
    fall.mhz_lowest = fall.mhz_lowest == 0 ? now : std::min<uint32_t>(fall.mhz_lowest, now);
    fall.reasons |= reasons;
  }
}

void ClockWatch::start() {
  static_cast<void>(stop());
  for (Board& board : boards_) board.fall.mhz_lowest = 0, board.fall.reasons = 0;
  if (!available()) return;
  ends_ = false;
  try {
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!changed_.wait_for(lock, std::chrono::milliseconds(every_ms_), [this] { return ends_; })) look();
    });
  } catch (const std::system_error&) {  // the system has no threads left: the look at the end is left
  }
}

std::vector<ClockFall> ClockWatch::stop() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  std::vector<ClockFall> falls;
  const std::lock_guard lock(mutex_);
  look();
  for (const Board& board : boards_) {
    if (board.fall.mhz_lowest != 0) falls.push_back(board.fall);
  }
  return falls;
}

}  // namespace baton
