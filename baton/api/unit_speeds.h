// How fast units are, as finished requests showed: the figures that routes rest on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "baton/api/route.h"
#include "baton/api/runtime.h"

namespace baton {

// Of one model's units, by the names that requests give them. Any thread.
class UnitSpeeds {
 public:
  // Of a request that ended well. What fell back, or ran on another unit than was asked for, tells nothing here. Later
  // requests count more: what came before is worth half after kHalfTokens of the same kind.
  void learn(const RequestStats& stats);
  // Fills in what is known: speeds of facts.units, and the bridges between them.
  void fill(RouteFacts& facts) const;

  static constexpr double kHalfTokens = 4096;

 private:
  // Sums of counts (tokens, or bytes) and of the time they took, old ones faded.
  struct Average {
    double count = 0, ms = 0;
    bool emulated = false;
    void add(double more, double took_ms, double half, bool was_emulated);
    Speed speed() const;
  };
  struct OfUnit {
    Average prefill, decode;
  };
  struct OfPair {
    Average bytes;
    bool adopts = false;  // the last one did
  };

  mutable std::mutex mutex_;
  std::map<std::string, OfUnit, std::less<>> units_;
  std::map<std::pair<std::string, std::string>, OfPair> pairs_;
};

// Prefills that are not done yet, by unit: what a new one waits for. Any thread.
class LaneLoads {
 public:
  // A request takes this route; `id` of the caller's, distinct.
  void begin(uint64_t id, const Route& route);
  // Its first token came, or its end: any number of times.
  void prefilled(uint64_t id);
  double waiting_ms(const std::string& unit) const;
  void fill(RouteFacts& facts) const;  // RouteUnit::waiting_ms

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::pair<std::string, double>> open_;  // unit, ms
};

// A short measurement at start: two small requests on each of `units`, alone, the second of which counts (the first
// pays for what a unit does once). Units that only prefill hand over to the first that decodes. The error of the first
// unit that cannot; kCancelled when `go_on` (may be empty), asked before each, says false.
Status measure_speeds(Runtime& runtime, std::span<const std::string> units, UnitSpeeds& speeds,
                      const std::function<bool()>& go_on = {});

}  // namespace baton
