// Errors as values. Three kinds, three means: a bug stops the process (BATON_CHECK), an expected failure is a Result,
// a foreign exception is caught once at the edge of the code that calls the foreign library.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace baton {

enum class Code {
  kInvalidInput,  // a file, a flag or a request that is wrong; the user can mend it
  kNotFound,      // a file, tensor, unit or name that does not exist
  kUnsupported,   // well-formed, but nothing here can do it
  kCorrupt,       // bytes that fail a check
  kMismatch,      // a sealed state that belongs to another model, tokenizer or prompt
  kOutOfMemory,   // memory, context or a bounded queue is full
  kCancelled,     // the caller asked for it
  kDevice,        // a compute unit failed
  kUnavailable,   // a compute unit, or its device, is lost: it will do nothing more
  kInternal,      // a foreign exception or a broken promise between parts
};

std::string_view to_string(Code code);

// What went wrong, in words a user can act on: the file, the offset or field, and the remedy.
struct [[nodiscard]] Error {
  Code code = Code::kInternal;
  std::string message;

  // The same error with the caller's view put in front: "loading m.gguf: tensor 'x': offset 12 past the end".
  Error in(std::string_view where) && {
    message.insert(0, ": ").insert(0, where);
    return std::move(*this);
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(Code code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

// Stops the process with the condition, file and line: only for bugs, also in release builds, never for input.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace baton

#define BATON_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::baton::check_failed(#condition, __FILE__, __LINE__))

#define BATON_CONCAT_(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_(a, b)

// BATON_TRY(auto file, open(path));  returns the error to the caller, or declares `file` with the value.
#define BATON_TRY(declaration, expression) BATON_TRY_(BATON_CONCAT(result_, __LINE__), declaration, expression)
#define BATON_TRY_(result, declaration, expression)             \
  auto result = (expression);                                   \
  if (!result) return ::baton::fail(std::move(result).error()); \
  declaration = *std::move(result)

// BATON_OK(step(x));  for Status, or when the value is not needed.
#define BATON_OK(expression)                           \
  do {                                                 \
    if (auto status = (expression); !status) {         \
      return ::baton::fail(std::move(status).error()); \
    }                                                  \
  } while (false)
