// Lists of cores, and the system's calls.
#include "baton/base/affinity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace baton {
namespace {

constexpr uint32_t kCoresMax = 1024;

// One way to write each number.
bool read_core(std::string_view& text, uint32_t& core) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), core);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || core >= kCoresMax || (digits > 1 && text.front() == '0')) return false;
  text.remove_prefix(digits);
  return true;
}

std::string ranges_of(std::span<const uint32_t> cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

#if defined(__linux__)
static_assert(kCoresMax <= CPU_SETSIZE);

// Of the calling thread; empty when the system does not say.
std::vector<uint32_t> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<uint32_t> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (uint32_t core = 0; core < kCoresMax; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

bool keep_on(std::span<const uint32_t> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const uint32_t core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}
#endif

}  // namespace

std::vector<uint32_t> parse_cores(std::string_view text) {
  std::vector<uint32_t> cores;
  while (true) {
    uint32_t first = 0;
    if (!read_core(text, first)) return {};
    uint32_t last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!read_core(text, last) || last <= first) return {};
    }
    if (!cores.empty() && first <= cores.back()) return {};
    for (uint32_t core = first; core <= last; ++core) cores.push_back(core);
    if (text.empty()) return cores;
    if (!text.starts_with(',')) return {};
    text.remove_prefix(1);
  }
}

std::string cores_text(std::span<const uint32_t> cores) {
  return fmt::format("core{} {}", cores.size() == 1 ? "" : "s", ranges_of(cores));
}

#if defined(__linux__)
Status check_cores(std::span<const uint32_t> cores) {
  const std::vector<uint32_t> allowed = allowed_cores();
  const auto there = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_CONF)));
  std::vector<uint32_t> missing, forbidden;
  for (const uint32_t core : cores) {
    if (std::binary_search(allowed.begin(), allowed.end(), core)) continue;
    (core >= there ? missing : forbidden).push_back(core);
  }
  if (!missing.empty()) {
    return fail(Code::kInvalidInput,
                fmt::format("this machine has no {}; it has {} cores, numbered from 0", cores_text(missing), there));
  }
  if (!forbidden.empty()) {
    return fail(Code::kInvalidInput,
                fmt::format("this process may not run on {}, only on {} (taskset, a container's limit)",
                            cores_text(forbidden), cores_text(allowed)));
  }
  return {};
}

PinnedThread::PinnedThread(std::span<const uint32_t> cores) {
  if (cores.empty()) return;
  std::vector<uint32_t> now = allowed_cores();
  if (std::equal(now.begin(), now.end(), cores.begin(), cores.end())) return;
  holds_ = !now.empty() && keep_on(cores);
  if (holds_) before_ = std::move(now);
}

PinnedThread::~PinnedThread() {
  if (!before_.empty()) keep_on(before_);
}
#else
Status check_cores(std::span<const uint32_t> cores) {
  if (cores.empty()) return {};
  return fail(Code::kUnsupported,
              "this system lets no program choose the cores of its threads: leave the option out; how many threads "
              "there are can be chosen");
}

PinnedThread::PinnedThread(std::span<const uint32_t> cores) : holds_(cores.empty()) {}
PinnedThread::~PinnedThread() = default;
#endif

}  // namespace baton
