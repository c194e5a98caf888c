// One request out of bytes as they come: head, then body. Knows no sockets, so that tests and fuzzers can drive it. It
// holds what it was given and no more: nothing is reserved for what a client only announces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "baton/http/chunks.h"
#include "baton/http/head.h"
#include "baton/http/server.h"

namespace baton::http {

class RequestReader {
 public:
  enum class Progress : uint8_t { kMore, kDone, kRefused };

  explicit RequestReader(const Limits& limits) : limits_(limits) {}
  // Takes from the front of `bytes` what belongs to this request; behind kDone and kRefused it may not be called again.
  Progress put(std::string_view& bytes);

  bool started() const { return in_body_ || !head_.empty(); }
  bool in_body() const { return in_body_; }
  const HeadFacts& facts() const { return facts_; }    // once in the body, or done
  const Request& request() const { return request_; }  // `method`, `path`, `query`, `headers`, `body`
  Request take() { return std::move(request_); }       // once done
  const Refusal& refusal() const { return refusal_; }  // once refused

 private:
  Progress refuse(Refusal refusal);
  Progress put_head(std::string_view& bytes);
  Progress put_body(std::string_view& bytes);
  Progress check_byte(char byte);
  Progress end_head();

  const Limits& limits_;
  std::string head_;
  Request request_;
  HeadFacts facts_;
  ChunkReader chunks_;
  Refusal refusal_;
  uint32_t blank_lines_ = 0;  // in front of the request line
  bool line_checked_ = false, in_body_ = false;
};

}  // namespace baton::http
