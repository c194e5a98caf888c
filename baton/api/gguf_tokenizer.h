// A tokenizer from the metadata of a GGUF file.
#pragma once

#include "baton/base/status.h"
#include "baton/model/container.h"
#include "baton/text/tokenizer.h"

namespace baton {

// Errors name the key, not the file.
Result<Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata);

}  // namespace baton
