// What is given for a model, as a path: a file or folder that is there, or a name whose model is in the cache.
#pragma once

#include <string>

#include "baton/base/status.h"

namespace baton::hub {

// The path of a model of the cache, where `given` is no file or folder but the name of one; else `given`.
std::string model_path(const std::string& given);
// kNotFound: neither; the message has names that are near, of the folder and of the cache, and says what would fetch
// it.
Status check_model(const std::string& given);
// The name of a model of the cache that may be meant; empty: none is near.
std::string near_cached(const std::string& given);

}  // namespace baton::hub
