// Thinking before an answer: the flags that ask for it or not, and how it looks on a terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "baton/api/text_model.h"

namespace baton::cli {

struct ThinkingFlags {
  bool on = false, off = false;

  void add_to(CLI::App& app);
  std::optional<bool> asked() const;  // empty: the template's own default
  // A warning where the template does not know it: the flag changes nothing.
  void warn(const TextModel& text) const;
};

// Text between <think> and </think> in dim letters; other text as it is. For streams: a tag may come in pieces.
class ThinkingView {
 public:
  // `opening`: what the template writes before the answer; some begin the thinking there. Not `dim`: all as it is.
  ThinkingView(bool dim, std::string_view opening);
  std::string push(std::string_view text);
  // The end of the answer: what was held back, and letters as before.
  std::string finish();

 private:
  const bool dim_;
  bool thinking_ = false, shown_dim_ = false;
  std::string held_;
};

}  // namespace baton::cli
