// Weighted fair shares of what is served one after the other: a lane's time, admissions. Start-time fair queueing
// (Goyal, Vin, Cheng, 1996): a tenant's next service begins, in virtual time, where its last one ended or, where it
// asked for nothing meanwhile, with what is being served now; who begins first is next, and a service lasts its cost
// over the weight. Two tenants that always wait get shares that differ from their weights' by one service of each.
// Pure: the same calls give the same answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "baton/base/status.h"

namespace baton {

class FairShares {
 public:
  // A service may take others along that were not next (decodes that share a step): what those run up is at most this
  // many of the largest services, so that it is paid back in bounded time.
  static constexpr double kLeadMax = 4;

  explicit FairShares(size_t resources) : now_(resources), largest_(resources) {}

  // A request of the tenant came; the weight is the tenant's from now on. Its account lasts while there are requests.
  void join(uint64_t tenant, uint32_t weight) {
    Account& account = accounts_[tenant];
    account.ends.resize(now_.size());
    account.weight = std::max(weight, 1u);
    ++account.requests;
  }
  void leave(uint64_t tenant) {
    const auto found = accounts_.find(tenant);
    BATON_CHECK(found != accounts_.end() && found->second.requests > 0);
    if (--found->second.requests == 0) gone_.push_back(tenant);
    // What a tenant was served counts on when it comes back soon: the books of those that left are kept for a while.
    if (gone_.size() > kGoneMax) forget();
  }

  // Where the tenant's next service begins; who begins first is next.
  double start(uint64_t tenant, size_t resource) const {
    return std::max(now_[resource], accounts_.at(tenant).ends[resource]);
  }
  uint32_t weight(uint64_t tenant) const { return accounts_.at(tenant).weight; }
  // The tenant is next: its service begins.
  void serve(uint64_t tenant, size_t resource) { now_[resource] = start(tenant, resource); }
  // A service of the tenant, that was next or came along, took so much.
  void charge(uint64_t tenant, size_t resource, double cost) {
    Account& account = accounts_.at(tenant);
    largest_[resource] = std::max(largest_[resource], cost);
    const double end = start(tenant, resource) + cost / account.weight;
    account.ends[resource] = std::min(end, now_[resource] + kLeadMax * largest_[resource] / account.weight);
  }
  size_t tenants() const { return accounts_.size(); }

 private:
  static constexpr size_t kGoneMax = 64;
  struct Account {
    uint32_t weight = 1;
    uint64_t requests = 0;
    std::vector<double> ends;  // by resource
  };
  void forget() {
    for (const uint64_t tenant : gone_) {
      const auto found = accounts_.find(tenant);
      if (found != accounts_.end() && found->second.requests == 0) accounts_.erase(found);
    }
    gone_.clear();
  }

  std::map<uint64_t, Account> accounts_;
  std::vector<uint64_t> gone_;  // tenants without requests; some may have come back
  std::vector<double> now_;     // by resource: virtual time
  std::vector<double> largest_;
};

}  // namespace baton
