// Objects of Core Foundation are plain pointers here; what a function named Copy or Create gives is released.
#include "baton/unit/apple/io_report.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#if defined(__APPLE__)
#include <dlfcn.h>
#endif

namespace baton::apple {
namespace {

using Ref = const void*;  // CFTypeRef

constexpr uint32_t kUtf8 = 0x08000100;  // kCFStringEncodingUTF8
constexpr long kChannelsMax = 4096;

// Joules of one unit of a channel; 0: not an energy.
double joules_of(std::string_view unit) {
  while (!unit.empty() && unit.back() == ' ') unit.remove_suffix(1);
  if (unit == "mJ") return 1e-3;
  if (unit == "uJ") return 1e-6;
  if (unit == "nJ") return 1e-9;
  return unit == "J" ? 1 : 0;
}

}  // namespace

struct IoReport::Calls {
  // Core Foundation
  Ref (*string)(Ref allocator, const char* text, uint32_t encoding) = nullptr;
  unsigned char (*text)(Ref string, char* to, long bytes, uint32_t encoding) = nullptr;
  Ref (*value)(Ref dictionary, Ref key) = nullptr;
  long (*count)(Ref array) = nullptr;
  Ref (*item)(Ref array, long index) = nullptr;
  void (*release)(Ref object) = nullptr;
  // IOReport
  Ref (*channels)(Ref group, Ref subgroup, uint64_t, uint64_t, uint64_t) = nullptr;
  Ref (*subscribe)(void*, Ref channels, Ref* subscribed, uint64_t, Ref) = nullptr;
  Ref (*samples)(Ref subscription, Ref channels, Ref) = nullptr;
  Ref (*delta)(Ref before, Ref after, Ref) = nullptr;
  Ref (*channel_name)(Ref channel) = nullptr;
  Ref (*channel_unit)(Ref channel) = nullptr;
  int64_t (*channel_value)(Ref channel, int32_t) = nullptr;

  Ref subscribed = nullptr, subscription = nullptr, first = nullptr;

  ~Calls() {
    for (const Ref object : {first, subscription, subscribed}) {
      if (object != nullptr) release(object);
    }
  }
  Status find(const SymbolLookup& lookup);
  Status begin();
  std::string text_of(Ref string_object) const {
    char buffer[256] = {};
    if (string_object == nullptr || text(string_object, buffer, sizeof(buffer), kUtf8) == 0) return "";
    return buffer;
  }
};

Status IoReport::Calls::find(const SymbolLookup& lookup) {
  const std::pair<const char*, void*> functions[] = {
      {"CFStringCreateWithCString", &string},
      {"CFStringGetCString", &text},
      {"CFDictionaryGetValue", &value},
      {"CFArrayGetCount", &count},
      {"CFArrayGetValueAtIndex", &item},
      {"CFRelease", &release},
      {"IOReportCopyChannelsInGroup", &channels},
      {"IOReportCreateSubscription", &subscribe},
      {"IOReportCreateSamples", &samples},
      {"IOReportCreateSamplesDelta", &delta},
      {"IOReportChannelGetChannelName", &channel_name},
      {"IOReportChannelGetUnitLabel", &channel_unit},
      {"IOReportSimpleGetIntegerValue", &channel_value},
  };
  for (const auto& [name, to] : functions) {
    void* found = lookup(name);
    if (found == nullptr) return fail(Code::kUnsupported, fmt::format("this system has no function {}", name));
    *static_cast<void**>(to) = found;
  }
  return {};
}

Status IoReport::Calls::begin() {
  const Ref group = string(nullptr, "Energy Model", kUtf8);
  const Ref all = channels(group, nullptr, 0, 0, 0);
  release(group);
  if (all == nullptr) return fail(Code::kUnsupported, "IOReport has no channels of energy");
  subscription = subscribe(nullptr, all, &subscribed, 0, nullptr);
  release(all);
  if (subscription == nullptr || subscribed == nullptr)
    return fail(Code::kUnsupported, "IOReport refuses a subscription to the channels of energy");
  return {};
}

IoReport::IoReport(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
IoReport::~IoReport() = default;

Status IoReport::start() {
  const Ref now = calls_->samples(calls_->subscription, calls_->subscribed, nullptr);
  if (now == nullptr) return fail(Code::kDevice, "IOReport gives no sample");
  if (const Ref before = std::exchange(calls_->first, now); before != nullptr) calls_->release(before);
  return {};
}

Result<std::map<std::string, double>> IoReport::joules() {
  BATON_CHECK(calls_->first != nullptr);
  const Ref now = calls_->samples(calls_->subscription, calls_->subscribed, nullptr);
  if (now == nullptr) return fail(Code::kDevice, "IOReport gives no sample");
  const Ref delta = calls_->delta(calls_->first, now, nullptr);
  calls_->release(now);
  if (delta == nullptr) return fail(Code::kDevice, "IOReport gives no difference of samples");
  std::map<std::string, double> out;
  const Ref key = calls_->string(nullptr, "IOReportChannels", kUtf8);
  const Ref list = calls_->value(delta, key);
  const long count = list != nullptr ? calls_->count(list) : 0;
  for (long i = 0; i < count && i < kChannelsMax; ++i) {
    const Ref channel = calls_->item(list, i);
    const double unit = joules_of(calls_->text_of(calls_->channel_unit(channel)));
    if (unit > 0) {
      out[calls_->text_of(calls_->channel_name(channel))] +=
          unit * static_cast<double>(calls_->channel_value(channel, 0));
    }
  }
  calls_->release(key);
  calls_->release(delta);
  if (out.empty()) return fail(Code::kUnsupported, "IOReport has no channel in joules");
  return out;
}

Result<std::unique_ptr<IoReport>> IoReport::create(const SymbolLookup& lookup) {
  auto calls = std::make_unique<Calls>();
  BATON_OK(calls->find(lookup));
  BATON_OK(calls->begin());
  return std::unique_ptr<IoReport>(new IoReport(std::move(calls)));
}

Result<std::unique_ptr<IoReport>> IoReport::open() {
#if defined(__APPLE__)
  for (const char* path :
       {"/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation", "/usr/lib/libIOReport.dylib"}) {
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == nullptr)
      return fail(Code::kUnsupported, fmt::format("{} cannot be loaded", path));
  }
  return create([](const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); });
#else
  return fail(Code::kUnsupported, "energy of a Mac's parts is read on a Mac only");
#endif
}

}  // namespace baton::apple
