// A tokenizer from the metadata of a GGUF file, and into it.
#pragma once

#include "baton/base/status.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"
#include "baton/text/tokenizer.h"
#include "baton/text/tokenizer_to_gguf.h"

namespace baton {

// Errors name the key, not the file.
Result<Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata);

// All of its keys.
void put_tokenizer(const GgufTokenizer& tokenizer, GgufWriter& writer);

}  // namespace baton
