// Memory for the words of a list (word_list.h), as a workspace has it.
#pragma once

#include <cstdint>
#include <vector>

#include "baton/unit/cuda/instruction.h"
#include "baton/unit/cuda/word_list.h"

namespace baton::cuda {

class WordsOfList {
 public:
  // As put_words; nothing if the list has none.
  void put(std::vector<Instruction>& list) {
    std::vector<Instruction> copy = list;
    bytes_ = put_words(copy, 0);
    memory_.assign(2 * bytes_ / sizeof(uint32_t) + 8, kNoWord);
    at_ = (reinterpret_cast<Address>(memory_.data()) + 31) / 32 * 32;
    put_words(list, at_);
  }
  void tell(ListWork& work) const { work.words = at_, work.words_bytes = bytes_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<uint32_t> memory_;
  Address at_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace baton::cuda
