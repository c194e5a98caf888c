// Keys of models whose layers see chunks of the text (BlockSpec::chunked). llama.cpp takes most of what is theirs for
// granted: what it has no key for is written under names that its other models have.
#pragma once

#include <string>
#include <string_view>

#include "baton/model/gguf_writer.h"
#include "baton/model/model.h"

namespace baton {

// Chunks, factors of queries, layers of experts; behind the keys of all decoders.
void put_chunks(GgufWriter& writer, const ModelSpec& spec, const std::string& prefix);

// A field that GGUF cannot keep; none: empty.
struct Unsayable {
  std::string_view field, why;
};
Unsayable unsayable_chunks(const ModelSpec& spec);

// What llama.cpp does not look at, for people; empty where it is as there.
std::string lost_chunks(const ModelSpec& spec);

}  // namespace baton
