// Ranks of merges as scores of what they make, where both give the same pieces.
#pragma once

#include <vector>

#include "baton/text/tokenizer_spec.h"

namespace baton {

struct MergeScores {
  std::vector<double> values;  // by id: minus the rank of what is made, below all of those for single characters
  // Merges by these scores are the file's: each way to cut a token in two is a merge, and those that make one token
  // follow each other, or are among those of other tokens that users defined. So files have it that were made of
  // SentencePiece's scores.
  bool same_order = false;
};

MergeScores merge_scores(const TokenizerSpec& spec);

}  // namespace baton
