// Reads tokenizer.json as a stream into one arena, without a tree of its vocabulary in memory.
#include "baton/text/tokenizer_file.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace baton {
namespace {

using nlohmann::json;

constexpr size_t kRestValuesMax = 2'000'000;  // values outside vocabulary and merges
constexpr size_t kMergesMax = 4'000'000;

// SAX events to: vocabulary entries, merges, and a document of everything else.
class TokenizerFileEvents {
 public:
  TokenizerFileEvents(TokenizerSpec* spec, size_t file_bytes) : spec_(spec) {
    // Unescaped strings are never longer than their text in the file.
    spec->arena = std::make_unique_for_overwrite<char[]>(file_bytes + 1);
    next_ = spec->arena.get();
  }

  TokenizerFile take() {
    return {std::move(rest_), std::move(vocab_), saw_vocab_, saw_merges_, vocab_is_list_, std::move(scores_)};
  }
  const std::string& error() const { return error_; }

  bool null() { return scalar(json(nullptr), "null"); }
  bool boolean(bool value) { return scalar(json(value), "a boolean"); }
  bool number_integer(json::number_integer_t value) {
    if (in_ == In::kScoredPair) return score(static_cast<double>(value));
    if (in_ != In::kVocab) return scalar(json(value), "a number");
    return stop(fmt::format("model.vocab['{}'] is {}: ids are not negative", vocab_key_, value));
  }
  bool number_unsigned(json::number_unsigned_t value) {
    if (in_ == In::kScoredPair) return score(static_cast<double>(value));
    if (in_ != In::kVocab) return scalar(json(value), "a number");
    if (value >= static_cast<uint64_t>(kTokensMax)) {
      return stop(fmt::format("model.vocab['{}'] is {}: ids must be below {}", vocab_key_, value, kTokensMax));
    }
    vocab_.push_back({vocab_key_, static_cast<int32_t>(value)});
    return true;
  }
  bool number_float(json::number_float_t value, const json::string_t&) {
    return in_ == In::kScoredPair ? score(value) : scalar(json(value), "a number");
  }
  bool string(json::string_t& value) {
    if (in_ == In::kScoredPair) {
      if (pair_count_++ != 0) return stop(fmt::format("model.vocab[{}] is not a text and a score", vocab_.size()));
      if (vocab_.size() >= static_cast<size_t>(kTokensMax)) {
        return stop(fmt::format("model.vocab has more than {} tokens", kTokensMax));
      }
      vocab_.push_back({keep(value), static_cast<int32_t>(vocab_.size())});
      return true;
    }
    if (in_ == In::kMergePair) {
      if (pair_count_ >= 2) return stop(fmt::format("model.merges[{}] has more than two parts", spec_->merges.size()));
      pair_[pair_count_++] = keep(value);
      return true;
    }
    if (in_ == In::kMerges) {
      const std::string_view merge = keep(value);
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos) {
        return stop(fmt::format("model.merges[{}] is '{}': not two parts", spec_->merges.size(), value));
      }
      return add_merge({merge.substr(0, space), merge.substr(space + 1)});
    }
    return scalar(json(std::move(value)), "a string");
  }
  bool binary(json::binary_t&) { return stop("binary value"); }
  bool key(json::string_t& value) {
    if (in_ == In::kVocab) {
      vocab_key_ = keep(value);
    } else {
      keys_.back() = value;
    }
    return true;
  }
  bool start_object(size_t) {
    if (in_ != In::kRest) return stop(fmt::format("an object inside {}", place()));
    if (is_at("model", "vocab")) {
      if (saw_vocab_) return stop("model.vocab appears twice");
      saw_vocab_ = true;
      in_ = In::kVocab;
      return true;
    }
    return open(json::object());
  }
  bool end_object() {
    if (in_ == In::kVocab) {
      in_ = In::kRest;
      return true;
    }
    return close();
  }
  bool start_array(size_t) {
    if (in_ == In::kMerges) {
      in_ = In::kMergePair;
      pair_count_ = 0;
      return true;
    }
    if (in_ == In::kScoredList) {
      in_ = In::kScoredPair;
      pair_count_ = 0;
      return true;
    }
    if (in_ != In::kRest) return stop(fmt::format("an array inside {}", place()));
    if (is_at("model", "vocab")) {
      if (saw_vocab_) return stop("model.vocab appears twice");
      saw_vocab_ = vocab_is_list_ = true;
      in_ = In::kScoredList;
      return true;
    }
    if (is_at("model", "merges")) {
      if (saw_merges_) return stop("model.merges appears twice");
      saw_merges_ = true;
      in_ = In::kMerges;
      return true;
    }
    return open(json::array());
  }
  bool end_array() {
    if (in_ == In::kMergePair) {
      if (pair_count_ != 2) return stop(fmt::format("model.merges[{}] has not two parts", spec_->merges.size()));
      in_ = In::kMerges;
      return add_merge({pair_[0], pair_[1]});
    }
    if (in_ == In::kScoredPair) {
      if (pair_count_ != 2) return stop(fmt::format("model.vocab[{}] is not a text and a score", vocab_.size()));
      in_ = In::kScoredList;
      return true;
    }
    if (in_ == In::kMerges || in_ == In::kScoredList) {
      in_ = In::kRest;
      return true;
    }
    return close();
  }
  bool parse_error(size_t position, const std::string&, const json::exception& e) {
    // The library's message begins with "[json.exception.parse_error.101] ".
    const std::string_view what = e.what();
    const size_t end = what.find("] ");
    return stop(fmt::format("byte {}: {}", position, end == std::string_view::npos ? what : what.substr(end + 2)));
  }

 private:
  enum class In { kRest, kVocab, kMerges, kMergePair, kScoredList, kScoredPair };

  bool score(double value) {
    if (pair_count_++ != 1) return stop(fmt::format("model.vocab[{}] is not a text and a score", vocab_.size()));
    scores_.push_back(value);
    return true;
  }

  bool stop(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  std::string_view place() const {
    return in_ == In::kMerges || in_ == In::kMergePair ? "model.merges" : "model.vocab";
  }
  std::string_view keep(const std::string& value) {
    const std::string_view kept(next_, value.size());
    std::memcpy(next_, value.data(), value.size());
    next_ += value.size();
    return kept;
  }
  bool add_merge(TokenizerSpec::Merge merge) {
    if (spec_->merges.size() >= kMergesMax) return stop(fmt::format("more than {} merges", kMergesMax));
    spec_->merges.push_back(merge);
    return true;
  }
  bool is_at(std::string_view outer, std::string_view inner) const {
    return open_.size() == 2 && open_[1].is_object() && keys_[0] == outer && keys_[1] == inner;
  }

  // The rest is built bottom up: containers under construction on a stack.
  bool scalar(json value, std::string_view what) {
    if (in_ != In::kRest) return stop(fmt::format("{} inside {}", what, place()));
    return put(std::move(value));
  }
  bool put(json value) {
    if (++rest_values_ > kRestValuesMax) return stop("too many values");
    if (open_.empty()) {
      rest_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      open_.back()[keys_.back()] = std::move(value);
    }
    return true;
  }
  bool open(json container) {
    if (open_.size() >= kTokenizerDepthMax) return stop(fmt::format("nested deeper than {}", kTokenizerDepthMax));
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return put(std::move(done));
  }

  TokenizerSpec* spec_;
  char* next_ = nullptr;
  In in_ = In::kRest;
  std::string_view vocab_key_;
  std::vector<VocabEntry> vocab_;
  std::string_view pair_[2];
  int pair_count_ = 0;
  bool saw_vocab_ = false, saw_merges_ = false, vocab_is_list_ = false;
  std::vector<double> scores_;
  json rest_;
  std::vector<json> open_;
  std::vector<std::string> keys_;
  size_t rest_values_ = 0;
  std::string error_;
};

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view text, TokenizerSpec* spec) {
  TokenizerFileEvents events(spec, text.size());
  if (!json::sax_parse(text.begin(), text.end(), &events)) return fail(Code::kInvalidInput, events.error());
  return events.take();
}

}  // namespace baton
