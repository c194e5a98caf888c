// The reader of energy against functions of its own: sums by channel and unit, everything released, every call failing.
#include "baton/unit/apple/io_report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace baton::apple {
namespace {

using Ref = const void*;

struct Channel {
  std::string name, unit;
  int64_t value;
};

// Objects are what they point to; those made by Copy or Create are counted.
struct System {
  std::vector<Channel> channels = {{"CPU Energy", "mJ", 2000},          {"ANE0", "mJ", 250},    {"ANE0", "mJ", 250},
                                   {"GPU Energy", "nJ", 3'000'000'000}, {"GPU SRAM", "uJ ", 5}, {"PMP", "events", 9}};
  std::string failing, hidden;
  std::multiset<Ref> live;
  std::vector<std::unique_ptr<std::string>> strings;
  int subscription = 0, subscribed = 0, sample = 0, difference = 0, all = 0;
};
System* now = nullptr;

Ref made(Ref object) {
  now->live.insert(object);
  return object;
}
Ref string(Ref, const char* text, uint32_t) {
  now->strings.push_back(std::make_unique<std::string>(text));
  return made(now->strings.back().get());
}
unsigned char text(Ref object, char* to, long bytes, uint32_t) {
  const std::string& from = *static_cast<const std::string*>(object);
  if (static_cast<long>(from.size()) >= bytes) return 0;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return 1;
}
Ref value(Ref object, Ref key) {
  EXPECT_EQ(object, &now->difference);
  return *static_cast<const std::string*>(key) == "IOReportChannels" ? &now->channels : nullptr;
}
long count(Ref) { return static_cast<long>(now->channels.size()); }
Ref item(Ref, long index) { return &now->channels[static_cast<size_t>(index)]; }
void release_double(Ref object) {
  const auto found = now->live.find(object);
  ASSERT_NE(found, now->live.end()) << "released twice, or not ours";
  now->live.erase(found);
}
Ref channels(Ref group, Ref, uint64_t, uint64_t, uint64_t) {
  EXPECT_EQ(*static_cast<const std::string*>(group), "Energy Model");
  return now->failing == "channels" ? nullptr : made(&now->all);
}
Ref subscribe(void*, Ref, Ref* subscribed, uint64_t, Ref) {
  if (now->failing == "subscribe") return nullptr;
  *subscribed = made(&now->subscribed);
  return made(&now->subscription);
}
Ref samples(Ref, Ref, Ref) { return now->failing == "samples" ? nullptr : made(&now->sample); }
Ref delta(Ref, Ref, Ref) { return now->failing == "delta" ? nullptr : made(&now->difference); }
Ref name(Ref object) { return &static_cast<const Channel*>(object)->name; }
Ref unit(Ref object) { return &static_cast<const Channel*>(object)->unit; }
int64_t number(Ref object, int32_t) { return static_cast<const Channel*>(object)->value; }

SymbolLookup lookup() {
  return [](const char* symbol) -> void* {
    const std::pair<const char*, void*> all[] = {{"CFStringCreateWithCString", reinterpret_cast<void*>(string)},
                                                 {"CFStringGetCString", reinterpret_cast<void*>(text)},
                                                 {"CFDictionaryGetValue", reinterpret_cast<void*>(value)},
                                                 {"CFArrayGetCount", reinterpret_cast<void*>(count)},
                                                 {"CFArrayGetValueAtIndex", reinterpret_cast<void*>(item)},
                                                 {"CFRelease", reinterpret_cast<void*>(release_double)},
                                                 {"IOReportCopyChannelsInGroup", reinterpret_cast<void*>(channels)},
                                                 {"IOReportCreateSubscription", reinterpret_cast<void*>(subscribe)},
                                                 {"IOReportCreateSamples", reinterpret_cast<void*>(samples)},
                                                 {"IOReportCreateSamplesDelta", reinterpret_cast<void*>(delta)},
                                                 {"IOReportChannelGetChannelName", reinterpret_cast<void*>(name)},
                                                 {"IOReportChannelGetUnitLabel", reinterpret_cast<void*>(unit)},
                                                 {"IOReportSimpleGetIntegerValue", reinterpret_cast<void*>(number)}};
    for (const auto& [known, function] : all) {
      if (now->hidden != symbol && std::string_view(known) == symbol) return function;
    }
    return nullptr;
  };
}

TEST(IoReport, JoulesByChannel) {
  System system;
  now = &system;
  {
    auto report = IoReport::create(lookup());
    ASSERT_TRUE(report) << report.error().message;
    ASSERT_TRUE((*report)->start());
    ASSERT_TRUE((*report)->start());
    for (int i = 0; i < 2; ++i) {
      const auto joules = (*report)->joules();
      ASSERT_TRUE(joules) << joules.error().message;
      EXPECT_EQ(joules->size(), 4u);
      EXPECT_DOUBLE_EQ(joules->at("CPU Energy"), 2);
      EXPECT_DOUBLE_EQ(joules->at("ANE0"), 0.5);
      EXPECT_DOUBLE_EQ(joules->at("GPU Energy"), 3);
      EXPECT_DOUBLE_EQ(joules->at("GPU SRAM"), 5e-6);
    }
  }
  EXPECT_TRUE(system.live.empty());
}

TEST(IoReport, EveryFailureIsSaidAndReleased) {
  for (const char* failing : {"channels", "subscribe", "samples", "delta", "units"}) {
    System system;
    now = &system;
    system.failing = failing;
    if (system.failing == "units") system.channels = {{"PMP", "events", 9}};
    bool failed = false;
    {
      auto report = IoReport::create(lookup());
      failed = !report;
      if (report) {
        const Status started = (*report)->start();
        failed = !started || !(*report)->joules();
      }
    }
    EXPECT_TRUE(failed) << failing;
    EXPECT_TRUE(system.live.empty()) << failing;
  }
  System system;
  now = &system;
  system.hidden = "IOReportCreateSamplesDelta";
  const auto missing = IoReport::create(lookup());
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("IOReportCreateSamplesDelta"), std::string::npos);
#if !defined(__APPLE__)
  EXPECT_EQ(IoReport::open().error().code, Code::kUnsupported);
#endif
}

}  // namespace
}  // namespace baton::apple
