// Tokens to a syntax tree, by the grammar of jinja2 3.1 with loop controls.
#pragma once

#include <string_view>

#include "baton/base/status.h"
#include "baton/text/jinja/ast.h"

namespace baton::jinja {

// `nesting_max` bounds parentheses and blocks; the depth of the tree is at most four times that.
// kInvalidInput for syntax errors, kUnsupported for statements that are not implemented; both with the line.
Result<Tree> parse(std::string_view source, size_t nesting_max);

}  // namespace baton::jinja
