// Tokens to bytes, and when an answer may end.
#include "baton/grammar/constraint.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::grammar {
namespace {

void set_bit(std::span<uint32_t> bits, int32_t id) {
  const size_t word = static_cast<size_t>(id) / 32;
  if (word < bits.size()) bits[word] |= 1u << (id % 32);
}
void clear_bit(std::span<uint32_t> bits, int32_t id) {
  const size_t word = static_cast<size_t>(id) / 32;
  if (word < bits.size()) bits[word] &= ~(1u << (id % 32));
}

}  // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<const Vocabulary> vocabulary,
                                     std::shared_ptr<const Grammar> grammar, bool spaced)
    : vocabulary_(std::move(vocabulary)), grammar_(std::move(grammar)), matcher_(grammar_, spaced) {}

void GrammarConstraint::allow(std::span<uint32_t> allowed) {
  std::fill(allowed.begin(), allowed.end(), 0);
  BATON_CHECK(allowed.size() >= vocabulary_->words());
  if (!ended_) matcher_.allow(*vocabulary_, allowed);
  const bool none = std::all_of(allowed.begin(), allowed.end(), [](uint32_t word) { return word == 0; });
  stuck_ = none && !ended_ && !matcher_.can_end();
  if (!none && !matcher_.can_end()) return;
  for (const int32_t id : vocabulary_->stop_ids()) set_bit(allowed, id);
}

Status GrammarConstraint::accept(int32_t id) {
  if (stuck_) {
    return fail(Code::kUnsupported, matcher_.overflowed()
                                        ? "the grammar is too ambiguous or nested too deep here: make it simpler"
                                        : "no token of this model goes on with what the grammar asks for");
  }
  if (vocabulary_->stops(id)) {
    if (!ended_ && !matcher_.can_end())
      return fail(Code::kInternal, fmt::format("token {}: the answer cannot end here", id));
    ended_ = true;
    return {};
  }
  const std::string_view bytes = vocabulary_->bytes(id);
  if (ended_ || bytes.empty() || !matcher_.push(bytes)) {
    return fail(Code::kInternal, fmt::format("token {} is not what the grammar allows here", id));
  }
  return {};
}

void GrammarConstraint::reset() {
  matcher_.reset();
  ended_ = stuck_ = false;
}

BehindMarker::BehindMarker(std::string marker, int32_t marker_id, std::shared_ptr<const Vocabulary> vocabulary,
                           std::shared_ptr<const Grammar> grammar)
    : marker_(std::move(marker)),
      marker_id_(marker_id),
      border_(marker_.size() + 1),
      inner_(std::move(vocabulary), std::move(grammar), true) {
  for (size_t i = 1, k = 0; i < marker_.size(); ++i) {
    while (k > 0 && marker_[i] != marker_[k]) k = border_[k];
    if (marker_[i] == marker_[k]) ++k;
    border_[i + 1] = k;
  }
  const Vocabulary& words = *inner_.vocabulary();
  for (size_t id = 0; id < words.words() * 32; ++id) {
    const std::string_view bytes = words.bytes(static_cast<int32_t>(id));
    if (!marker_.empty() && bytes.size() > 1 && bytes.find(marker_.back()) < bytes.size() - 1) {
      longer_.push_back(static_cast<int32_t>(id));
    }
  }
}

size_t BehindMarker::advance(size_t seen, std::string_view bytes, size_t* rest) const {
  for (size_t i = 0; i < bytes.size() && seen < marker_.size(); ++i) {
    while (seen > 0 && marker_[seen] != bytes[i]) seen = border_[seen];
    if (marker_[seen] == bytes[i]) ++seen;
    *rest = bytes.size() - i - 1;
  }
  return seen;
}

void BehindMarker::allow(std::span<uint32_t> allowed) {
  if (seen_ == marker_.size()) return inner_.allow(allowed);
  std::fill(allowed.begin(), allowed.end(), ~0u);
  const Vocabulary& words = *inner_.vocabulary();
  for (const int32_t id : words.stop_ids()) clear_bit(allowed, id);
  for (const int32_t id : longer_) {
    const std::string_view bytes = words.bytes(id);
    size_t rest = 0;
    if (advance(seen_, bytes, &rest) < marker_.size() || rest == 0) continue;
    const bool fits = inner_.push(bytes.substr(bytes.size() - rest));
    inner_.reset();
    if (!fits) clear_bit(allowed, id);
  }
}

Status BehindMarker::accept(int32_t id) {
  if (seen_ == marker_.size()) return inner_.accept(id);
  if (inner_.vocabulary()->stops(id)) {
    return fail(Code::kInternal, fmt::format("token {}: the answer cannot end before {}", id, marker_));
  }
  if (id == marker_id_) {
    seen_ = marker_.size();
    return {};
  }
  const std::string_view bytes = inner_.vocabulary()->bytes(id);
  size_t rest = 0;
  const size_t seen = advance(seen_, bytes, &rest);
  if (seen == marker_.size() && rest > 0 && !inner_.push(bytes.substr(bytes.size() - rest))) {
    return fail(Code::kInternal, fmt::format("token {} is not what the grammar allows behind {}", id, marker_));
  }
  seen_ = seen;
  return {};
}

void BehindMarker::reset() {
  inner_.reset();
  seen_ = 0;
}

}  // namespace baton::grammar
