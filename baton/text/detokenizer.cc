// Holding back: unfinished characters, and text that may be the beginning of a stop string.
#include "baton/text/detokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string* out) {
  for (size_t at = 0; at < bytes.size();) {
    if (pending_count_ == 0) {
      const Utf8Char c = decode_utf8(bytes, at);
      if (c.truncated) {
        pending_count_ = c.length;
        std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), c.length, pending_);
        return;
      }
      out->append(c.valid ? bytes.substr(at, c.length) : kReplacement);
      at += c.length;
      continue;
    }
    // One byte more decides: still unfinished, whole, or ill-formed without that byte.
    pending_[pending_count_] = bytes[at];
    const std::string_view tried(pending_, static_cast<size_t>(pending_count_) + 1);
    const Utf8Char c = decode_utf8(tried, 0);
    if (c.truncated) {
      ++pending_count_;
      ++at;
    } else if (c.valid) {
      out->append(tried);
      pending_count_ = 0;
      ++at;
    } else {
      out->append(kReplacement);
      pending_count_ = 0;  // the byte begins something else
    }
  }
}

void Utf8Stream::finish(std::string* out) {
  if (pending_count_ > 0) out->append(kReplacement);
  pending_count_ = 0;
}

Result<std::string> Detokenizer::push(int32_t id) {
  if (id < 0 || id >= tokenizer_->vocab_size()) {
    return fail(Code::kInvalidInput,
                fmt::format("token id {} is outside the vocabulary of {}", id, tokenizer_->vocab_size()));
  }
  std::string text;
  if (skip_special_ && tokenizer_->is_special(id)) return text;
  std::string_view bytes = tokenizer_->token_bytes(id);
  for (; spaces_ > 0 && bytes.starts_with(' '); --spaces_) bytes.remove_prefix(1);
  if (!bytes.empty()) spaces_ = 0;
  stream_.push(bytes, &text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  stream_.finish(&text);
  return text;
}

Result<StopStrings> StopStrings::create(std::vector<std::string> stops) {
  if (stops.size() > kStringsMax) {
    return fail(Code::kInvalidInput, fmt::format("{} stop strings: at most {}", stops.size(), kStringsMax));
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return fail(Code::kInvalidInput, fmt::format("stop string {} is empty", i));
    if (stops[i].size() > kBytesMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("stop string {} has {} bytes: at most {}", i, stops[i].size(), kBytesMax));
    }
  }
  StopStrings made;
  made.stops_ = std::move(stops);
  return made;
}

StopStrings::Output StopStrings::push(std::string_view text) {
  Output output;
  if (matched_) return output;
  held_.append(text);
  // What came before was searched already: a match can begin only where text is held back.
  size_t match_at = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t found = held_.find(stops_[i]);
    if (found < match_at) match_at = found, output.match = i;
  }
  // A longer stop string that began earlier could still be completed: it would have to win.
  size_t hold_from = held_.size();
  for (const std::string& stop : stops_) {
    const size_t reach = std::min(stop.size() - 1, held_.size());
    for (size_t length = reach; length > 0; --length) {
      const size_t at = held_.size() - length;
      if (at >= hold_from) break;
      if (std::string_view(held_).substr(at) == std::string_view(stop).substr(0, length)) {
        hold_from = at;
        break;
      }
    }
  }
  if (output.match && match_at <= hold_from) {
    output.text = held_.substr(0, match_at);
    matched_ = true;
    held_.clear();
    return output;
  }
  output.match.reset();
  output.text = held_.substr(0, hold_from);
  held_.erase(0, hold_from);
  return output;
}

std::string StopStrings::finish() {
  // A match that waited for an earlier one that never came to its end.
  size_t match_at = std::string::npos;
  for (const std::string& stop : stops_) match_at = std::min(match_at, held_.find(stop));
  if (match_at != std::string::npos) matched_ = true;
  std::string text = held_.substr(0, match_at);
  held_.clear();
  return text;
}

}  // namespace baton
