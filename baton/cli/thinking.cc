// Thinking text on a terminal.
#include "baton/cli/thinking.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "baton/api/conversation.h"

namespace baton::cli {
namespace {

constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
constexpr std::string_view kDim = "\033[2m", kNormal = "\033[0m";

// Bytes at the end of `text` that `tag` may begin with.
size_t begun_tag(std::string_view text, std::string_view tag) {
  for (size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length) {
    if (tag.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

}  // namespace

void ThinkingFlags::add_to(CLI::App& app) {
  auto* think = app.add_flag("--think", on, "think before the answer, where the model's chat template knows it");
  app.add_flag("--no-think", off, "answer without thinking first")->excludes(think);
}

std::optional<bool> ThinkingFlags::asked() const {
  if (on || off) return on;
  return std::nullopt;
}

void ThinkingFlags::warn(const TextModel& text) const {
  if ((on || off) && !knows_thinking(text))
    spdlog::warn("the model's chat template has no switch for thinking: {} changes nothing",
                 on ? "--think" : "--no-think");
}

ThinkingView::ThinkingView(bool dim, std::string_view opening) : dim_(dim) {
  const size_t begin = opening.rfind(kBegin);
  thinking_ = begin != std::string_view::npos && opening.find(kEnd, begin) == std::string_view::npos;
}

std::string ThinkingView::push(std::string_view text) {
  if (!dim_) return std::string(text);
  held_ += text;
  std::string out;
  const auto show = [&](std::string_view part, bool dim) {
    if (part.empty()) return;
    if (dim != shown_dim_) out += dim ? kDim : kNormal;
    shown_dim_ = dim;
    out += part;
  };
  while (true) {
    const std::string_view tag = thinking_ ? kEnd : kBegin;
    if (const size_t at = held_.find(tag); at != std::string::npos) {
      const size_t end = at + tag.size();
      show(std::string_view(held_).substr(0, at), thinking_);
      show(tag, true);
      held_.erase(0, end);
      thinking_ = !thinking_;
      continue;
    }
    const size_t keep = begun_tag(held_, tag);
    show(std::string_view(held_).substr(0, held_.size() - keep), thinking_);
    held_.erase(0, held_.size() - keep);
    return out;
  }
}

std::string ThinkingView::finish() {
  std::string out;
  if (!held_.empty() && thinking_ != shown_dim_) {
    out += thinking_ ? kDim : kNormal;
    shown_dim_ = thinking_;
  }
  out += std::exchange(held_, {});
  if (std::exchange(shown_dim_, false)) out += kNormal;
  return out;
}

}  // namespace baton::cli
