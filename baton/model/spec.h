// Bounds of hyper-parameters; reading them from files is config_reader.h's and each architecture's.
#pragma once

#include <string_view>

#include "baton/base/status.h"
#include "baton/model/model.h"

namespace baton {

inline constexpr int64_t kHiddenMax = 1 << 16;
inline constexpr int64_t kLayersMax = 1024;
inline constexpr int64_t kHeadsMax = 4096;
inline constexpr int64_t kHeadDimMax = 4096;
inline constexpr int64_t kVocabMax = 1 << 22;
inline constexpr int64_t kExpertsMax = 4096;
inline constexpr int64_t kExpertsUsedMax = 64;

// Errors name the file, the quantity and what it must be.
Status validate(const ModelSpec& spec, std::string_view file);

}  // namespace baton
