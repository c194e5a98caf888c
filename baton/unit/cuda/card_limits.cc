// Timed launches and copies, and what must have come out of them.
#include "baton/unit/cuda/card_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "baton/unit/cuda/limit_work.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kChunkBytes = kLimitChunk * 16, kBytesLeast = uint64_t{64} << 20;
constexpr uint32_t kRoundsMax = (1 << 20) - 1;  // f32 counts them exactly: 16 of a thread, 2^24 at most
constexpr double kMsLeast = 1e-2;               // of so many rounds
constexpr uint8_t kNoSum = 0xa5;                // in place of what a kernel will leave
constexpr uint32_t kNoSumWord = 0xa5a5a5a5;

std::string card_name(const Card& card) {
  return fmt::format("{} (cuda:{}{})", card.facts().name, card.facts().index,
                     card.facts().emulated ? ", emulated" : "");
}
std::string whole_mib(uint64_t bytes) { return fmt::format("{} MiB", bytes >> 20); }

class Measurement {
 public:
  Measurement(Card& card, const CardLimitSizes& sizes) : card_(card), sizes_(sizes) {}

  Result<Rate> run(DeviceLimit which) {
    BATON_TRY(stream_, card_.stream());
    BATON_TRY(begin_, card_.event(true));
    BATON_TRY(end_, card_.event(true));
    switch (which) {
      case DeviceLimit::kRead:
        return read();
      case DeviceLimit::kCopy:
        return copy();
      case DeviceLimit::kFromHost:
        return from_host();
      case DeviceLimit::kBF16Products:
        return products();
      case DeviceLimit::kF32Products:
        return floats();
    }
    return fail(Code::kUnsupported, "a card has no such limit");
  }

 private:
  // Milliseconds of what `work` asks of the stream, by the card's clock.
  Result<double> timed(const std::function<Status()>& work) {
    BATON_OK(stream_.record(begin_));
    BATON_OK(work());
    BATON_OK(stream_.record(end_));
    BATON_OK(stream_.wait());
    BATON_TRY(const float ms, end_.milliseconds_since(begin_));
    if (!(ms >= 0 && std::isfinite(ms)))
      return fail(Code::kInternal, fmt::format("{}: its clock says that {} ms passed", card_name(card_), ms));
    return std::max(static_cast<double>(ms), 1e-6);
  }
  // The same, of what leaves sums: none of those that were there before may be taken for its.
  Result<double> timed_afresh(const std::function<Status()>& work) {
    if (told_.bytes() > 0) BATON_OK(stream_.fill(work_.sums, kNoSum, uint64_t{warps_} * sizeof(uint32_t)));
    return timed(work);
  }

  // `work(rounds)` does rounds * per_round() of it; check(rounds) looks at what it left.
  Result<Rate> rate(const std::function<std::string()>& what, const std::function<double()>& per_round,
                    const std::function<Status(uint32_t rounds)>& work,
                    const std::function<Status(uint32_t rounds)>& check) {
    uint32_t rounds = 1;
    for (double warm = 0;;) {
      BATON_TRY(const double ms, timed([&] { return work(rounds); }));
      warm += ms;
      const bool is_long = ms >= sizes_.run_ms || rounds >= kRoundsMax;
      if (rounds >= kRoundsMax && ms < kMsLeast)
        return fail(Code::kInternal, fmt::format("{}: its clock says that {} ms passed in {} rounds of what takes time",
                                                 card_name(card_), ms, rounds));
      if (is_long && warm >= sizes_.warm_ms) break;
      if (!is_long) rounds = std::min(kRoundsMax, std::max(rounds + 1, rounds_for(rounds, ms)));
    }
    rounds |= 1;  // sums of reads are 0 after 64 rounds
    std::vector<double> rates;
    for (uint32_t i = 0; i < sizes_.runs; ++i) {
      BATON_TRY(const double ms, timed_afresh([&] { return work(rounds); }));
      BATON_OK(check(rounds));
      rates.push_back(per_round() * rounds / ms * 1e3);
    }
    std::sort(rates.begin(), rates.end());
    return Rate{what(), rates[rates.size() / 2], rates.front(), rates.back()};
  }
  // A little more than enough, at most eight times as many.
  uint32_t rounds_for(uint32_t rounds, double ms) const {
    return static_cast<uint32_t>(rounds * std::min(8.0, 1.1 * sizes_.run_ms / ms));
  }

  // Blocks that all run at once, and room for their sums.
  Status settle(std::string_view kernel, uint32_t threads, uint32_t shared) {
    BATON_TRY(const uint32_t each, card_.blocks_of(kernel, threads, shared));
    if (each == 0) return fail(Code::kUnsupported, fmt::format("{} does not run on {}", kernel, card_name(card_)));
    blocks_ = each * card_.facts().processors;
    warps_ = blocks_ * (threads / 32);
    const uint64_t bytes = uint64_t{warps_} * sizeof(uint32_t) + 16;
    BATON_TRY(told_, card_.allocate(bytes, "sums of a measurement"));
    BATON_TRY(sums_, card_.allocate_pinned(bytes));
    work_.path = told_.address();
    work_.sums = told_.address() + 16;
    return {};
  }
  // What the last launch left there.
  Status take_sums() {
    BATON_OK(stream_.copy_out(sums_.data(), told_.address(), told_.bytes()));
    return stream_.wait();
  }
  const std::byte* sums() const { return sums_.data() + 16; }

  // In halves where `halves` is 2, each of whole chunks for every block.
  Status allocate(uint64_t halves) {
    BATON_TRY(const uint64_t free, card_.free_bytes());
    const uint64_t unit = kChunkBytes * blocks_ * halves;
    const uint64_t wanted = std::min(sizes_.bytes, std::max(free / 4, std::min(kBytesLeast, sizes_.bytes)));
    const uint64_t bytes = std::max(wanted / unit, uint64_t{1}) * unit;
    BATON_TRY(memory_, card_.allocate(bytes, "the measurement of its memory"));
    work_.from = memory_.address();
    work_.to = memory_.address() + (halves == 2 ? bytes / 2 : 0);
    work_.vectors = bytes / halves / 16;
    return {};
  }
  Status fill() {
    LimitWork fill = work_;
    fill.to = fill.from;
    return stream_.launch("baton_limit_fill", blocks_, kLimitThreads, 0, &fill);
  }
  Status launch(std::string_view kernel, uint32_t threads, uint32_t shared, uint32_t rounds) {
    work_.rounds = rounds;
    return stream_.launch(kernel, blocks_, threads, shared, &work_);
  }
  tl::unexpected<Error> undone(std::string_view kernel) const {
    return fail(Code::kInternal,
                fmt::format("{} on {}: what was to be measured was not all done", kernel, card_name(card_)));
  }

  Status check_read(uint32_t rounds) {
    BATON_OK(take_sums());
    uint32_t all = 0;
    for (uint32_t i = 0; i < warps_; ++i) {
      uint32_t sum = 0;
      std::memcpy(&sum, sums() + i * sizeof(sum), sizeof(sum));
      if (sum == kNoSumWord) return undone("baton_limit_read");
      all ^= sum;
    }
    if (all != expected_read(work_.vectors, rounds)) return undone("baton_limit_read");
    return {};
  }

  Result<Rate> read() {
    BATON_OK(settle("baton_limit_read", kLimitThreads, 0));
    BATON_OK(allocate(1));
    BATON_OK(fill());
    const auto bytes = static_cast<double>(work_.vectors * 16);
    return rate([&] { return fmt::format("read of {} by kernels, {}", whole_mib(memory_.bytes()), card_name(card_)); },
                [&] { return bytes; },
                [&](uint32_t rounds) { return launch("baton_limit_read", kLimitThreads, 0, rounds); },
                [&](uint32_t rounds) { return check_read(rounds); });
  }

  Result<Rate> copy() {
    BATON_OK(settle("baton_limit_read", kLimitThreads, 0));
    BATON_OK(allocate(2));
    BATON_OK(fill());
    BATON_OK(stream_.fill(work_.to, kNoSum, work_.vectors * 16));
    const auto bytes = static_cast<double>(work_.vectors * 16 * 2);
    const Address from = work_.from;
    const auto what = [&] {
      return fmt::format("copy of {} by kernels, read and written, {}", whole_mib(memory_.bytes() / 2),
                         card_name(card_));
    };
    BATON_TRY(Rate copied, rate(
                               what, [&] { return bytes; },
                               [&](uint32_t rounds) { return launch("baton_limit_copy", kLimitThreads, 0, rounds); },
                               [](uint32_t) { return Status(); }));
    work_.from = work_.to;
    BATON_OK(launch("baton_limit_read", kLimitThreads, 0, 1));
    work_.from = from;
    BATON_OK(check_read(1));
    return copied;
  }

  Result<Rate> from_host() {
    const uint64_t bytes = sizes_.pinned_bytes;
    BATON_TRY(memory_, card_.allocate(bytes, "the measurement of its link"));
    BATON_TRY(const PinnedMemory pinned, card_.allocate_pinned(bytes));
    std::memset(pinned.data(), 1, bytes);
    return rate([&] { return fmt::format("copies of {} from pinned memory, {}", whole_mib(bytes), card_name(card_)); },
                [&] { return static_cast<double>(bytes); },
                [&](uint32_t rounds) -> Status {
                  for (uint32_t i = 0; i < rounds; ++i)
                    BATON_OK(stream_.copy_in(memory_.address(), pinned.data(), bytes));
                  return {};
                },
                [](uint32_t) { return Status(); });
  }

  LimitPath path() const {
    uint32_t path = 0;
    std::memcpy(&path, sums_.data(), sizeof(path));
    return static_cast<LimitPath>(path);
  }
  double sum_of_floats() const {
    double all = 0;
    for (uint32_t i = 0; i < warps_; ++i) {
      float sum = 0;
      std::memcpy(&sum, sums() + i * sizeof(sum), sizeof(sum));
      all += sum;
    }
    return all;
  }

  // Of one block in a round: operations, and the sum of what comes out.
  struct Round {
    double operations = 0, sum = 0;
  };
  static Round wgmma_round() {
    Round round;
    round.operations = 2.0 * kLimitWgmmas * 2 * 64 * 256 * 16;
    for (uint32_t place = 0; place < 8; ++place) {
      double rows = 0, columns = 0;
      for (uint32_t i = 0; i < 2 * 64; ++i) rows += limit_number(i, place);
      for (uint32_t i = 2 * 64; i < 2 * 64 + 256; ++i) columns += limit_number(i, place);
      round.sum += 2 * kLimitWgmmas * rows * columns;  // 16 of K are two such places
    }
    return round;
  }
  static Round mma_round() {
    constexpr double kAll = kLimitMmas * (kLimitProductThreads / 32);
    Round round;
    round.operations = kAll * 2 * 16 * 8 * 16;
    double values = 0;  // of all rows
    for (uint32_t i = 0; i < 128; ++i) values += limit_number(i, 0) + limit_number(i, 1);
    round.sum = kAll * values * 8 * limit_number(0, 0);
    return round;
  }

  Result<Rate> products() {
    BATON_OK(settle("baton_limit_products", kLimitProductThreads, kLimitProductShared));
    Round round;
    return rate(
        [&] {
          return fmt::format("bf16 {}, sums in f32, {}",
                             path() == LimitPath::kWgmma ? "wgmma m64n256k16" : "mma m16n8k16", card_name(card_));
        },
        [&] { return round.operations * blocks_; },
        [&](uint32_t rounds) {
          return launch("baton_limit_products", kLimitProductThreads, kLimitProductShared, rounds);
        },
        [&](uint32_t rounds) -> Status {
          BATON_OK(take_sums());
          round = path() == LimitPath::kWgmma ? wgmma_round() : mma_round();
          const double expected = round.sum * blocks_ * rounds;
          // Sums of many rounds are rounded, on tensor cores downwards.
          if (!(std::abs(sum_of_floats() - expected) <= 0.02 * expected)) return undone("baton_limit_products");
          return {};
        });
  }

  Result<Rate> floats() {
    BATON_OK(settle("baton_limit_f32", kLimitThreads, 0));
    const double each = static_cast<double>(kLimitSums) * kLimitThreads * blocks_;
    return rate([&] { return fmt::format("f32 multiply-adds, {}", card_name(card_)); }, [&] { return 2 * each; },
                [&](uint32_t rounds) { return launch("baton_limit_f32", kLimitThreads, 0, rounds); },
                [&](uint32_t rounds) -> Status {
                  BATON_OK(take_sums());
                  const double expected = each * (rounds + (kLimitSums - 1) / 2.0);  // sum i begins as i
                  if (!(std::abs(sum_of_floats() - expected) <= 1e-4 * expected)) return undone("baton_limit_f32");
                  return {};
                });
  }

  Card& card_;
  const CardLimitSizes& sizes_;
  LimitWork work_;
  uint32_t blocks_ = 0, warps_ = 0;
  DeviceMemory memory_, told_;
  PinnedMemory sums_;
  Event begin_, end_;
  Stream stream_;  // goes first: what it still does is on the memory
};

}  // namespace

Result<Rate> measure_limit(Card& card, DeviceLimit which, const CardLimitSizes& sizes) {
  return Measurement(card, sizes).run(which);
}

Result<double> measure_link(Card& card, Stream& stream, Address to, const PinnedMemory& from, uint64_t bytes) {
  BATON_TRY(Event begin, card.event(true));
  BATON_TRY(Event end, card.event(true));
  constexpr int kTimes = 3, kCopies = 4;
  double best = 0;
  for (int i = 0; i < kTimes; ++i) {
    BATON_OK(stream.record(begin));
    for (int j = 0; j < kCopies; ++j) BATON_OK(stream.copy_in(to, from.data(), bytes));
    BATON_OK(stream.record(end));
    BATON_OK(stream.wait());
    BATON_TRY(const float ms, end.milliseconds_since(begin));
    best = std::max(best, static_cast<double>(bytes) * kCopies / std::max(static_cast<double>(ms), 1e-6) * 1e3);
  }
  return best;
}

}  // namespace baton::cuda
