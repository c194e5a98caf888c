// See request_reader.h. The head is checked as a whole (head.h) and then parsed by Beast; bodies are framed here: Beast
// 1.74 lets control characters pass in extensions of chunks, and takes fields of a trailer for headers.
#include "baton/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/optional/optional.hpp>

namespace baton::http {
namespace {

namespace beast = boost::beast;
using beast::error_code;
using beast::string_view;

std::string to_string(string_view text) { return std::string(text.data(), text.size()); }

// Writes the head into a request; what would be the body is skipped.
class HeadParser final : public beast::http::basic_parser<true> {
 public:
  explicit HeadParser(Request& request) : request_(request) {}
  std::string target;

 private:
  void on_request_impl(beast::http::verb, string_view method, string_view text, int, error_code&) override {
    request_.method = to_string(method);
    target = to_string(text);
  }
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(beast::http::field, string_view name, string_view value, error_code&) override {
    std::string small = to_string(name);
    for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    request_.headers.emplace_back(std::move(small), to_string(value));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view body, error_code&) override { return body.size(); }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code&) override { return body.size(); }
  void on_finish_impl(error_code&) override {}

  Request& request_;
};

}  // namespace

RequestReader::Progress RequestReader::refuse(Refusal refusal) {
  refusal_ = std::move(refusal);
  return Progress::kRefused;
}

// What can never be in a head is refused as it comes: a client that ends lines in its own way would wait for the
// answer.
RequestReader::Progress RequestReader::check_byte(char byte) {
  const char last = head_.empty() ? '\0' : head_.back();
  if (byte == '\n' && last != '\r') return refuse({400, "a line of the head ends with LF alone"});
  if (byte != '\n' && last == '\r') return refuse({400, "a line of the head has a CR inside"});
  const auto code = static_cast<uint8_t>(byte);
  if ((code < 0x20 && byte != '\t' && byte != '\r' && byte != '\n') || code == 0x7f) {
    return refuse({400, head_.empty() ? "this port speaks HTTP/1.1 without TLS" : "the head has a control character"});
  }
  return Progress::kMore;
}

RequestReader::Progress RequestReader::put_head(std::string_view& bytes) {
  size_t used = 0;
  while (used < bytes.size()) {
    const char byte = bytes[used++];
    if (check_byte(byte) == Progress::kRefused) return Progress::kRefused;
    head_ += byte;
    if (head_.size() > limits_.header_bytes_max) {
      return refuse({line_checked_ ? 431 : 414,
                     fmt::format("the {} larger than {} bytes", line_checked_ ? "headers are" : "request line is",
                                 limits_.header_bytes_max)});
    }
    if (byte != '\n') continue;
    if (head_.size() == 2) {  // an empty line in front of the request: clients of old send one behind a body
      if (++blank_lines_ > 2) return refuse({400, "empty lines instead of a request"});
      head_.clear();
      continue;
    }
    if (!line_checked_) {
      if (auto refusal = check_request_line(std::string_view(head_).substr(0, head_.size() - 2), facts_)) {
        return refuse(*std::move(refusal));
      }
      line_checked_ = true;
    } else if (head_.ends_with("\r\n\r\n")) {
      bytes.remove_prefix(used);
      return end_head();
    }
  }
  bytes.remove_prefix(used);
  return Progress::kMore;
}

RequestReader::Progress RequestReader::end_head() {
  if (auto refusal = check_head(head_, limits_, facts_)) return refuse(*std::move(refusal));
  HeadParser parser(request_);
  parser.header_limit(limits_.header_bytes_max + 1);
  parser.skip(true);
  parser.eager(true);
  error_code error;
  const size_t read = parser.put(boost::asio::buffer(head_), error);
  if (error || !parser.is_header_done() || read != head_.size()) {
    return refuse({400, "the head of the request is malformed"});
  }
  if (auto refusal = read_target(parser.target, request_)) return refuse(*std::move(refusal));
  head_ = {};
  in_body_ = true;
  return facts_.chunked || facts_.content_length > 0 ? Progress::kMore : Progress::kDone;
}

RequestReader::Progress RequestReader::put_body(std::string_view& bytes) {
  if (facts_.chunked) {
    if (auto refusal = chunks_.put(bytes, limits_, request_.body)) return refuse(*std::move(refusal));
    return chunks_.done() ? Progress::kDone : Progress::kMore;
  }
  const auto left = static_cast<size_t>(facts_.content_length) - request_.body.size();
  const size_t size = std::min(bytes.size(), left);
  request_.body.append(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return size == left ? Progress::kDone : Progress::kMore;
}

RequestReader::Progress RequestReader::put(std::string_view& bytes) {
  if (!in_body_) {
    const Progress progress = put_head(bytes);
    if (progress != Progress::kMore || !in_body_) return progress;
  }
  return put_body(bytes);
}

}  // namespace baton::http
