// Decomposition and composition by utf8proc, the canonical ordering between them by a stable sort.
#include "baton/text/nfc.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace baton {
namespace {

tl::unexpected<Error> nfc_failure(utf8proc_ssize_t code) {
  return fail(code == UTF8PROC_ERROR_NOMEM ? Code::kOutOfMemory : Code::kInternal,
              fmt::format("normal form: {}", utf8proc_errmsg(code)));
}

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Marks between two starters (class 0) are ordered by class; equal ones keep their order.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return combining_class(code) != 0; };
  const auto before = [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); };
  for (auto at = codes.begin(); at != codes.end();) {
    const auto first = std::find_if(at, codes.end(), is_mark);
    at = std::find_if_not(first, codes.end(), is_mark);
    if (at - first > 1 && !std::is_sorted(first, at, before)) std::stable_sort(first, at, before);
  }
}

}  // namespace

Result<std::string> to_normal_form(std::string_view text, NormalForm form) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
                                                      (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  constexpr utf8proc_ssize_t kDecomposedMax = 32;  // code points of one; Unicode has 4
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size() + 1);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (length <= 0) return nfc_failure(UTF8PROC_ERROR_INVALIDUTF8);
    at += static_cast<size_t>(length);
    utf8proc_int32_t decomposed[kDecomposedMax];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(code, decomposed, kDecomposedMax, options, &boundary);
    if (count < 0 || count > kDecomposedMax) return nfc_failure(count < 0 ? count : UTF8PROC_ERROR_OVERFLOW);
    codes.insert(codes.end(), decomposed, decomposed + count);
  }
  order_marks(codes);
  const auto count = static_cast<utf8proc_ssize_t>(codes.size());
  codes.push_back(0);  // reencode writes UTF-8 over the code points, and a zero behind it
  const utf8proc_ssize_t made = utf8proc_reencode(codes.data(), count, options);
  if (made < 0) return nfc_failure(made);
  return std::string(reinterpret_cast<const char*>(codes.data()), static_cast<size_t>(made));
}

}  // namespace baton
