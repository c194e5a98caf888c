// Digests of weights, remembered between processes: a file that has been summed once is not read again for it.
#pragma once

#include <cstdint>
#include <optional>

#include "baton/model/fingerprint.h"

namespace baton {

// The quantization fingerprint of a model whose files are what they were when it was remembered. Whatever is missing,
// damaged or unreadable is as if it had never been there.
std::optional<uint64_t> remembered_fingerprint(const Model& model, const FingerprintOptions& options);

// Does nothing for models without files, for files that changed in the last two seconds (a write in the same tick of
// the file system's clock would not show), and where nothing can be written. Drops the oldest beyond kRememberedMax.
void remember_fingerprint(const Model& model, const FingerprintOptions& options, uint64_t quantization);

}  // namespace baton
