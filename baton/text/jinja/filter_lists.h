// Where find_filter looks beside its own list.
#pragma once

#include <span>

#include "baton/text/jinja/runtime.h"

namespace baton::jinja {

std::span<const Callable> sequence_filters();

}  // namespace baton::jinja
