// How far long work is and how long it still takes: a line on stderr that is rewritten, on a terminal; elsewhere
// nothing, or a plain line now and then.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "baton/base/clock.h"

namespace baton::cli {

// "45 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

class Progress {
 public:
  enum class Elsewhere : uint8_t { kNothing, kLines };
  // The time that is left is told from the time since now. Nothing is shown in the first half second, nor elsewhere
  // than on a terminal in the first five, and then each five.
  explicit Progress(std::string what, Elsewhere elsewhere = Elsewhere::kNothing);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // "<what> 512/2638, 4 s left; <detail>", at most ten times a second; all done: no time.
  void show(uint64_t done, uint64_t total, std::string_view detail = {});
  // "<what> 12 %, 4 s left", of a share done.
  void show_share(double share);
  // Takes the line away, before something else is written.
  void clear();

 private:
  // Whether it is time for another line.
  bool due(int64_t now_ns) const;
  // `share` of the work is done: the line, with the time left.
  void put(std::string text, double share, int64_t now_ns, std::string_view detail);

  const std::string what_;
  const bool on_terminal_, lines_;
  const SteadyClock clock_;
  const int64_t start_ns_;
  double share_ = 0;    // done when the work last went on
  int64_t end_ns_ = 0;  // when it ends, by that
  int64_t shown_ns_ = 0;
  bool visible_ = false;
};

}  // namespace baton::cli
