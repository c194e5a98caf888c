// Grammars as constraints of a sampler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baton/grammar/matcher.h"
#include "baton/grammar/vocabulary.h"
#include "baton/sample/constraint.h"

namespace baton::grammar {

// The tokens whose bytes go on with what the grammar allows; an id that ends an answer where the grammar may end, and
// nothing else behind its end.
class GrammarConstraint final : public TokenConstraint {
 public:
  // `spaced`: up to four spaces or line ends may come first.
  GrammarConstraint(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar,
                    bool spaced = false);

  void allow(std::span<uint32_t> allowed) override;
  Status accept(int32_t id) override;
  void reset() override;

  // The text so far may end here.
  bool can_end() const { return matcher_.can_end(); }
  // Bytes without tokens; false, and as before: they cannot come here.
  bool push(std::string_view bytes) { return matcher_.push(bytes); }
  const std::shared_ptr<const Vocabulary>& vocabulary() const { return vocabulary_; }
  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Grammar> grammar_;
  Matcher matcher_;
  bool ended_ = false;
  bool stuck_ = false;  // no token goes on, and it may not end
};

// Anything but an end until `marker` was written, then the grammar, with up to four spaces or line ends between them.
class BehindMarker final : public TokenConstraint {
 public:
  // `marker_id`: the token that is the marker, where there is one; -1.
  BehindMarker(std::string marker, int32_t marker_id, std::shared_ptr<const Vocabulary> vocabulary,
               std::shared_ptr<const Grammar> grammar);

  void allow(std::span<uint32_t> allowed) override;
  Status accept(int32_t id) override;
  void reset() override;

 private:
  // How much of the marker was written, `bytes` behind what was; the whole of it: how many bytes are left in *rest.
  size_t advance(size_t seen, std::string_view bytes, size_t* rest) const;

  std::string marker_;
  int32_t marker_id_;
  std::vector<size_t> border_;  // of each prefix: its longest prefix that is also its end
  GrammarConstraint inner_;
  std::vector<int32_t> longer_;  // tokens with bytes behind a byte that may end the marker
  size_t seen_ = 0;
};

}  // namespace baton::grammar
